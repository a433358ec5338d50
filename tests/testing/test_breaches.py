"""Each rule of the conformance suite fails for a backend that breaks it, and no other rule does."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from caesar_server.contract import (
    Backend,
    BackendUnavailableError,
    BrainstormRequest,
    Capabilities,
    ChatRequest,
    ChoiceFinished,
    Completed,
    CompletionRequest,
    ContentDelta,
    Context,
    Event,
    Failed,
    Health,
    InvalidRequestError,
    LogprobToken,
    LoopFinished,
    Model,
    ProgressNoted,
    RateLimitedError,
    Request,
    ResearchRequest,
    ResultFound,
    Sampling,
    Started,
    StatusChanged,
    Told,
    TopLogprob,
    UsageCounted,
    choice_events,
    option,
    split_words,
)
from caesar_server.testing import check_backend
from caesar_server.testing.conformance import RULES, Report

#: What the hasty backend promises, and what is longer than that; on a busy machine a backend that
#: ends at once must not seem to take so long.
PROMISED_S, TOO_LONG_S = 1.5, 2.5


class Good(Backend):
    """Can do everything, and does it right."""

    capabilities = Capabilities(
        accepts=frozenset({"completion", "chat", "research", "follow_up", "brainstorm"}),
        n=True,
        best_of=True,
        logprobs=True,
        echo=True,
        suffix=True,
        token_prompts=True,
        max_tokens=True,
        stop=True,
        seed=True,
        usage=True,
        citations=True,
        files=True,
        images=True,
        audio=True,
        durable=True,
        channels=frozenset({"content", "transformed"}),
        cancel_deadline_s=20.0,
    )

    def run(self, request: Request, context: Context) -> Iterator[Event]:
        context.raise_if_cancelled()
        yield Started()
        self.read(context)
        context.checkpoint({"asked": repr(request)})
        if isinstance(request, BrainstormRequest):
            yield Completed({"questions": []})
            return
        sampling = getattr(request, "sampling", Sampling())
        for position, prompt in enumerate(prompts_of(request)):
            yield UsageCounted(prompt_tokens=len(prompt.split()))
            words = split_words(f"It is said that {prompt}")
            echo = prompt if getattr(request, "echo", False) else ""
            for k in range(sampling.n):
                choice = position * sampling.n + k
                for event in choice_events(words, context, sampling, choice=choice, echo=echo):
                    shaped = isinstance(event, ContentDelta) and is_shaped(request)
                    if shaped:
                        yield replace(event, channel="transformed")
                    yield with_logprobs(event) if sampling.logprobs else event
        if isinstance(request, ResearchRequest):
            yield ResultFound("a", "A", "https://example.org/a", 0.5, 1)
            yield ResultFound("b", "B", "https://example.org/b")
        yield Completed()

    def read(self, context: Context) -> None:
        for file in context.files.values():
            file.path.read_bytes()


class Hasty(Good):
    """Promises to end soon."""

    capabilities = replace(Good.capabilities, cancel_deadline_s=PROMISED_S)


def is_shaped(request: Request) -> bool:
    return getattr(getattr(request, "parameters", None), "system_prompt", None) is not None


def prompts_of(request: Request) -> list[str]:
    if isinstance(request, CompletionRequest):
        return [str(prompt) for prompt in request.prompts]
    if isinstance(request, ChatRequest):
        return [request.messages[-1].text]
    return [getattr(request, "query", "")]


def with_logprobs(event: Event) -> Event:
    if not isinstance(event, ContentDelta):
        return event
    return replace(event, logprobs=(LogprobToken(event.text, -0.5, (TopLogprob("x", -0.5),)),))


@dataclass(frozen=True)
class Breach:
    """A broken backend.

    :param rule: the rule that it breaks.
    :param says: a part of what the report says about it.
    :param besides: rules that cannot hold either then.
    """

    rule: str
    says: str
    backend_class: type[Backend]
    besides: frozenset[str] = frozenset()
    options: Mapping[str, object] | None = None


BREACHES: list[Breach] = []


def breach(
    rule: str, says: str, *besides: str, options: Mapping[str, object] | None = None
) -> Callable[[type[Backend]], type[Backend]]:
    def note(cls: type[Backend]) -> type[Backend]:
        BREACHES.append(Breach(rule, says, cls, frozenset(besides), options))
        return cls

    return note


def run_breach(
    rule: str,
    says: str,
    *besides: str,
    only: Callable[[Request], bool] = lambda request: True,
    of: type[Good] = Good,
) -> Callable[..., None]:
    """Note a breach in the events of those runs of ``of`` for whose request ``only`` is true.

    The decorated function gets the good events, the request and the context.
    """

    def note(change: Callable[[Iterator[Event], Any, Context], Iterable[Event]]) -> None:
        class Broken(of):  # type: ignore[misc, valid-type]
            def run(self, request: Request, context: Context) -> Iterator[Event]:
                events = super().run(request, context)
                yield from change(events, request, context) if only(request) else events

        Broken.__name__ = Broken.__qualname__ = change.__name__
        BREACHES.append(Breach(rule, says, Broken, frozenset(besides)))

    return note


def research(request: Request) -> bool:
    """Whether a rule about sampling would not notice a change of the run."""
    return isinstance(request, ResearchRequest)


def asks(**values: object) -> Callable[[Request], bool]:
    """Return whether a request has these sampling parameters."""

    def match(request: Request) -> bool:
        sampling = getattr(request, "sampling", None)
        return sampling is not None and all(
            getattr(sampling, name) == value for name, value in values.items()
        )

    return match


# --- the class -----------------------------------------------------------------------------------


@breach("class.contract_version", "seen: 99")
class FromTheFuture(Good):
    contract_version = 99


@breach("class.contract_version", "seen: '1'")
class VersionAsText(Good):
    contract_version: ClassVar[Any] = "1"


@breach("class.capabilities", "an instance of caesar_server.contract.Capabilities")
class CapabilitiesAsDict(Good):
    capabilities: ClassVar[Any] = {"n": True}


@breach("class.capabilities", "accepts=frozenset({'poems'})")
class AcceptsPoems(Good):
    capabilities = Capabilities(accepts=frozenset({"poems"}))  # type: ignore[arg-type]


@breach("class.capabilities", "cancel_deadline_s=0")
class NeverInTime(Good):
    capabilities = replace(Good.capabilities, cancel_deadline_s=0)


@breach("class.methods", "its open() is async")
class OpensNever(Good):
    async def open(self) -> None:  # type: ignore[override]
        raise AssertionError("nobody awaits it")


@breach("class.methods", "its run() cannot be called as run(request, context)")
class WantsNoContext(Good):
    def run(self, request: Request) -> Iterator[Event]:  # type: ignore[override]
        yield Completed()


@breach("class.methods", "its __init__() cannot be called as __init__(options)")
class InitWantsNothing(Good):
    def __init__(self) -> None:
        super().__init__()


@breach("options.schema", "@dataclass(frozen=True)")
class OptionsAreNoDataclass(Good):
    options_schema: ClassVar[Any] = dict


@breach("options.schema", "Thawed is not frozen")
class OptionsThaw(Good):
    @dataclass
    class Thawed:
        size: int = option(1, help="How large.")

    options_schema = Thawed


@breach("options.schema", "no help for size")
class OptionsSaySoLittle(Good):
    @dataclass(frozen=True)
    class Silent:
        size: int = 1

    options_schema = Silent


@breach("options.schema", "colour is of the type complex")
class OptionsThatNothingIs(Good):
    @dataclass(frozen=True)
    class Colourful:
        folder: Path = option(Path(), help="Where.")
        colour: complex | None = option(None, help="Which.")

    options_schema = Colourful


@breach("options.defaults", "size: expected at least 1, got 0")
class DefaultOutOfRange(Good):
    @dataclass(frozen=True)
    class Small:
        size: int = option(0, help="How large.", minimum=1)

    options_schema = Small


@breach("options.defaults", "the default of folder is '/srv'; expected: PosixPath('/srv')")
class DefaultIsText(Good):
    @dataclass(frozen=True)
    class Folder:
        folder: Path = option("/srv", help="Where to look.")  # type: ignore[assignment]

    options_schema = Folder


@breach("options.accepted", "size: unknown; known: none", options={"size": 1})
class TakesNoOptions(Good):
    pass


@breach("options.unknown_refused", "no_such_option_of_any_backend")
class KnowsEveryOption(Good):
    @dataclass(frozen=True)
    class All:
        no_such_option_of_any_backend: int = option(1, help="Anything.")

    options_schema = All


@breach("class.init_is_cheap", os.devnull)
class OpensInInit(Good):
    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        # closed when the instance goes, so that nothing but __init__ is at fault
        weakref.finalize(self, os.close, os.open(os.devnull, os.O_RDONLY))


@breach("models.before_open", "AttributeError")
class ModelsNeedOpen(Good):
    def open(self) -> None:
        self.found = (Model("a"),)

    def models(self) -> tuple[Model, ...]:
        return self.found


@breach("models.before_open", "'gpt-x'")
class ModelsAreNames(Good):
    def models(self) -> Any:
        return ["gpt-x"]


@breach("models.before_open", "created=1.5")
class ModelsHaveFloats(Good):
    def models(self) -> Any:
        return [Model("a", created=1.5)]  # type: ignore[arg-type]


@breach("models.before_open", "printable characters")
class ModelsAreHalf(Good):
    def models(self) -> tuple[Model, ...]:
        return (Model("a \ud83d"),)


@breach("models.before_open", "the id 'a' twice")
class ModelsTwice(Good):
    def models(self) -> tuple[Model, ...]:
        return (Model("a"), Model("b"), Model("a"))


@breach("health.value", "seen: True")
class HealthIsTrue(Good):
    def health(self) -> Any:
        return True


@breach("health.value", "OSError: no route")
class HealthRaises(Good):
    def health(self) -> Any:
        raise OSError("no route")


@breach("health.ok", "seen: degraded: one of two files is missing")
class HealthIsDegraded(Good):
    def health(self) -> Health:
        return Health("degraded", "one of two files is missing")


# --- how it lives --------------------------------------------------------------------------------


@breach("life.opens", "FileNotFoundError: weights")
class CannotOpen(Good):
    def open(self) -> None:
        raise FileNotFoundError("weights")


@breach("life.opens", "open() raised SystemExit(3)")
class ExitsInOpen(Good):
    def open(self) -> None:
        raise SystemExit(3)


@run_breach("run.typed_errors", "run() raised SystemExit", only=research)
def exits(events: Iterator[Event], request: Any, context: Context) -> Iterable[Event]:
    raise SystemExit(3)


@breach("life.closes", "RuntimeError: busy")
class CannotClose(Good):
    def close(self) -> None:
        raise RuntimeError("busy")


@breach("life.reopens", "RuntimeError: once is enough")
class OpensOnce(Good):
    used = False

    def open(self) -> None:
        if self.used:
            raise RuntimeError("once is enough")
        self.used = True


#: Lets the threads of broken backends end after the test.
RELEASE = threading.Event()


@breach("life.leaves_nothing", "the thread 'poller'")
class LeavesThread(Good):
    def open(self) -> None:
        threading.Thread(target=RELEASE.wait, name="poller", daemon=True).start()


@breach("life.leaves_nothing", "the descriptor of")
class LeavesDescriptor(Good):
    def open(self) -> None:
        opened = os.open(os.devnull, os.O_RDONLY)
        threading.Thread(
            target=lambda: (RELEASE.wait(), os.close(opened)), name="holder", daemon=True
        ).start()


# --- how it runs ---------------------------------------------------------------------------------


@run_breach("run.typed_errors", "KeyError: 'choices'", only=research)
def raises_untyped(events: Iterator[Event], request: Any, context: Context) -> Iterable[Event]:
    raise KeyError("choices")


@breach("run.typed_errors", "it returned None, which is no iterator; yield the events")
class ForgetsToReturn(Good):
    def run(self, request: Request, context: Context) -> Iterator[Event]:
        events = super().run(request, context)
        return None if research(request) else events  # type: ignore[return-value]


@run_breach("run.typed_errors", "retry_after_s: seconds from 0 on, or None", only=research)
def comes_back_soon(events: Iterator[Event], request: Any, context: Context) -> Iterable[Event]:
    raise RateLimitedError("too much", retry_after_s="soon")  # type: ignore[arg-type]


@run_breach("run.accepts", "run() raised BackendUnavailableError: try later", only=research)
def is_never_there(events: Iterator[Event], request: Any, context: Context) -> Iterable[Event]:
    raise BackendUnavailableError("try later")


@breach("run.refuses", "with a chat request: run() completed")
class TakesWhatItDoesNotAccept(Good):
    capabilities = replace(Good.capabilities, accepts=frozenset({"completion"}))


@breach("run.refuses", "with param=0; expected: param: a str, or None")
class CountsParameters(Good):
    capabilities = replace(Good.capabilities, token_prompts=False)

    def run(self, request: Request, context: Context) -> Iterator[Event]:
        if isinstance(request, CompletionRequest) and not isinstance(request.prompts[0], str):
            raise InvalidRequestError("takes text", param=0)  # type: ignore[arg-type]
        return super().run(request, context)


@breach("run.refuses", "with a prompt of token ids: run() failed with 'takes text', which is no")
class FailsWithText(Good):
    capabilities = replace(Good.capabilities, token_prompts=False)

    def run(self, request: Request, context: Context) -> Iterator[Event]:
        if isinstance(request, CompletionRequest) and not isinstance(request.prompts[0], str):
            return iter((Failed("takes text"),))  # type: ignore[arg-type]
        return super().run(request, context)


@breach("run.refuses", "with a prompt of token ids: run() raised TypeError")
class StumblesOverTokens(Good):
    capabilities = replace(Good.capabilities, token_prompts=False)

    def run(self, request: Request, context: Context) -> Iterator[Event]:
        if isinstance(request, CompletionRequest) and not isinstance(request.prompts[0], str):
            raise TypeError("expected str")
        return super().run(request, context)


@breach("run.immediate", "in a completion run: it waits before that")
class WaitsAtOnce(Good):
    capabilities = replace(Good.capabilities, immediate=True)

    def run(self, request: Request, context: Context) -> Iterator[Told]:
        context.sleep(0.001)
        yield []
        yield from super().run(request, context)


@breach("run.typed_errors", "run() raised RuntimeError: cannot release un-acquired lock")
class HoldsALockOfItsThread(Good):
    capabilities = replace(Good.capabilities, immediate=True)

    def run(self, request: Request, context: Context) -> Iterator[Told]:
        lock = threading.RLock()
        with lock:
            yield []
        yield from super().run(request, context)


@breach("run.recovers", "after such runs")
class BreaksWhenLeft(Good):
    broken = False

    def run(self, request: Request, context: Context) -> Iterator[Event]:
        if self.broken:
            yield UsageCounted(completion_tokens=1)
        try:
            yield from super().run(request, context)
        except GeneratorExit:
            self.broken = True
            raise


@breach("concurrency.same_answers", "beside others")
class MixesUp(Good):
    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self.at_work: list[Request] = []

    def run(self, request: Request, context: Context) -> Iterator[Event]:
        self.at_work.append(request)
        try:
            context.sleep(0.01)
            yield UsageCounted(completion_tokens=len(self.at_work) - 1)
            yield from (e for e in super().run(request, context) if not isinstance(e, Started))
        finally:
            self.at_work.remove(request)


def dawdle() -> None:
    """Wait as a call does that nobody can interrupt."""
    threading.Event().wait(TOO_LONG_S)


@breach("cancel.before_start", "an end within 1.5 s")
class StartsAllTheSame(Hasty):
    def run(self, request: Request, context: Context) -> Iterator[Event]:
        if context.cancelled:
            dawdle()
        yield from super().run(request, context)


@run_breach("cancel.between_events", "an end within 1.5 s", only=asks(max_tokens=400), of=Hasty)
def does_not_poll(events: Iterator[Event], request: Any, context: Context) -> Iterable[Event]:
    yield next(events)
    if context.cancelled:
        dawdle()
    yield from events


@run_breach("cancel.while_working", "an end within 1.5 s", only=asks(max_tokens=400), of=Hasty)
def does_not_listen(events: Iterator[Event], request: Any, context: Context) -> Iterable[Event]:
    if not context.cancelled and context.deadline is None:
        yield next(events)
        context.raise_if_cancelled()
        dawdle()
    yield from events


@run_breach("cancel.deadline", "an end within 1.5 s", only=asks(max_tokens=400), of=Hasty)
def has_its_own_time(events: Iterator[Event], request: Any, context: Context) -> Iterable[Event]:
    if context.deadline is not None:
        dawdle()
    yield from events


# --- its events ----------------------------------------------------------------------------------


@run_breach("events.types", "{'type': 'progress_noted'}", only=research)
def yields_dicts(events: Iterator[Event], request: Any, context: Context) -> Iterable[Any]:
    yield from (*events, {"type": "progress_noted"})


class Remark(ProgressNoted, frozen=True):
    """An event of a plugin's own."""


