"""``serve --reload``: a new worker whenever a source file of a plugin changes.

Only the workers import plugins, so a new worker is all that it takes.  It is started before the old
one ends, as for SIGHUP, so there is always one that answers.  A file that cannot be imported makes
its backend ``failed``, as everywhere; the worker runs on, and watches for the next change.

gunicorn's own reloader looks at the modules that could be imported.  A file with a syntax error is
none of them, so it would never notice that the error is gone.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import signal
import sys
import sysconfig
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import caesar_server
from caesar_server.errors import BackendLoadError, SettingsError, ShuttingDownError
from caesar_server.registry import Registry, extra_candidates
from caesar_server.settings import Settings

_POLL_S = 0.3
#: How long streams may go on in the old worker; the code that they run is out of date.
GRACE_S = 1.0
_logger = logging.getLogger(__name__)

#: Modification time in nanoseconds and size of each file.
State: TypeAlias = Mapping[Path, tuple[int, int]]


def check_reload(settings: Settings) -> None:
    """Refuse what does not go together with ``--reload``.

    :raises SettingsError: with what to leave out.
    """
    problems = []
    if settings.strict_plugins:
        problems.append(
            "strict_plugins: ends the server at the first mistake, --reload waits until it is "
            "corrected; leave one of them out"
        )
    if settings.workers > 1:
        problems.append(
            f"workers: --reload is for writing a backend and runs one worker, not "
            f"{settings.workers}; leave one of them out"
        )
    if problems:
        raise SettingsError(problems)


class SourceWatch:
    """Looks at the source files of plugins and calls ``changed`` once, when one is another.

    These are all files in the folders of ``extra_backends``, of the packages that ``entry_points``
    name, and of every imported module, down into packages; but for what is the server's own or
    installed by copy.

    :param extra_backends: as in the settings.
    :param changed: gets the names of the files; called in the watch's own thread, which then ends.
    :param entry_points: ``module:Class`` of installed backends.
    """

    def __init__(
        self,
        extra_backends: Collection[str],
        changed: Callable[[list[Path]], None],
        entry_points: Collection[str] = (),
    ) -> None:
        # A package whose import fails is no imported module, and is to be looked at until it works.
        linked = (folder for one in entry_points for folder in _folders_of_module(one))
        self._roots = frozenset((*_folders_of(extra_backends), *linked))
        self._changed = changed
        self._stop = threading.Event()
        # Before anything is imported: what changes from now on is new.
        self._before = self._look()
        self._thread = threading.Thread(target=self._run, name="caesar-reload", daemon=True)

    def start(self) -> None:
        """Begin to look, in a thread."""
        self._thread.start()

    def close(self) -> None:
        """Look no more.  May be called more than once, and from ``changed``."""
        self._stop.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(_POLL_S):
            now = self._look()
            differs = _differences(self._before, now)
            if differs:
                self._changed(sorted(differs))
                return
            self._before = now

    def _look(self) -> State:
        folders = self._roots | {path.parent for path in _imported_sources()}
        return {path: state for folder in folders for path, state in _sources(folder)}


def _differences(before: State, now: State) -> set[Path]:
    """Return the files that changed, went or came beside others that were there.

    A folder that was not looked at before is none of it: something was imported from there.
    """
    folders = {path.parent for path in before}
    came = {path for path in now.keys() - before.keys() if path.parent in folders}
    return {path for path in before if before[path] != now.get(path)} | came


def _sources(folder: Path) -> Iterator[tuple[Path, tuple[int, int]]]:
    """Yield the Python files in a folder and in the packages in it."""
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return  # gone: its files are missing then
    for entry in entries:
        try:
            if entry.name.endswith(".py") and entry.is_file():
                found = entry.stat()
                yield Path(entry.path), (found.st_mtime_ns, found.st_size)
            elif entry.is_dir() and Path(entry.path, "__init__.py").is_file():
                yield from _sources(Path(entry.path))
        except OSError:
            continue  # gone since the folder was read


def _imported_sources() -> Iterator[Path]:
    """Yield the files of imported modules that are somebody's project, and not installed."""
    installed = _installed_folders()
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and file.endswith(".py") and not file.startswith(installed):
            yield Path(file).absolute()


@cache
def _installed_folders() -> tuple[str, ...]:
    """Return what paths of installed files begin with; asking sysconfig takes long."""
    places = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    places.append(str(Path(caesar_server.__file__).parent))
    return tuple(f"{Path(place)}{os.sep}" for place in places)


def _folders_of(extra_backends: Collection[str]) -> Iterator[Path]:
    """Yield the folders of classes that are run in place, importing none."""
    for candidate in extra_candidates(extra_backends):
        if candidate.file is not None:
            yield candidate.file.parent
            continue
        yield from _folders_of_module(candidate.entry_point)


def _folders_of_module(entry_point: str) -> Iterator[Path]:
    """Yield where the package of ``module:Class`` is, if it is not installed; imports nothing."""
    try:
        spec = importlib.util.find_spec(entry_point.partition(":")[0].split(".")[0])
    except (ImportError, ValueError):
        return  # the registry tells what is wrong with it
    if spec is None:
        return
    file = spec.origin if spec.has_location else None
    # a namespace has folders and no file
    places = [Path(file).parent] if file else map(Path, spec.submodule_search_locations or ())
    for place in places:
        if not f"{place.absolute()}{os.sep}".startswith(_installed_folders()):
            yield place.absolute()


def watch_sources(worker: Any) -> None:
    """In a new worker: load what is being written, to show its errors, and watch its files."""
    from caesar_server.web.services import EXTENSION

    services = worker.wsgi.extensions[EXTENSION]
    settings, master = services.settings, os.getppid()

    def changed(files: list[Path]) -> None:
        names = ", ".join(path.name for path in files)
        _logger.info("changed: %s; starting a new worker", names)
        os.kill(master, signal.SIGHUP)

    points = [report.entry_point for report in services.registry.reports()]
    watch = SourceWatch(settings.extra_backends, changed, points)
    watch.start()
    # Not waited for: what never comes to its end would keep the worker from answering.
    threading.Thread(
        target=_load, args=(services.registry, settings), name="caesar-load", daemon=True
    ).start()


def _load(registry: Registry, settings: Settings) -> None:
    for name in dict.fromkeys(_being_written(registry, settings)):
        if name not in registry.names:
            continue
        try:
            registry.load(name)
        except BackendLoadError:
            _logger.error("%s", registry.report(name).sentence)
        except ShuttingDownError:
            return
        else:
            _logger.info("backend %s is loaded", name)


def _being_written(registry: Registry, settings: Settings) -> Iterator[str]:
    """Yield the backends whose author is probably who asked for ``--reload``."""
    yield from (candidate.name for candidate in extra_candidates(settings.extra_backends))
    if any(_folders_of_module(registry.report(registry.default).entry_point)):
        yield registry.default
