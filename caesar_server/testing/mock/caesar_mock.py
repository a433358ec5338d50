"""The mock as a test holds it: one scope of a server."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from textwrap import indent
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from caesar_server.blueprints.mock.gate import scope_prefix
from caesar_server.mock.files import load_into
from caesar_server.mock.journal import Entry, Journal, NotReachedError
from caesar_server.mock.journal.explain import gone
from caesar_server.mock.journal.export import to_json
from caesar_server.mock.journal.har import to_har
from caesar_server.mock.matching import Matcher, conditions
from caesar_server.mock.model.call import Call
from caesar_server.mock.model.fault import Fault
from caesar_server.mock.model.pacing import Pacing
from caesar_server.mock.model.reply import Reply
from caesar_server.mock.model.rule import Rule
from caesar_server.testing.mock.asking import Asked, as_filter, describe
from caesar_server.testing.mock.checking import as_paths, as_seconds, as_switch, as_whole
from caesar_server.testing.mock.making import as_fallback, as_faults, make
from caesar_server.testing.mock.rules import RuleBuilder

if TYPE_CHECKING:
    from caesar_server.mock.clock import MockClock
    from caesar_server.mock.scope import Scope
    from caesar_server.testing.mock.server import MockServer

#: Real seconds that an answer which the client has read already may take to be over in the journal.
_SETTLE_S = 5.0


class CaesarMock:
    """Rules, requests and time of one scope of a mock server.

    Safe from any thread.  The fixture ``caesar_mock`` and :func:`mock_server` hand it out.

    Nothing that it shows holds an API key or a cookie.
    """

    # a misspelt `mock.strikt = True` is an error
    __slots__ = ("_builders", "_failures", "_lock", "_scope", "_server")

    def __init__(self, server: MockServer, scope: Scope) -> None:
        self._server = server
        self._scope = scope
        self._lock = threading.Lock()
        self._builders: list[RuleBuilder] = []
        self._failures: list[Exception] = []

    def __repr__(self) -> str:
        try:
            return f"<CaesarMock {self.base_url}>"
        except RuntimeError:  # a repr that raises hides what a failed test shows
            return f"<CaesarMock {scope_prefix(self.name) or '/'}, not running>"

    # -- where it is

    @property
    def name(self) -> str:
        """The scope's name; ``""`` for the server's own."""
        return self._scope.name

    @property
    def base_url(self) -> str:
        """``http://127.0.0.1:PORT``, with ``/t/NAME`` behind it for a named scope.

        Caesar's clients take it as it is, OpenAI's want ``/compat`` (or ``/v1``) behind it.
        """
        return self._server.base_url + scope_prefix(self.name)

    @property
    def env(self) -> dict[str, str]:
        """Environment variables for a program with OpenAI's or Caesar's client.

        They are base URLs, keys, and that there is no proxy.
        """
        return {
            "OPENAI_BASE_URL": f"{self.base_url}/compat",
            "OPENAI_API_KEY": "caesar-mock",
            "CAESAR_BASE_URL": self.base_url,
            "CAESAR_API_KEY": "caesar-mock",
            "NO_PROXY": self._server.host,
            "no_proxy": self._server.host,
        }

    # -- rules

    def on(self, *predicates: Matcher | Callable[[Call], object], **wanted: Any) -> RuleBuilder:
        """Begin a rule: when it applies.

        :param predicates: functions of the call, for what has no name here.
        :param wanted: ``prompt``, ``messages``, ``query``, ``model``, ``metadata``, ``headers``,
            ``path``, ``method``, ``stream``, ``attempt``, ``turn``, ``body``: a plain value, which
            must be equal (of ``path`` and ``model`` a glob; in a path ``{id}`` stands for an id),
            or a matcher.  Nothing: every request.
        :raises TypeError: for another name.
        """
        builder = RuleBuilder(
            self._scope,
            conditions(*predicates, **wanted),
            where=_place(),
            failed=self._note,
        )
        with self._lock:
            self._builders.append(builder)
        return builder

    @property
    def rules(self) -> tuple[Rule, ...]:
        """All rules in the order in which they are tried: faults first, then replies."""
        return self._scope.rules

    def load(self, *paths: str | Path) -> None:
        """Add the rules of fixture files, or of all in folders; they replace those of before.

        :raises Exception: naming file, line and field, if something in them is wrong.
        """
        load_into(self._scope, *as_paths("load", paths))

    def reset(self, what: Literal["all", "journal", "counters"] = "all") -> None:
        """Begin anew.

        :param what: ``journal`` forgets the requests, ``counters`` how often rules were used,
            ``all`` both and the rules, and whatever was set here; what still waits goes on at once.
        """
        self._scope.reset(what)
        if what == "all":
            with self._lock:
                self._builders.clear()
                self._failures.clear()

    # -- how it answers

    @property
    def strict(self) -> bool:
        """Whether a request that no rule answers is a 404 ``no_fixture_match``."""
        return self._scope.strict

    @strict.setter
    def strict(self, strict: bool) -> None:
        self._scope.strict = as_switch("strict", strict)

    @property
    def fallback(self) -> str | Reply:
        """What else such a request gets: ``echo`` (its prompt), ``error`` or a reply."""
        return self._scope.fallback

    @fallback.setter
    def fallback(self, fallback: Literal["echo", "error"] | Reply | Mapping[str, Any]) -> None:
        self._scope.fallback = as_fallback(fallback)

    @property
    def seed(self) -> int:
        """What ids, times, jitter and chances are drawn from: the same seed, the same bytes."""
        return self._scope.seed

    @seed.setter
    def seed(self, seed: int) -> None:
        self._scope.seed = as_whole("seed", seed)

    @property
    def pacing(self) -> Pacing:
        """How fast replies are told that say nothing of it themselves."""
        return self._scope.pacing

    @pacing.setter
    def pacing(self, pacing: Pacing | Mapping[str, Any]) -> None:
        self._scope.pacing = make("pacing", Pacing, pacing)

    @property
    def faults(self) -> tuple[Fault, ...]:
        """What goes wrong in each answer for which no rule and no header asks for a fault."""
        return self._scope.faults

    @faults.setter
    def faults(self, faults: Iterable[Fault | Mapping[str, Any]]) -> None:
        self._scope.faults = as_faults(faults)

    @property
    def clock(self) -> MockClock:
        """The scope's time: ``stop()`` it, and it moves by ``advance(seconds)`` alone."""
        return self._scope.clock

    # -- what was asked

    @property
    def journal(self) -> Journal:
        """Everything about the requests."""
        return self._scope.journal

    @property
    def requests(self) -> tuple[Entry, ...]:
        """The requests so far, the oldest first."""
        return self._scope.journal.entries()

    def describe_requests(self) -> str:
        """Return the requests so far, one a line, for people."""
        return describe(self.requests)

    def export(self, form: Literal["json", "har"]) -> dict[str, Any]:
        """Return the journal as JSON of its own, or as HAR 1.2, which browsers' tools read.

        :raises ValueError: for another form.
        """
        if form not in ("json", "har"):
            raise ValueError(f"form: expected 'json' or 'har', got {form!r}")
        if form == "har":
            return dict(to_har(self.requests))
        return dict(to_json(self.requests, self.journal.totals()))

    def assert_requested(
        self,
        *predicates: Matcher | Callable[[Call], object],
        times: int | None = None,
        **wanted: Any,
    ) -> None:
        """Fail unless there were such requests, with what came closest.

        :param predicates: as :meth:`on` takes them.
        :param times: exactly so many; None: at least one.
        :param wanted: as :meth:`on` takes it, and of the answers: ``status``, ``ended``, ``fault``,
            ``rule`` (name or id of one that answered or let a fault happen) and ``group``.  The
            end of an answer may come a moment after the client has read it, so these are waited
            for.
        :raises ValueError: if ``times`` is no whole number of 0 or more, or for what no request can
            have.
        """
        times = None if times is None else as_whole("times", times, 0)
        self._assert(Asked(predicates, wanted), times, "at least 1" if times is None else "exactly")

    def assert_not_requested(
        self, *predicates: Matcher | Callable[[Call], object], **wanted: Any
    ) -> None:
        """Fail if there was such a request, or may have been: one that the journal has not kept."""
        self._assert(Asked(predicates, wanted), 0, "never")

    def _assert(self, asked: Asked, times: int | None, words: str) -> None:
        wanted = as_filter(asked, "times")
        if asked.looks_at_outcome and times != 0:
            with suppress(NotReachedError):  # told below, in other words
                self.journal.wait_for(times or 1, _SETTLE_S, wanted)
        got = len(self.journal.entries(wanted))
        # nobody knows what those were that are gone
        if got if times is None else got == times and not self.journal.totals().dropped:
            return
        words = f"exactly {times}" if words == "exactly" else words
        raise AssertionError(self.journal.explain(wanted, words, got))

    def wait_for(
        self,
        n: int = 1,
        timeout_s: float = 5.0,
        *predicates: Matcher | Callable[[Call], object],
        finished: bool = False,
        **wanted: Any,
    ) -> tuple[Entry, ...]:
        """Wait for at least ``n`` such requests and return them.

        :param timeout_s: real seconds, whatever the scope's clock says.
        :param finished: wait until they are over, too.
        :param wanted: as :meth:`assert_requested` takes it.
        :raises AssertionError: if they do not come, with what came closest.
        :raises ValueError: if ``n`` is no whole number, or ``timeout_s`` no number, of 0 or more.
        """
        n, timeout_s = as_whole("n", n, 0), as_seconds("timeout_s", timeout_s)
        asked = as_filter(Asked(predicates, wanted), "n", "timeout_s", "finished")
        try:
            return self.journal.wait_for(n, timeout_s, asked, ended=finished)
        except NotReachedError as error:
            raise AssertionError(str(error)) from None

    async def wait_for_async(self, *arguments: Any, **wanted: Any) -> tuple[Entry, ...]:
        """Do as :meth:`wait_for`, in a thread: the event loop of the test goes on meanwhile."""
        return await asyncio.to_thread(self.wait_for, *arguments, **wanted)

    def assert_all_matched(self) -> None:
        """Fail if a request for text was left to the fallback, or may have been."""
        unmatched = [e for e in self.requests if e.decided and e.rule is None and not e.faults]
        texts = [entry for entry in unmatched if entry.call.prompt is not None]
        if texts:
            told = describe(texts)
            raise AssertionError(f"{len(texts)} requests were answered by no rule:\n{told}")
        if dropped := self.journal.totals().dropped:
            raise AssertionError(gone(dropped))

    def assert_all_used(self) -> None:
        """Fail if a rule was not used, or less often than its ``times``, with what came instead."""
        idle = [
            f"  {_words(rule)}: used {used} times"
            + (f", wanted {rule.times}" if rule.times else "")
            + indent(f"\n{self.journal.explain_unused(rule)}", " " * 4)
            for rule in self.rules
            if (used := self._scope.uses(rule.id)) < (1 if rule.times is None else rule.times)
        ]
        if idle:
            raise AssertionError("rules that were not used:\n" + "\n".join(idle))

    def check(self) -> None:
        """Raise what the test itself got wrong and could not see: its client got but a 500.

        That is an ``AssertionError`` of a reply function, a reply that is none, whatever a
        condition raises, and ``on(...)`` without anything to do.  Fixture and ``with`` blocks call
        this at their end.
        """
        with self._lock:
            failures, self._failures = self._failures, []
            idle = [builder.where for builder in self._builders if not builder.begun]
            self._builders = [builder for builder in self._builders if builder.begun]
        if failures:
            raise failures[0]
        if idle:
            places = ", ".join(idle)
            raise AssertionError(
                f"on(...) says when, but not what: {places}; add reply() or fault()"
            )

    # -- scopes

    def scope(self, name: str) -> CaesarMock:
        """Return another scope of the same server, which sees nothing of this one.

        :param name: best of letters, digits, ``-``, ``_`` and dots; others are escaped in URLs.
        :raises ValueError: if it has a ``/`` or is a step in a path.
        """
        return self._server.scope(name)

    def free_name(self, wanted: str) -> str:
        """Make a scope called ``wanted``, with a number behind it if there is one; return its name.

        The fixture ``caesar_mock`` asks for it: an own ``caesar_mock_server`` may yield a mock.
        """
        return self._server.free_name(wanted)

    def close(self) -> None:
        """Give up the scope with all that is in it; the server's own one is emptied."""
        self._server.give_up(self.name)

    def __enter__(self) -> CaesarMock:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if exc is None:
                self.check()
        finally:
            self.close()

    def _note(self, failure: Exception) -> None:
        with self._lock:
            self._failures.append(failure)


def _place() -> str:
    """Return ``FILE:LINE`` of whoever called the method that calls this."""
    frame = sys._getframe(2)
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def _words(rule: Rule) -> str:
    return (rule.name or rule.asked) + (f" ({rule.source})" if rule.source else "")