BAD_EVENTS: list[tuple[object, str]] = [
    (ProgressNoted, "an instance, ProgressNoted(...), not the class"),
    (Remark("hm"), "not of a class derived from one"),
    ("Hello", "such as ContentDelta(text)"),
    ([[ProgressNoted("hm")]], "what it holds may be no list again"),
]


def _yields_at_last(bad: Any, says: str) -> None:
    @run_breach("events.types", says, only=research)
    def no_event(events: Iterator[Event], request: Any, context: Context) -> Iterable[Event]:
        yield from (*events, bad)


for _bad, _says in BAD_EVENTS:
    _yields_at_last(_bad, _says)


@run_breach("events.values", "text: a str")
def yields_bytes(events: Iterator[Event], request: Any, context: Context) -> Iterable[Event]:
    for event in events:
        is_text = isinstance(event, ContentDelta)
        yield replace(event, text=event.text.encode()) if is_text else event


@run_breach("events.values", "prompt_tokens: a whole number (int)", only=research)
def numbers_as_text(events: Iterator[Event], request: Any, context: Context) -> Iterable[Event]:
    yield UsageCounted(prompt_tokens="1")  # type: ignore[arg-type]
    yield from events


BAD_VALUES: list[tuple[Event, str]] = [
    (LoopFinished(0), "loop: a whole number (int) from 1 to 2147483647"),
    (UsageCounted(prompt_tokens=-1), "prompt_tokens: a whole number (int) from 0"),
    (ResultFound("c", "", "", score=1.5), "score: a number (float) from 0 to 1"),
    (ResultFound("c", "", "", citation_index=0), "citation_index: a whole number (int) from 1"),
    (ResultFound("c", None, ""), "title: a str"),  # type: ignore[arg-type]
    (ContentDelta("", logprobs=(LogprobToken("", 0.1),)), "log probabilities of 0 or less"),
    (
        ContentDelta("", logprobs=(LogprobToken("", float("-inf")),)),
        "logprobs[0].logprob: a finite",
    ),
]


