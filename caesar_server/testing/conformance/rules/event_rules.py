"""Rules about the events of one run, tried on a short run of each accepted kind of request.

They are those of :mod:`caesar_server.contract.events`, each on its own.  The server's own check of
a run stops at the first that is broken.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import get_args

from caesar_server.contract import (
    ChoiceFinished,
    Completed,
    ContentDelta,
    Event,
    Failed,
    ResultFound,
    Started,
    StatusChanged,
)
from caesar_server.contract.events import (
    EVENT_TYPES,
    RunningStatus,
    event_from_json,
    event_to_json,
)
from caesar_server.jobs.running.values import misfit_of
from caesar_server.testing.conformance.answer import Run
from caesar_server.testing.conformance.rule import Fail, Outcome, Pass, rule
from caesar_server.testing.conformance.subject import Subject

_CLASSES = frozenset(EVENT_TYPES.values())


def each_run(subject: Subject, find: Callable[[Run], Fail | None]) -> Outcome:
    """Return what ``find`` first finds wrong with a run."""
    for run in subject.plain():
        if (fail := find(run)) is not None:
            return Fail(f"in a {run.request.type} run: {fail.seen}", fail.expected)
    return Pass()


@rule(
    "events.types",
    "The server cannot store or send anything else; the run is answered with a 500.",
    needs=("life.opens",),
)
def types(subject: Subject) -> Outcome:
    """Everything that run() yields is an event of the contract."""

    def find(run: Run) -> Fail | None:
        for event in run.events:
            if type(event) not in _CLASSES:
                return Fail(repr(event), _event_instead_of(event))
        return None

    return each_run(subject, find)


def _event_instead_of(value: object) -> str:
    """Return what to yield in place of ``value``, which is no event."""
    if isinstance(value, type) and value in _CLASSES:
        return f"an instance, {value.__name__}(...), not the class"
    if isinstance(value, get_args(Event)):
        return "an event of caesar_server.contract, not of a class derived from one"
    if isinstance(value, str):
        return "an event of caesar_server.contract, such as ContentDelta(text)"
    if isinstance(value, (list, tuple)):
        return "a list of events by itself; what it holds may be no list again"
    return "an event of caesar_server.contract"


@rule(
    "events.values",
    "Typed clients fail on a float where an integer stands, or on a citation with the number 0.",
    needs=("events.types",),
)
def values(subject: Subject) -> Outcome:
    """The fields of events have the types and ranges that the contract states."""

    def find(run: Run) -> Fail | None:
        for event in run.events:
            if problem := _problem(event):
                return Fail(f"{event!r}", problem)
        return None

    return each_run(subject, find)


def _problem(event: Event) -> str:
    """Return what the fields of an event should hold instead, or nothing."""
    if (misfit := misfit_of(event)) is not None:
        return f"{misfit.field}: {misfit.expected}"
    if isinstance(event, ContentDelta) and any(_above_certainty(event)):
        return "log probabilities of 0 or less"
    return ""


def _above_certainty(event: ContentDelta) -> Iterator[bool]:
    """Yield of each log probability of a delta whether it is above that of certainty."""
    for token in event.logprobs or ():
        yield token.logprob is not None and token.logprob > 0
        yield from (other.logprob > 0 for other in token.top)


@rule(
    "events.json",
    "A job may be stored, sent to another process and replayed; what changes on the way is lost.",
    needs=("events.values",),
)
def json_round_trip(subject: Subject) -> Outcome:
    """Events come back equal from JSON text."""

    def find(run: Run) -> Fail | None:
        for event in run.events:
            try:
                text = json.dumps(event_to_json(event), allow_nan=False)
                back = event_from_json(json.loads(text))
            except (TypeError, ValueError) as error:
                return Fail(f"{event!r}: {error}", "fields that JSON can carry")
            if back != event:
                return Fail(f"{event!r} became {back!r}", "the same event")
        return None

    return each_run(subject, find)


@rule(
    "events.whole_characters",
    "Half a character (a lone surrogate) has no UTF-8 form and reaches the reader as garbage.",
    needs=("events.values",),
)
def whole_characters(subject: Subject) -> Outcome:
    """A delta holds whole characters only."""

    def find(run: Run) -> Fail | None:
        for event in run.events:
            if isinstance(event, ContentDelta) and not _has_utf8(event.text):
                cure = "text without lone surrogates; see IncrementalUtf8 and WholeCharacters"
                return Fail(repr(event.text), cure)
        return None

    return each_run(subject, find)


def _has_utf8(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


@rule(
    "events.terminal",
    "Without it a client waits for ever; after it nobody listens.",
    needs=("events.types",),
)
def terminal(subject: Subject) -> Outcome:
    """A run ends with exactly one terminal event, Completed or Failed, or with an exception."""

    def find(run: Run) -> Fail | None:
        at = [i for i, event in enumerate(run.events) if isinstance(event, (Completed, Failed))]
        if not at and run.raised is None:
            return Fail("no terminal event", "Completed() as the last event")
        if at and at[0] != len(run.events) - 1:
            after = type(run.events[at[0] + 1]).__name__
            return Fail(f"{after} after {type(run.events[at[0]]).__name__}", "nothing after it")
        return None

    return each_run(subject, find)


@rule(
    "events.started_first",
    "What it says goes into the response's headers, which leave before the text.",
    needs=("events.types",),
)
def started_first(subject: Subject) -> Outcome:
    """Started comes at most once, and before the first delta."""

    def find(run: Run) -> Fail | None:
        at = [i for i, event in enumerate(run.events) if isinstance(event, Started)]
        deltas = [i for i, event in enumerate(run.events) if isinstance(event, ContentDelta)]
        if len(at) > 1:
            return Fail(f"Started {len(at)} times", "at most once")
        if at and deltas and deltas[0] < at[0]:
            return Fail("Started after a ContentDelta", "Started before it")
        return None

    return each_run(subject, find)


@rule(
    "events.choices",
    "Clients join text by this number; a wrong one is lost or ends up in another answer.",
    needs=("events.values",),
)
def choices(subject: Subject) -> Outcome:
    """Deltas and ChoiceFinished name a choice of the request that is not finished yet."""
    return each_run(subject, lambda run: _choice_problem(run.events, run.request.choices))


def _choice_problem(events: tuple[Event, ...], count: int) -> Fail | None:
    finished: set[int] = set()
    for event in events:
        if not isinstance(event, (ContentDelta, ChoiceFinished)):
            continue
        name = type(event).__name__
        if not 0 <= event.choice < count:
            return Fail(f"{name} of choice {event.choice}", f"choices 0 to {count - 1}")
        if event.choice in finished:
            return Fail(f"{name} after choice {event.choice} was finished", "nothing more of it")
        if isinstance(event, ChoiceFinished):
            finished.add(event.choice)
    return None


@rule(
    "events.choices_finished",
    "It carries the finish reason; clients treat a choice without one as cut off.",
    needs=("events.choices",),
)
def choices_finished(subject: Subject) -> Outcome:
    """Every choice has a ChoiceFinished before Completed."""

    def find(run: Run) -> Fail | None:
        finished: set[int] = set()
        for event in run.events:
            if isinstance(event, ChoiceFinished):
                finished.add(event.choice)
            if isinstance(event, Completed):
                missing = sorted(set(range(run.request.choices)) - finished)
                if missing:
                    return Fail(
                        f"Completed while choice {missing[0]} is open",
                        f"ChoiceFinished(choice={missing[0]}) before it",
                    )
        return None

    return each_run(subject, find)


@rule(
    "events.statuses",
    "queued, completed and failed follow from how the server runs the job; two would disagree.",
    needs=("events.values",),
)
def statuses(subject: Subject) -> Outcome:
    """StatusChanged reports a phase of the work, not how the job stands."""

    def find(run: Run) -> Fail | None:
        for event in run.events:
            known = get_args(RunningStatus)
            if isinstance(event, StatusChanged) and event.status not in known:
                return Fail(f"StatusChanged({event.status!r})", f"one of {', '.join(known)}")
        return None

    return each_run(subject, find)


@rule(
    "events.channels",
    "The server picks the channel to send before the first delta; others would not be seen.",
    needs=("events.values",),
)
def channels(subject: Subject) -> Outcome:
    """Deltas use only the channels that the capabilities declare."""
    declared = subject.capabilities.channels

    def find(run: Run) -> Fail | None:
        for event in run.events:
            if isinstance(event, ContentDelta) and event.channel not in declared:
                return Fail(f"a delta of {event.channel}", f"one of {', '.join(sorted(declared))}")
        return None

    return each_run(subject, find)


@rule(
    "events.citations",
    "[n] in the text must lead to one source.",
    needs=("events.values",),
)
def citations(subject: Subject) -> Outcome:
    """Two results do not have the same citation_index."""

    def find(run: Run) -> Fail | None:
        # A later event with the same id replaces the earlier one.
        latest = {event.id: event for event in run.events if isinstance(event, ResultFound)}
        holder: dict[int, str] = {}
        for result in latest.values():
            if result.citation_index is None:
                continue
            other = holder.setdefault(result.citation_index, result.id)
            if other != result.id:
                return Fail(
                    f"[{result.citation_index}] is {other} and {result.id}", "one result a number"
                )
        return None

    return each_run(subject, find)
