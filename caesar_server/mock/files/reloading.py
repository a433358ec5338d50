"""Keeping scopes at what their files say."""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from caesar_server.mock.files.loading import (
    Fixtures,
    Stamp,
    find_files,
    load_fixtures,
    read_bytes,
    stamp_of,
)
from caesar_server.mock.files.problems import FixturesError, Problem
from caesar_server.mock.scope import Manner, Scope
from caesar_server.mock.scopes import Scopes

logger = logging.getLogger(__name__)

#: The files are looked at no more often.
CHECK_EVERY_S = 0.2
#: A file that was changed so recently may be changed again without another time on it.
_FRESH_NS = 2_000_000_000


@dataclass(frozen=True, slots=True)
class Loaded:
    """How the files stand.

    :param paths: what was asked for.
    :param files: those that were read last.
    :param rules: how many are in force.
    :param problems: of the newest state of the files; if there are any, what is in force is older.
    """

    paths: tuple[Path, ...]
    files: tuple[Path, ...] = ()
    rules: int = 0
    problems: Sequence[Problem] = ()


class Reloader:
    """Reads files into a scope, or into all, and again when they have changed.

    There is no thread for it: whoever handles requests calls :meth:`check` for each.  Safe from any
    thread.

    :param target: a scope, or all of them, those that are made later included.
    :param paths: files and folders; see :func:`~caesar_server.mock.files.loading.load_fixtures`.
    :param over: fields of :class:`~caesar_server.mock.scope.Manner` that win over what files say.
    :param monotonic: seconds of the machine's clock.
    """

    def __init__(
        self,
        target: Scope | Scopes,
        *paths: Path,
        over: Mapping[str, Any] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._target = target
        self._paths = paths
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._next_check = 0.0
        self._before = target.manner
        self._over = dict(over or {})
        self._stamps: Mapping[Path, Stamp | None] = {}
        self._digest = b""
        self._loaded = Loaded(paths)

    @property
    def loaded(self) -> Loaded:
        """How the files stand."""
        return self._loaded

    def load(self) -> Loaded:
        """Read the files now, whether they have changed or not.

        :raises FixturesError: with every problem; what was in force stays.
        """
        with self._lock:
            self._stamps = self._look()
            self._digest = _digest(self._stamps)
            return self._load()

    def check(self) -> None:
        """Read the files if they have changed; look at them at most five times a second.

        Files with problems change nothing: the log says what is wrong, once, and :attr:`loaded`.
        Returns at once while another thread is looking.
        """
        if self._monotonic() < self._next_check or not self._lock.acquire(blocking=False):
            return
        try:
            if self._changed():
                self._load()
        except FixturesError as error:
            logger.error("the fixtures have changed and cannot be used:\n%s", error)
        finally:
            self._next_check = self._monotonic() + CHECK_EVERY_S
            self._lock.release()

    def _look(self) -> dict[Path, Stamp | None]:
        """Return the stamps of the files, and of paths that cannot be looked at None."""
        stamps: dict[Path, Stamp | None] = {}
        for root in self._paths:
            try:
                stamps |= {path: stamp_of(path) for path, _ in find_files(root)}
            except FixturesError:
                stamps[root] = None
        return stamps

    def _changed(self) -> bool:
        """Return whether a file has another content, or there are others, than the last time."""
        stamps = self._look()
        newest = time.time_ns() - _FRESH_NS
        if stamps == self._stamps and not any(
            stamp and stamp[0] > newest for stamp in stamps.values()
        ):
            return False
        # Before what is read next: a change in between is seen the next time.
        self._stamps, before = stamps, self._digest
        self._digest = _digest(stamps)
        return self._digest != before

    def _load(self) -> Loaded:
        try:
            fixtures = load_fixtures(*self._paths)
            self._put(fixtures)
        except FixturesError as error:
            self._loaded = replace(self._loaded, problems=error.problems)
            raise
        self._loaded = Loaded(self._paths, tuple(fixtures.files), len(fixtures.rules))
        return self._loaded

    def _put(self, fixtures: Fixtures) -> None:
        try:
            self._target.set_files(fixtures.rules)
        except ValueError as error:
            raise FixturesError([Problem(str(error))]) from error
        self._target.set_manner(replace(manner_of(fixtures, self._before), **self._over))


def manner_of(fixtures: Fixtures, before: Manner) -> Manner:
    """Return the manner that files ask for; what they do not mention is as ``before``."""
    return replace(before, **fixtures.settings)


def load_into(
    target: Scope | Scopes, *paths: Path, over: Mapping[str, Any] | None = None
) -> Reloader:
    """Read files into a scope, or all, and return what keeps it at them.

    :param over: fields of :class:`~caesar_server.mock.scope.Manner` that win over what files say.
    :raises FixturesError: with every problem; the target is then unchanged.
    """
    reloader = Reloader(target, *paths, over=over)
    reloader.load()
    if isinstance(target, Scopes):
        target.reloader = reloader
    return reloader


def _digest(files: Iterable[Path]) -> bytes:
    """Return what changes with the names and contents of files."""
    digest = hashlib.sha256()
    for path in files:
        try:
            content = read_bytes(path, path.name)
        except FixturesError as error:
            content = str(error).encode("utf-8", "surrogateescape")
        digest.update(f"{str(path)!r} {len(content)}\n".encode())
        digest.update(content)
    return digest.digest()