def _yields_first(bad: Event, says: str) -> None:
    @run_breach("events.values", says, only=research)
    def bad_value(events: Iterator[Event], request: Any, context: Context) -> Iterable[Event]:
        yield from (next(events), bad, *events)


for _bad, _says in BAD_VALUES:
    _yields_first(_bad, _says)


@run_breach("events.json", "became", only=research)
def details_change(events: Iterator[Event], request: Any, context: Context) -> Iterable[Event]:
    yield replace(next(events), details={"pair": (1, 2)})
    yield from events


@run_breach("events.json", "JSON", only=research)
def details_are_not_json(
    events: Iterator[Event], request: Any, context: Context
) -> Iterable[Event]:
    yield replace(next(events), details={"ratio": float("nan")})
    yield from events


@run_breach("events.whole_characters", "'\\ud83c'", only=research)
def half_a_wave(events: Iterator[Event], request: Any, context: Context) -> Iterable[Event]:
    yield from (next(events), ContentDelta("\ud83c"), *events)


@run_breach("events.terminal", "no terminal event", "run.accepts", only=research)
def just_stops(events: Iterator[Event], request: Any, context: Context) -> Iterable[Event]:
    return [event for event in events if not isinstance(event, Completed)]


@run_breach("events.terminal", "ProgressNoted after Completed", only=research)
def goes_on(events: Iterator[Event], request: Any, context: Context) -> Iterable[Event]:
    yield from (*events, ProgressNoted("still here"))


