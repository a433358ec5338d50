"""Rules about going on elsewhere: what a durable backend stores, and what it makes of it."""

from __future__ import annotations

from collections.abc import Iterator

from caesar_server.contract import ContentDelta
from caesar_server.testing.conformance.answer import Checkpoint, Run
from caesar_server.testing.conformance.driver import Given
from caesar_server.testing.conformance.rule import Fail, Inapplicable, Outcome, Pass, rule
from caesar_server.testing.conformance.subject import Subject


def _durable_runs(subject: Subject) -> list[Run]:
    """Return the plain runs of a backend that is durable."""
    if not subject.capabilities.durable:
        raise Inapplicable("it does not declare durable")
    return subject.plain()


def _first_delta(run: Run) -> int | None:
    """Return how many events came before the first delta, or None if there is none."""
    return next((i for i, e in enumerate(run.events) if isinstance(e, ContentDelta)), None)


@rule(
    "durable.checkpoint_first",
    "Text that was sent cannot be taken back: whoever goes on must be able to repeat it.",
    needs=("run.accepts",),
)
def checkpoint_first(subject: Subject) -> Outcome:
    """A checkpoint comes before the first delta."""
    for run in _durable_runs(subject):
        first = _first_delta(run)
        if first is None:
            continue
        if not any(one.after_events <= first for one in run.checkpoints):
            return Fail(
                f"in a {run.request.type} run: a delta before any checkpoint",
                "context.checkpoint() with the whole text, then the deltas",
            )
    return Pass()


@rule(
    "durable.state_json",
    "The state is stored as JSON and read by another process, perhaps on another machine.",
    needs=("run.accepts",),
)
def state_json(subject: Subject) -> Outcome:
    """The state of a checkpoint comes back equal from JSON."""
    for run in _durable_runs(subject):
        for one in run.checkpoints:
            if one.problem:
                return Fail(f"in a {run.request.type} run: {one.problem}", "JSON values alone")
    return Pass()


@rule(
    "durable.resumes",
    "The process may end at any moment; the reader must not notice, whichever moment it was.",
    needs=("events.values", "durable.checkpoint_first", "durable.state_json", "life.reopens"),
)
def resumes(subject: Subject) -> Outcome:
    """From each of its checkpoints a run goes on in another instance, to the same text."""
    for run in _durable_runs(subject):
        for position, (one, told) in enumerate(_resume_points(run), 1):
            where = f"in a {run.request.type} run, from checkpoint {position}"
            if fail := _resume_problem(subject, run, one, told=told):
                return Fail(f"{where}: {fail.seen}", fail.expected)
    return Pass()


def _resume_points(run: Run) -> Iterator[tuple[Checkpoint, bool]]:
    """Yield each checkpoint, and whether a delta was told after it and before the next one."""
    ends = [*(one.after_events for one in run.checkpoints[1:]), len(run.events)]
    for one, end in zip(run.checkpoints, ends, strict=True):
        yield one, any(isinstance(event, ContentDelta) for event in run.events[:end])


def _resume_problem(
    subject: Subject, run: Run, checkpoint: Checkpoint, *, told: bool
) -> Fail | None:
    backend = subject.open()
    try:
        again = subject.ask(run.request, backend=backend, given=Given(restored=checkpoint.state))
    finally:
        subject.close(backend)
    if not again.completed:
        return Fail(again.end, "a run that completes")
    # Before any text was told, chance may still lead to another one.
    fixed = told or subject.capabilities.seed
    before, after = run.answer, again.answer
    if fixed and (before.texts, before.reasons) != (after.texts, after.reasons):
        return Fail(f"{after.texts}, {after.reasons}", f"{before.texts}, {before.reasons}")
    return None


@rule(
    "durable.fenced",
    "Another process has the job then; two that write to it, or pay for it, are one too many.",
    needs=("durable.checkpoint_first",),
)
def fenced(subject: Subject) -> Outcome:
    """A run whose checkpoint is refused ends without another event."""
    for plain in _durable_runs(subject):
        if not plain.checkpoints:
            continue
        run = subject.ask(plain.request, given=Given(refuse_checkpoints=True))
        later = run.events[run.refused_after or 0 :]
        if later:
            return Fail(
                f"in a {plain.request.type} run: {type(later[0]).__name__} after checkpoint() "
                "raised Cancelled",
                "let Cancelled pass through",
            )
    return Pass()
