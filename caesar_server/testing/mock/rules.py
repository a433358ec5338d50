"""Rules as a test writes them: ``mock.on(...)``, then what is done."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from caesar_server.mock.journal import Entry
from caesar_server.mock.matching.matchers import is_async
from caesar_server.mock.model.call import Call
from caesar_server.mock.model.fault import Fault
from caesar_server.mock.model.pacing import Pacing
from caesar_server.mock.model.reply import (
    MockChoice,
    MockError,
    MockQuestion,
    MockRequest,
    MockResult,
    MockToken,
    MockUsage,
    Reply,
)
from caesar_server.mock.model.rule import Condition, ReplyFunction, Rule
from caesar_server.mock.scope import Scope
from caesar_server.testing.mock.checking import as_text, as_whole
from caesar_server.testing.mock.making import as_faults, as_reply, make

#: What a reply may be given as: a text, the texts of several choices, the whole reply, its fields,
#: or a function that makes it.
ReplyLike: TypeAlias = str | Sequence[str] | Reply | Mapping[str, Any] | ReplyFunction


class RuleBuilder:
    """When something applies: what ``CaesarMock.on`` returns.

    Each of ``reply``, ``replies``, ``fail``, ``fail_first``, ``fault`` and ``faults`` adds a rule
    with these conditions, which is in force at once.  ``times``, ``skip``, ``priority`` and
    ``named`` say more about the rule that was added last; before the first one they hold for all
    that follow.

    Everything returns the builder itself, so a sentence may go on::

        mock.on(prompt=contains("tea")).fail_first(1, status=503).reply("Milk?").times(2)
    """

    def __init__(
        self,
        scope: Scope,
        conditions: tuple[Condition, ...],
        *,
        where: str,
        failed: Callable[[Exception], None],
    ) -> None:
        self._scope = scope
        self._rules: list[Rule] = []
        self._begun = False
        self._where = where
        self._failed = failed
        guarded = tuple(replace(one, holds=self._guarded_test(one.holds)) for one in conditions)
        self._plan = Rule(id="", conditions=guarded, source=where)

    @property
    def where(self) -> str:
        """``FILE:LINE`` where it was written."""
        return self._where

    @property
    def begun(self) -> bool:
        """Whether it was told what to do, be it wrongly."""
        return self._begun

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules that it has added so far, but for those that are not in force any more."""
        return tuple(filter(self._is_in_force, self._rules))

    # -- what is done

    def reply(
        self,
        text: ReplyLike = "",
        *,
        template: str | None = None,
        choices: Sequence[MockChoice | Mapping[str, Any]] = (),
        chunks: int | None = None,
        results: Sequence[MockResult | Mapping[str, Any]] = (),
        statuses: Sequence[str] = (),
        progress: Sequence[str] = (),
        transformed: str | None = None,
        pacing: Pacing | Mapping[str, Any] | None = None,
        usage: MockUsage | Mapping[str, Any] | None = None,
        finish_reason: str | None = None,
        logprobs: Sequence[MockToken | Mapping[str, Any]] | None = None,
        error: MockError | Mapping[str, Any] | None = None,
        queued_polls: int = 0,
        polls_per_status: int = 0,
        requests: Sequence[MockRequest | Mapping[str, Any]] = (),
        loops: int | None = None,
        questions: Sequence[MockQuestion | Mapping[str, Any]] = (),
    ) -> RuleBuilder:
        """Answer so, each time.

        :param text: the answer; several texts are for the choices of one prompt, in turn; a
            function makes the reply from the call.  A function and a whole
            :class:`~caesar_server.mock.model.reply.Reply` say everything themselves: nothing else
            may be given then.
        :param finish_reason: of each choice.
        :param logprobs: of the only choice: tokens that join to the text.
        :raises ValueError: naming the field, if something in it is wrong.
        :raises TypeError: for an asynchronous function, or one that does not take a call.

        The others are the fields of :class:`~caesar_server.mock.model.reply.Reply`.
        """
        self._begun = True
        given: dict[str, Any] = {
            "template": template,
            "choices": choices,
            "chunks": chunks,
            "results": results,
            "statuses": statuses,
            "progress": progress,
            "transformed": transformed,
            "pacing": pacing,
            "usage": usage,
            "error": error,
            "queued_polls": queued_polls or None,
            "polls_per_status": polls_per_status or None,
            "requests": requests,
            "loops": loops,
            "questions": questions,
        }
        fields = {name: value for name, value in given.items() if value not in (None, ())}
        about_choices = {"finish_reason": finish_reason, "logprobs": logprobs}
        of_choice = {name: value for name, value in about_choices.items() if value is not None}
        whole = _whole(text, fields, of_choice)
        return self._add(replies=(self._as_reply(whole),))

    def replies(self, *replies: ReplyLike) -> RuleBuilder:
        """Answer with these in turn; the last one stays.

        :raises ValueError: naming the field, if something in one is wrong, or there is none.
        :raises TypeError: for an asynchronous function, or one that does not take a call.
        """
        self._begun = True
        if not replies:
            raise ValueError("replies: expected at least one")
        if len(replies) == 1 and isinstance(replies[0], (list, tuple)):
            raise ValueError(
                "replies: expected them one by one, got one list: write replies(*...); the texts "
                "of several choices are for reply(...)"
            )
        return self._add(replies=tuple(map(self._as_reply, replies)))

    def fail(self, status: int = 500, **fields: Any) -> RuleBuilder:
        """Answer with an error instead, each time.

        :param status: 100 to 599.
        :param fields: ``message`` and ``code`` of the error object, ``body`` in its place,
            ``headers``, ``retry_after_s``, ``probability``.
        :raises ValueError: naming the field, if something in it is wrong.
        """
        return self.fault("status", status=status, **fields)

    def fail_first(self, n: int, status: int = 500, **fields: Any) -> RuleBuilder:
        """Answer with an error the first ``n`` times; see :meth:`fail`.

        :param n: 0 or more; 0: never, as a test wants that is run with several numbers.
        :raises ValueError: naming the field, if something in it is wrong.
        """
        self._begun = True
        fault = make("fault", Fault, {"kind": "status", "status": status, **fields})
        return self._add(faults=(fault,), times=as_whole("n", n, 0))

    def fault(self, kind: str, **fields: Any) -> RuleBuilder:
        """Let something go wrong, each time.

        :param kind: ``delay``, ``reset``, ``stall``, ...; the manual's page on faults lists them.
        :param fields: those of :class:`~caesar_server.mock.model.fault.Fault` that count for it.
        :raises ValueError: naming the field, if something in it is wrong.
        """
        return self.faults({"kind": kind, **fields})

    def faults(self, *faults: Fault | Mapping[str, Any]) -> RuleBuilder:
        """Let all of these go wrong in one answer.

        :raises ValueError: naming the field, if something in it is wrong, or there is none.
        """
        self._begun = True
        if not faults:
            raise ValueError("faults: expected at least one")
        return self._add(faults=as_faults(faults))

    # -- how often, in which order

    def times(self, n: int) -> RuleBuilder:
        """Use the rule at most ``n`` times, 0: never; then it no longer matches.

        :raises ValueError: if ``n`` is no whole number of 0 or more.
        """
        return self._say(times=as_whole("times", n, 0))

    def skip(self, n: int) -> RuleBuilder:
        """Let the first ``n`` calls that match pass.

        :raises ValueError: if ``n`` is no whole number of 0 or more.
        """
        return self._say(skip=as_whole("skip", n, 0))

    def priority(self, n: int) -> RuleBuilder:
        """Try it before rules of a lower priority; 0 is usual.

        :raises ValueError: if ``n`` is no whole number.
        """
        return self._say(priority=as_whole("priority", n))

    def named(self, name: str) -> RuleBuilder:
        """Give it a name, which messages and the journal show.

        :raises ValueError: if ``name`` is no text.
        """
        return self._say(name=as_text("name", name))

    def remove(self) -> None:
        """Take its rules out of force."""
        for rule in self.rules:
            self._scope.remove(rule.id)
        self._rules.clear()

    # -- what became of it

    @property
    def used(self) -> int:
        """How often its rules were used, in all."""
        return sum(self._scope.uses(rule.id) for rule in self.rules)

    @property
    def requests(self) -> tuple[Entry, ...]:
        """The requests that its rules answered or let something go wrong in, the oldest first."""
        ids = {rule.id for rule in self.rules}
        entries = self._scope.journal.entries()
        return tuple(entry for entry in entries if not ids.isdisjoint(entry.used_rules))

    def assert_used(self, times: int | None = None) -> None:
        """Fail unless its rules were used.

        :param times: exactly so often, all together; None: at least once.
        :raises ValueError: if ``times`` is no whole number of 0 or more.
        """
        times = None if times is None else as_whole("times", times, 0)
        used = self.used
        if used == times or (times is None and used):
            return
        wanted = "at least once" if times is None else f"{times} times"
        told = [f"the rule of {self._where} was used {used} times, wanted {wanted}"]
        if used < (times or 1):
            told += map(self._scope.journal.explain_unused, self.rules)
        raise AssertionError("\n".join(told))

    def _is_in_force(self, rule: Rule) -> bool:
        state = self._scope.state(rule.id)
        # another rule may have the id of one that went with a reset
        return state is not None and state.rule is rule

    def _add(self, **what: Any) -> RuleBuilder:
        self._rules.append(self._scope.add(replace(self._plan, **what)))
        return self

    def _say(self, **more: Any) -> RuleBuilder:
        if not self._rules:
            self._plan = replace(self._plan, **more)
            return self
        last = self._rules[-1]
        if last not in self.rules:
            raise RuntimeError(
                f"the rule of {self._where} is not in force any more: it was removed, or the mock "
                "was reset; write on(...) again"
            )
        changed = replace(last, **more)
        self._scope.replace(changed)
        self._rules[-1] = changed
        return self

    def _as_reply(self, reply: ReplyLike) -> Reply | ReplyFunction:
        if not callable(reply):
            return as_reply(reply)
        if is_async(reply):
            raise TypeError(
                "reply: an async function cannot make it; the server's threads have no event loop, "
                "so write a plain function"
            )
        try:
            # what a decorator stands before may take more, which that gives
            signature = inspect.signature(reply, follow_wrapped=False)
        except (TypeError, ValueError):  # of what is written in C
            return self._guarded_reply(reply)
        try:
            signature.bind(None)
        except TypeError as error:
            raise TypeError(
                f"reply: expected a function that takes the call, got {reply!r}: {error}"
            ) from None
        return self._guarded_reply(reply)

    def _guarded_reply(self, function: ReplyFunction) -> ReplyFunction:
        """Keep what the test itself gets wrong in a function: its client sees no more than a 500.

        Whatever else it raises may be meant.
        """

        @functools.wraps(function)
        def guarded(call: Call) -> Reply | str:
            try:
                made: Any = function(call)
            except AssertionError as error:
                self._failed(error)
                raise
            try:
                return made if isinstance(made, str) else as_reply(made)
            except (TypeError, ValueError) as error:
                shown = repr(made)[:200]
                wrong = TypeError(f"the reply function of {self._where} returned {shown}: {error}")
                self._failed(wrong)
                raise wrong from error

        return guarded

    def _guarded_test(self, test: Callable[[Call], bool]) -> Callable[[Call], bool]:
        """Keep what a condition raises, which can only be a mistake."""

        @functools.wraps(test)
        def guarded(call: Call) -> bool:
            try:
                return test(call)
            except Exception as error:
                self._failed(error)
                raise

        return guarded


def _whole(text: ReplyLike, fields: dict[str, Any], of_choice: dict[str, Any]) -> ReplyLike:
    """Return the reply of a text and of what was said besides.

    :raises ValueError: if the one excludes the other.
    """
    if not fields and not of_choice:
        return text
    if isinstance(text, (Reply, Mapping)) or callable(text):
        others = ", ".join([*fields, *of_choice])
        raise ValueError(f"reply: {others}: a whole reply and a function say that themselves")
    exclusive = [name for name in ("template", "choices") if name in fields]
    if text and exclusive:
        raise ValueError(f"reply: give a text or {exclusive[0]}, not both")
    if not of_choice:
        return {"text": text, **fields}
    if exclusive:
        raise ValueError(f"reply: {', '.join(of_choice)}: only together with a text")
    texts = (text,) if isinstance(text, str) else text
    return {**fields, "choices": [{"text": one, **of_choice} for one in texts]}