@run_breach("events.terminal", "Completed after Completed", only=research)
def ends_twice(events: Iterator[Event], request: Any, context: Context) -> Iterable[Event]:
    yield from (*events, Completed())


@run_breach("events.started_first", "Started 2 times", only=research)
def starts_twice(events: Iterator[Event], request: Any, context: Context) -> Iterable[Event]:
    yield from (Started(), *events)


@run_breach("events.started_first", "Started after a ContentDelta", only=research)
def starts_late(events: Iterator[Event], request: Any, context: Context) -> Iterable[Event]:
    yield from (ContentDelta("early"), *events)


@run_breach("events.choices", "ContentDelta of choice 1", only=research)
def wrong_choice(events: Iterator[Event], request: Any, context: Context) -> Iterable[Event]:
    yield from (next(events), ContentDelta("x", choice=1), *events)


@run_breach("events.choices", "ContentDelta after choice 0 was finished", only=research)
def late_delta(events: Iterator[Event], request: Any, context: Context) -> Iterable[Event]:
    for event in events:
        yield event
        if isinstance(event, ChoiceFinished):
            yield ContentDelta("late")


@run_breach("events.choices_finished", "Completed while choice 0 is open", only=research)
def never_finishes(events: Iterator[Event], request: Any, context: Context) -> Iterable[Event]:
    return [event for event in events if not isinstance(event, ChoiceFinished)]


