"""All scopes of a server, by name, and the calls that are being answered."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from caesar_server.mock.course import Courses
from caesar_server.mock.journal import Limits
from caesar_server.mock.model.call import Call
from caesar_server.mock.model.rule import Decision, Rule
from caesar_server.mock.owners import Owners
from caesar_server.mock.scope import Manner, Scope
from caesar_server.settings import Settings

#: A name travels in URLs and headers.
LONGEST_NAME = 200


def check_scope_name(name: str) -> str:
    """Return the name of a scope that may stand in the path of a base URL.

    :raises ValueError: if it cannot: clients and proxies would take it for parts of the path.
    """
    if "/" in name or name in (".", ".."):
        raise ValueError(f"scope: expected a name without '/', got {name!r}")
    return name


class Reloading(Protocol):
    """Follows fixture files; see :mod:`caesar_server.mock.files`."""

    def check(self) -> None:
        """Read the files if they have changed."""


class ScopesFullError(Exception):
    """There are as many scopes as there may be."""


@dataclass(slots=True, eq=False)
class Held:
    """A call that is being answered.

    :param entry: of the scope's journal.
    :ivar begun: whether a backend answers it: from then on no check of the server refuses it.
    """

    call: Call
    decision: Decision
    scope: Scope
    entry: Any = None
    begun: bool = field(default=False, init=False)


class Scopes:
    """Scopes by name, made when they are first used.  Safe for threads.

    :param manner: what each scope begins with.
    :param rules: of fixture files; each scope has them.
    :param limit: of their number.
    :param journal_limits: how much the journal of each keeps.
    """

    def __init__(
        self,
        manner: Manner | None = None,
        rules: Iterable[Rule] = (),
        *,
        limit: int = 1000,
        journal_limits: Limits | None = None,
    ) -> None:
        #: Of the jobs of all scopes.
        self.courses = Courses()
        self._owners = Owners()
        #: Looks whether the fixture files have changed, if there are any.
        self.reloader: Reloading | None = None
        self.limit = limit
        self._manner = manner or Manner()
        self._journal_limits = journal_limits
        self._lock = threading.Lock()
        self._scopes: dict[str, Scope] = {}
        self._files: tuple[Rule, ...] = tuple(rules)
        #: Changed in single steps, without the lock.
        self._held: dict[str, Held] = {}
        self.get()  # so that wrong rules are told now

    @classmethod
    def of(cls, settings: Settings) -> Scopes:
        """Return scopes as the ``mock_*`` settings want them."""
        manner = Manner(
            seed=settings.mock_seed, fallback=settings.mock_fallback, strict=settings.mock_strict
        )
        limits = Limits(
            entries=settings.mock_journal_entries, total_bytes=settings.mock_journal_bytes
        )
        return cls(manner, limit=settings.mock_scopes, journal_limits=limits)

    @property
    def manner(self) -> Manner:
        """What new scopes begin with."""
        return self._manner

    def set_manner(self, manner: Manner) -> None:
        """Change what new scopes begin with; and the others, see :meth:`Scope.set_manner`."""
        with self._lock:
            self._manner = manner
            for scope in self._scopes.values():
                scope.set_manner(manner)

    def get(self, name: str = "") -> Scope:
        """Return the scope of this name; a new one if there is none.

        :raises ScopesFullError: if there is no room for a new one.
        :raises ValueError: if the name is longer than :data:`LONGEST_NAME`.
        """
        # a look into a dict is one step, which no thread comes between
        scope = self._scopes.get(name)
        if scope is not None:
            return scope
        with self._lock:
            scope = self._scopes.get(name)
            if scope is None:
                scope = self._scopes[name] = self._new(name)
            return scope

    def make(self, wanted: str) -> Scope:
        """Make a scope and return it: called ``wanted``, with a number behind it if there is one.

        :raises ScopesFullError: as :meth:`get`.
        :raises ValueError: as :meth:`get`.
        """
        with self._lock:
            name, number = wanted, 1
            while name in self._scopes:
                number += 1
                name = f"{wanted}-{number}"
            scope = self._scopes[name] = self._new(name)
            return scope

    def find(self, name: str) -> Scope | None:
        """Return the scope of this name, if there is one already."""
        return self._scopes.get(name)

    def names(self) -> tuple[str, ...]:
        """Return the names of all scopes, the oldest first; ``""`` is always among them."""
        with self._lock:
            return tuple(self._scopes)

    def remove(self, name: str) -> bool:
        """Remove a scope with all that is its own; False if there is none of this name.

        Calls that it has decided are answered, at once if they wait for its clock.  The default
        scope is emptied instead.
        """
        with self._lock:
            scope = self._scopes.get(name) if name == "" else self._scopes.pop(name, None)
        if scope is not None and name == "":
            scope.reset()
        elif scope is not None:
            scope.close()
        return scope is not None

    def set_files(self, rules: Iterable[Rule]) -> None:
        """Replace the rules of fixture files in all scopes.

        :raises ValueError: as :meth:`Scope.set_files`; all is then as before.
        """
        files = tuple(rules)
        Scope().set_files(files)
        with self._lock:
            self._files = files
            for scope in self._scopes.values():
                scope.set_files(files)

    def hold(self, held: Held) -> None:
        """Keep a call with a decision for the backend, until :meth:`release`."""
        self._held[held.call.id] = held

    def find_call(self, call_id: str) -> Held | None:
        """Return a call that is being answered by its id."""
        return self._held.get(call_id)

    def release(self, call_id: str) -> None:
        """Let go of a call that has been answered.  May be called more than once."""
        self._held.pop(call_id, None)

    def _new(self, name: str) -> Scope:
        if len(name) > LONGEST_NAME:
            raise ValueError(f"scope: expected at most {LONGEST_NAME} characters, got {len(name)}")
        if len(self._scopes) >= self.limit:
            raise ScopesFullError(
                f"There are {self.limit} scopes already; remove those that are done with "
                "(DELETE /_mock/scopes/NAME)"
            )
        scope = Scope(
            name, self._manner, self._journal_limits, self.courses, new_owner=self._owners.new
        )
        scope.set_files(self._files)
        return scope
