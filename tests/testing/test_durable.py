"""The durable backend of the tests: what it stores, and that it goes on from there."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import pytest

from caesar_server.contract import (
    BackendUnavailableError,
    Completed,
    CompletionRequest,
    ContentDelta,
    Event,
    Failed,
    ResearchRequest,
)
from caesar_server.testing import (
    Gate,
    check_backend,
    collect_events,
    durable_backend,
    make_context,
)

REQUEST = ResearchRequest(query="Who was Caesar?")
State = Mapping[str, Any]


def text(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, ContentDelta))


def run(cls: type, restored: State | None = None) -> tuple[list[Event], list[State]]:
    states: list[State] = []
    context = make_context(restored=restored, checkpoints=states)
    return collect_events(cls(), REQUEST, context), states


def test_it_keeps_the_contract() -> None:
    report = check_backend(durable_backend())
    assert not report.failed, str(report)
    skipped = {result.rule for result in report.results if result.outcome == "skip"}
    assert not {rule for rule in skipped if rule.startswith("durable.")}


def test_two_runs_find_different_things() -> None:
    cls = durable_backend()
    assert text(run(cls)[0]) != text(run(cls)[0])


def test_it_goes_on_from_each_checkpoint_and_repeats_no_stage() -> None:
    cls = durable_backend(["a", "b"])
    first, states = run(cls)
    assert [sorted(state) for state in states] == [["found"], ["found"], ["found", "text"]]
    done = len(cls.journal.stages)
    for number, state in enumerate(states, 1):
        again, _ = run(cls, state)
        assert isinstance(again[-1], Completed)
        assert (text(again) == text(first)) == (number >= 2)  # all is found by then
    assert cls.journal.stages[done:] == [(2, "b")]


def test_a_stage_can_fail_and_is_done_by_the_next_attempt() -> None:
    broken = durable_backend(["a", "b"], before_stage={"b": BackendUnavailableError("gone")})
    events, states = run(broken)
    assert isinstance(events[-1], Failed)
    assert broken.journal.stages == [(1, "a")]
    whole = durable_backend(["a", "b"])
    events, _ = run(whole, states[-1])
    assert states[-1]["found"][0] in text(events)
    assert whole.journal.stages == [(2, "b")]


def test_it_can_be_held_up_between_deltas() -> None:
    gate = Gate()
    cls = durable_backend(before_delta={2: gate})
    got: list[Event] = []
    thread = threading.Thread(target=lambda: got.extend(run(cls)[0]))
    thread.start()
    gate.wait_until_reached()
    gate.open()
    thread.join(60)
    assert isinstance(got[-1], Completed)


@pytest.mark.parametrize("prompts", [((1, 2),), ("a", "b")])
def test_it_refuses_what_it_does_not_declare(prompts: Any) -> None:
    events = collect_events(durable_backend()(), CompletionRequest(prompts=prompts))
    assert isinstance(events[-1], Failed)
    assert events[-1].error.status == 400