@run_breach("events.statuses", "StatusChanged('completed')", only=research)
def reports_its_end(events: Iterator[Event], request: Any, context: Context) -> Iterable[Event]:
    yield from (StatusChanged("completed"), *events)


@run_breach("events.channels", "a delta of reasoning", only=research)
def thinks_aloud(events: Iterator[Event], request: Any, context: Context) -> Iterable[Event]:
    yield from (next(events), ContentDelta("hm", channel="reasoning"), *events)


@run_breach("events.citations", "[1] is a and c", only=research)
def cites_twice(events: Iterator[Event], request: Any, context: Context) -> Iterable[Event]:
    yield next(events)
    for event in events:
        if isinstance(event, Completed):
            yield ResultFound("c", "C", "https://example.org/c", citation_index=1)
        yield event


def cites(number: int) -> Callable[..., Iterable[Event]]:
    """Return a change that adds a citation to the text of a choice."""

    def change(events: Iterator[Event], request: Any, context: Context) -> Iterable[Event]:
        for event in events:
            if isinstance(event, ChoiceFinished):
                yield ContentDelta(f" [{number}]", event.choice)
            yield event

    return change


@run_breach("events.citations_resolve", "[9] in the text and no such result", only=research)
def cites_nothing(events: Iterator[Event], request: Any, context: Context) -> Iterable[Event]:
    yield from cites(9)(events, request, context)


@run_breach("events.citations_resolve", "[1] in the text and no such result", only=research)
def finds_it_too_late(events: Iterator[Event], request: Any, context: Context) -> Iterable[Event]:
    yield from cites(1)(events, request, context)


@run_breach("events.transformed", "text in content alone", only=is_shaped)
def forgets_to_reshape(events: Iterator[Event], request: Any, context: Context) -> Iterable[Event]:
    return [event for event in events if getattr(event, "channel", "content") == "content"]


# --- what the caller asked for -------------------------------------------------------------------


@run_breach("sampling.n", "choices [0] finished", only=asks(n=3))
def one_is_enough(events: Iterator[Event], request: Any, context: Context) -> Iterable[Event]:
    return [event for event in events if not getattr(event, "choice", 0)]


@run_breach("sampling.n", "choice 1 has no text", only=asks(n=3))
def empty_choices(events: Iterator[Event], request: Any, context: Context) -> Iterable[Event]:
    return [e for e in events if not (isinstance(e, ContentDelta) and e.choice)]


@run_breach("sampling.best_of", "choices [0, 1] finished", only=asks(best_of=2))
def shows_the_losers(events: Iterator[Event], request: Any, context: Context) -> Iterable[Event]:
    *rest, last = events
    return [*rest, ContentDelta("worse", choice=1), ChoiceFinished(1), last]


def several(request: Request) -> bool:
    return isinstance(request, CompletionRequest) and len(request.prompts) > 1


@run_breach("sampling.prompts", "with two prompts and n=2: choice 1", only=several)
def crosswise(events: Iterator[Event], request: Any, context: Context) -> Iterable[Event]:
    swapped = {0: 0, 1: 2, 2: 1, 3: 3}
    for event in events:
        if isinstance(event, (ContentDelta, ChoiceFinished)):
            yield replace(event, choice=swapped[event.choice])
        else:
            yield event


@run_breach("sampling.prompts", "choices [0, 1] finished", only=several)
def first_prompt_only(events: Iterator[Event], request: Any, context: Context) -> Iterable[Event]:
    return [event for event in events if getattr(event, "choice", 0) < request.sampling.n]


def echoes(request: Request) -> bool:
    return isinstance(request, CompletionRequest) and request.echo and not several(request)


@run_breach("sampling.echo", "text that begins with the prompt", only=echoes)
def no_echo(events: Iterator[Event], request: Any, context: Context) -> Iterable[Event]:
    echo = next(event for event in events if isinstance(event, ContentDelta))
    return [event for event in events if event is not echo]


@run_breach("sampling.echo", "the prompt followed by the answer", only=echoes)
def only_echo(events: Iterator[Event], request: Any, context: Context) -> Iterable[Event]:
    deltas = 0
    for event in events:
        deltas += isinstance(event, ContentDelta)
        if not isinstance(event, ContentDelta) or deltas == 1:
            yield event


@breach("sampling.suffix", "with suffix: run() raised InvalidRequestError")
class NoSuffix(Good):
    def run(self, request: Request, context: Context) -> Iterator[Event]:
        if getattr(request, "suffix", None):
            raise InvalidRequestError("no suffix here", param="suffix")
        return super().run(request, context)


@breach("sampling.token_prompts", "with token ids: run() raised InvalidRequestError")
class NoTokens(Good):
    def run(self, request: Request, context: Context) -> Iterator[Event]:
        if isinstance(request, CompletionRequest) and not isinstance(request.prompts[0], str):
            raise InvalidRequestError("no ids here", param="prompt")
        return super().run(request, context)


class NoStop(Good):
    def run(self, request: Request, context: Context) -> Iterator[Event]:
        sampling = getattr(request, "sampling", Sampling())
        if not sampling.stop:
            return super().run(request, context)
        return self.stopped(replace(request, sampling=replace(sampling, stop=())), context)

    def stopped(self, request: Request, context: Context) -> Iterator[Event]:
        return super().run(request, context)


breach("sampling.stop", "text without it")(NoStop)


@breach("sampling.stop", "reason stop, since without it")
class StopsTooEarly(NoStop):
    def stopped(self, request: Request, context: Context) -> Iterator[Event]:
        deltas = 0
        for event in super().stopped(request, context):
            deltas += isinstance(event, ContentDelta)
            if deltas < 3 or not isinstance(event, ContentDelta):
                yield event


def stops(request: Request) -> bool:
    return bool(getattr(request, "sampling", Sampling()).stop)


@run_breach("sampling.stop", "reason length", only=stops)
def stop_is_length(events: Iterator[Event], request: Any, context: Context) -> Iterable[Event]:
    for event in events:
        yield replace(event, reason="length") if isinstance(event, ChoiceFinished) else event


@breach("sampling.max_tokens", "with max_tokens=1: reason stop")
class NoLimit(Good):
    def run(self, request: Request, context: Context) -> Iterator[Event]:
        if asks(max_tokens=1)(request):
            request = replace(request, sampling=Sampling(seed=7))
        return super().run(request, context)


@breach("sampling.max_tokens", "no more than a word")
class LimitsLoosely(Good):
    def run(self, request: Request, context: Context) -> Iterator[Event]:
        if asks(max_tokens=1)(request):
            request = replace(request, sampling=Sampling(seed=7, max_tokens=2))
        return super().run(request, context)


@run_breach("sampling.max_tokens", "2 tokens counted", only=asks(max_tokens=1))
def counts_too_many(events: Iterator[Event], request: Any, context: Context) -> Iterable[Event]:
    yield from (UsageCounted(completion_tokens=1), *events)


@run_breach("sampling.max_tokens", "with max_tokens=1: reason stop", only=asks(max_tokens=1))
def length_is_stop(events: Iterator[Event], request: Any, context: Context) -> Iterable[Event]:
    for event in events:
        yield replace(event, reason="stop") if isinstance(event, ChoiceFinished) else event


@breach("sampling.seed", "twice the same", "run.recovers")
class NeverTheSame(Good):
    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self.count = 0

    def run(self, request: Request, context: Context) -> Iterator[Event]:
        self.count += 1
        if asks(max_tokens=48, n=1)(request):
            yield UsageCounted(completion_tokens=self.count)
        yield from super().run(request, context)


@run_breach("sampling.logprobs", "tokens that join", only=asks(logprobs=2))
def other_tokens(events: Iterator[Event], request: Any, context: Context) -> Iterable[Event]:
    for event in events:
        if isinstance(event, ContentDelta):
            event = replace(event, text=event.text.upper())
        yield event


@run_breach("sampling.logprobs", "tokens that join", only=asks(logprobs=2))
def no_tokens(events: Iterator[Event], request: Any, context: Context) -> Iterable[Event]:
    for event in events:
        yield replace(event, logprobs=None) if isinstance(event, ContentDelta) else event


@run_breach("sampling.logprobs", "at most 3 alternatives", only=asks(logprobs=2))
def many_alternatives(events: Iterator[Event], request: Any, context: Context) -> Iterable[Event]:
    for event in events:
        if isinstance(event, ContentDelta) and event.logprobs:
            token = replace(event.logprobs[0], top=event.logprobs[0].top * 4)
            event = replace(event, logprobs=(token,))
        yield event


@run_breach("usage.counted", "no UsageCounted")
def counts_nothing(events: Iterator[Event], request: Any, context: Context) -> Iterable[Event]:
    return [event for event in events if not isinstance(event, UsageCounted)]


@run_breach("usage.counted", "0 prompt and")
def no_prompt_tokens(events: Iterator[Event], request: Any, context: Context) -> Iterable[Event]:
    for event in events:
        yield replace(event, prompt_tokens=0) if isinstance(event, UsageCounted) else event


@run_breach("usage.prompt_once", "with n=2", only=asks(n=2))
def counts_per_choice(events: Iterator[Event], request: Any, context: Context) -> Iterable[Event]:
    for event in events:
        if isinstance(event, UsageCounted) and event.prompt_tokens:
            yield event
        yield event


@run_breach("usage.sums", "92 prompt tokens for two prompts", only=several)
def reports_totals(events: Iterator[Event], request: Any, context: Context) -> Iterable[Event]:
    total = 0
    for event in events:
        if isinstance(event, UsageCounted):
            total += event.prompt_tokens
            event = replace(event, prompt_tokens=total)
        yield event


@run_breach("usage.sums", "at most 96", only=several)
def totals_with_each_word(
    events: Iterator[Event], request: Any, context: Context
) -> Iterable[Event]:
    words = 0
    for event in events:
        if isinstance(event, ContentDelta):
            words += 1
            yield UsageCounted(completion_tokens=words)
        yield event


@breach("concurrency.eight", "the line is busy")
class OneLine(Good):
    capabilities = replace(Good.capabilities, seed=False)

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self.line = threading.Lock()

    def run(self, request: Request, context: Context) -> Iterator[Event]:
        if not self.line.acquire(blocking=False):
            raise BackendUnavailableError("the line is busy")
        try:
            context.sleep(0.01)
            yield from super().run(request, context)
        finally:
            self.line.release()


# --- files ---------------------------------------------------------------------------------------


@breach("files.read", "nobody looked at the file")
class DoesNotRead(Good):
    def read(self, context: Context) -> None:
        pass


@breach("files.read", "in a chat run with a file: run() raised InvalidRequestError")
class RefusesFiles(Good):
    def read(self, context: Context) -> None:
        if context.files:
            raise InvalidRequestError("no files", param="messages")


@breach("files.untouched", "the file was changed")
class ScribblesInFiles(Good):
    def read(self, context: Context) -> None:
        for file in context.files.values():
            with file.path.open("a") as opened:
                opened.write("seen")


@breach("files.untouched", "the file is gone")
class TidiesUp(Good):
    def read(self, context: Context) -> None:
        for file in context.files.values():
            file.path.unlink()


@breach("files.untouched", "left the descriptor of")
class KeepsFilesOpen(Good):
    def open(self) -> None:
        self.opened: list[int] = []

    def read(self, context: Context) -> None:
        self.opened += [os.open(file.path, os.O_RDONLY) for file in context.files.values()]

    def close(self) -> None:
        for descriptor in self.opened:
            os.close(descriptor)


@breach("files.any_bytes", "UnicodeDecodeError")
class ExpectsText(Good):
    def read(self, context: Context) -> None:
        for file in context.files.values():
            file.path.read_text("utf-8")


# --- images and audio ----------------------------------------------------------------------------


class SplitsEachPart(Good):
    """Takes every part for text, but files."""

    def run(self, request: Request, context: Context) -> Iterator[Event]:
        for message in getattr(request, "messages", ()):
            for part in message.parts:
                if part.file_id is None:
                    part.text.split()
        yield from super().run(request, context)


@breach("media.taken", "in a chat with an image: run() raised AttributeError")
class ExpectsTextBesideImages(SplitsEachPart):
    pass


@breach("media.taken", "in a chat with audio: run() raised AttributeError")
class ExpectsTextBesideAudio(SplitsEachPart):
    capabilities = replace(Good.capabilities, images=False)


# --- durable -------------------------------------------------------------------------------------


@breach("durable.checkpoint_first", "a delta before any checkpoint")
class StoresTooLate(Good):
    def run(self, request: Request, context: Context) -> Iterator[Event]:
        late: list[Mapping[str, Any]] = []
        keep = context.checkpoint
        context.checkpoint = late.append  # type: ignore[method-assign]
        yield from super().run(request, context)
        for state in late:
            keep(state)


@breach("durable.state_json", "became")
class StoresTuples(Good):
    def run(self, request: Request, context: Context) -> Iterator[Event]:
        context.checkpoint({"pair": (1, 2)})
        yield from super().run(request, context)


@breach("durable.state_json", "not JSON serializable")
class StoresObjects(Good):
    def run(self, request: Request, context: Context) -> Iterator[Event]:
        context.checkpoint({"request": request})
        yield from super().run(request, context)


@breach("durable.resumes", "from checkpoint 1: ((")
class TellsTheRestOnly(Good):
    def run(self, request: Request, context: Context) -> Iterator[Event]:
        skip = 2 if context.restored is not None else 0
        for event in super().run(request, context):
            if isinstance(event, ContentDelta) and skip:
                skip -= 1
                continue
            yield event


@breach("durable.resumes", "run() raised KeyError: 'asked'")
class StumblesOverOldStates(Good):
    def run(self, request: Request, context: Context) -> Iterator[Event]:
        if context.restored is not None:
            raise KeyError("asked")
        return super().run(request, context)


@breach("durable.fenced", "after checkpoint() raised Cancelled")
class GoesOnAllTheSame(Good):
    def run(self, request: Request, context: Context) -> Iterator[Event]:
        keep = context.checkpoint

        def careless(state: Mapping[str, Any]) -> None:
            with contextlib.suppress(Exception):
                keep(state)

        context.checkpoint = careless  # type: ignore[method-assign]
        yield from super().run(request, context)


# --- behind the server ---------------------------------------------------------------------------


@breach("server.fold_is_stream", "sentence.!")
class RemembersByThread(Good):
    """In threads that serve one request only, as in the suite, nobody would notice."""

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self.memory = threading.local()

    def run(self, request: Request, context: Context) -> Iterator[Event]:
        earlier = getattr(self.memory, "questions", 0)
        self.memory.questions = earlier + 1
        for event in super().run(request, context):
            if isinstance(event, ChoiceFinished):
                yield from [ContentDelta("!", event.choice)] * earlier
            yield event


# --- the tests -----------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def release_threads() -> Iterator[None]:
    before = set(threading.enumerate())
    RELEASE.clear()
    yield
    RELEASE.set()
    for thread in set(threading.enumerate()) - before:
        thread.join(60)


def failed_rules(report: Report) -> set[str]:
    return {result.rule for result in report.results if result.outcome == "fail"}


def test_a_good_backend_passes_every_rule_that_can_be_tried() -> None:
    report = check_backend(Good)
    assert not report.failed, str(report)
    assert {r.rule: r.detail for r in report.results if r.outcome == "skip"} == {
        "run.refuses": "it takes everything",
        "run.immediate": "it is not immediate",
    }


class WaitsAsItSaid(Good):
    capabilities = replace(Good.capabilities, immediate=True)

    def run(self, request: Request, context: Context) -> Iterator[Told]:
        yield []
        context.sleep(0.001)
        yield from super().run(request, context)


def test_an_immediate_backend_may_wait_once_it_has_said_so() -> None:
    report = check_backend(WaitsAsItSaid)
    assert not report.failed, str(report)
    assert "run.immediate" in {r.rule for r in report.results if r.outcome == "pass"}


@pytest.mark.parametrize("broken", BREACHES, ids=lambda b: f"{b.rule}-{b.backend_class.__name__}")
def test_a_breach_fails_its_rule_and_no_other(broken: Breach) -> None:
    report = check_backend(broken.backend_class, broken.options, call_timeout_s=20)
    assert failed_rules(report) == {broken.rule, *broken.besides}, str(report)
    detail = next(result.detail for result in report.results if result.rule == broken.rule)
    assert broken.says in detail


def test_there_is_a_breach_for_every_rule() -> None:
    assert {broken.rule for broken in BREACHES} == {rule.id for rule in RULES}
