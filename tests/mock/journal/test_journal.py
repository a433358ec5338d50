"""How exchanges are kept, found, grouped and forgotten."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

import pytest

from caesar_server.mock.journal import EntryFilter, Journal
from caesar_server.mock.model.call import Call
from caesar_server.mock.model.reply import Reply
from caesar_server.mock.model.rule import Condition, Decision, Rule

MakeCall = Callable[..., Call]
MakeJournal = Callable[..., Journal]


def test_the_oldest_make_room(make_journal: MakeJournal, make_call: MakeCall) -> None:
    journal = make_journal(entries=3)
    for _ in range(5):
        journal.open(make_call()).end("completed")
    assert [entry.id for entry in journal.entries()] == ["c3", "c4", "c5"]
    totals = journal.totals()
    assert (totals.requests, totals.dropped, totals.ended) == (5, 2, {"completed": 5})


def test_bytes_are_bounded_however_they_come(
    make_journal: MakeJournal, make_call: MakeCall
) -> None:
    journal = make_journal(total_bytes=100_000, frame_bytes=50_000)
    first, second = journal.open(make_call()), journal.open(make_call())
    second.frames([b"x" * 40_000])
    assert len(journal.entries()) == 2
    journal.open(make_call()).frames([b"x" * 49_000])
    assert [entry.id for entry in journal.entries()] == ["c2", "c3"]
    first.frames([b"y" * 40_000])  # it was let go: no one pays for it
    first.end("completed")
    assert [entry.id for entry in journal.entries()] == ["c2", "c3"]
    assert journal.totals().ended == {"completed": 1}


def test_the_newest_is_kept_however_large(make_journal: MakeJournal, make_call: MakeCall) -> None:
    journal = make_journal(total_bytes=10_000)
    journal.open(make_call())
    journal.open(make_call(raw_body=b"x" * 1_000_000))
    assert [entry.id for entry in journal.entries()] == ["c2"]


def test_a_reset_forgets_what_goes_on(journal: Journal, make_call: MakeCall) -> None:
    old = journal.open(make_call())
    journal.reset()
    old.faulted("delay")
    old.frames([b"x"])
    old.end("completed")
    assert journal.entries() == ()
    assert journal.totals().requests == 0
    assert journal.totals().ended == {}
    journal.open(make_call())
    assert journal.entries()[0].number == 1


def test_an_entry_is_found_by_its_id(journal: Journal, make_call: MakeCall) -> None:
    journal.open(make_call("a"))
    journal.open(make_call("b"))
    found = journal.entry("c2")
    assert found is not None
    assert found.call.prompt == "b"
    assert journal.entry("c9") is None


def test_filters(
    journal: Journal, make_call: MakeCall, prompt_is: Callable[[str], Condition]
) -> None:
    rule = Rule(id="r1", name="greeting", replies=(Reply(text="Hi"),))
    one = journal.open(make_call("a"))
    one.decided(Decision(rule=rule))
    one.answered(200)
    one.end("completed")
    two = journal.open(make_call("b"))
    two.faulted("status", Rule(id="r2", name="busy"))
    two.answered(429)
    two.end("fault:status")
    journal.open(make_call("a"))

    def ids(wanted: EntryFilter) -> list[str]:
        return [entry.id for entry in journal.entries(wanted)]

    assert ids(EntryFilter(conditions=(prompt_is("a"),))) == ["c1", "c3"]
    assert ids(EntryFilter(conditions=(prompt_is("a"),), status=200)) == ["c1"]
    assert ids(EntryFilter(rule="r1")) == ids(EntryFilter(rule="greeting")) == ["c1"]
    assert ids(EntryFilter(rule="r2")) == ids(EntryFilter(rule="busy")) == ["c2"]
    assert ids(EntryFilter(fault="status")) == ["c2"]
    assert ids(EntryFilter(status=429)) == ["c2"]
    assert ids(EntryFilter(ended="completed")) == ["c1"]
    assert ids(EntryFilter(ended="fault")) == ids(EntryFilter(ended="fault:status")) == ["c2"]
    assert ids(EntryFilter(ended="open")) == ["c3"]
    assert ids(EntryFilter(group="c3")) == ["c3"]
    assert ids(EntryFilter()) == ["c1", "c2", "c3"]


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        ({"fault": "rest"}, "fault: unknown value 'rest'; did you mean 'reset'?"),
        ({"fault": 503}, "fault: unknown value 503; known: status, delay, hang, "),
        ({"ended": "complete"}, "ended: unknown value 'complete'; did you mean 'completed'?"),
        ({"ended": "fault:x"}, "ended: unknown value 'fault:x'; did you mean 'fault"),
        ({"status": "200"}, "status: expected a whole number from 100 to 599, got '200'"),
        ({"status": 20}, "status: expected a whole number from 100 to 599, got 20"),
        ({"status": True}, "status: expected a whole number from 100 to 599, got True"),
        ({"rule": 1}, "rule: expected a text, got 1"),
        ({"group": 1}, "group: expected a text, got 1"),
    ],
)
def test_what_no_entry_has_is_refused(wanted: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        EntryFilter(**wanted)


def failed(journal: Journal, call: Call) -> None:
    recording = journal.open(call)
    recording.answered(500)
    recording.end("completed")


def groups(journal: Journal) -> list[list[str]]:
    return [[entry.id for entry in group] for group in journal.attempts()]


def test_retries_belong_to_their_first_attempt(journal: Journal, make_call: MakeCall) -> None:
    failed(journal, make_call("a"))
    failed(journal, make_call("b"))
    failed(journal, make_call("a", attempt=2))
    failed(journal, make_call("b", attempt=2))
    failed(journal, make_call("a", attempt=3))
    assert groups(journal) == [["c1", "c3", "c5"], ["c2", "c4"]]


def test_the_same_call_made_anew_is_another_one(journal: Journal, make_call: MakeCall) -> None:
    failed(journal, make_call())
    failed(journal, make_call(attempt=2))
    failed(journal, make_call())
    failed(journal, make_call(attempt=2))
    assert groups(journal) == [["c1", "c2"], ["c3", "c4"]]


def test_equal_calls_at_once_each_have_their_retry(journal: Journal, make_call: MakeCall) -> None:
    for attempt in (1, 1, 2, 2):
        failed(journal, make_call(attempt=attempt))
    assert sorted(map(len, groups(journal))) == [2, 2]


@pytest.mark.parametrize(
    "other",
    [
        {"path": "/compat/chat/completions"},
        {"method": "PUT"},
        {"raw_body": b"{}"},
        {"api_key": "k2"},
        {"attempt": 3},
    ],
)
def test_what_differs_is_no_retry(
    journal: Journal, make_call: MakeCall, other: dict[str, object]
) -> None:
    failed(journal, make_call())
    failed(journal, make_call(**{"attempt": 2, **other}))
    assert groups(journal) == [["c1"], ["c2"]]


def test_nobody_retries_what_was_answered(journal: Journal, make_call: MakeCall) -> None:
    recording = journal.open(make_call())
    recording.answered(200)
    recording.end("completed")
    journal.open(make_call(attempt=2))
    assert groups(journal) == [["c1"], ["c2"]]


def test_conditions_may_use_the_journal(journal: Journal, make_call: MakeCall) -> None:
    # from another thread, which would wait for ever if the lock were held
    journal.open(make_call())
    seen: list[int] = []

    def look(_: Call) -> bool:
        thread = threading.Thread(target=lambda: seen.append(len(journal.entries())))
        thread.start()
        thread.join(60)
        return True

    condition = Condition("predicate", "look", look, lambda _: "")
    assert len(journal.entries(EntryFilter(conditions=(condition,)))) == 1
    assert seen == [1]


def test_every_write_of_many_threads_is_counted(
    make_journal: MakeJournal, make_call: MakeCall
) -> None:
    journal = make_journal(entries=50)
    calls = [make_call() for _ in range(400)]

    def work(mine: list[Call]) -> None:
        for call in mine:
            recording = journal.open(call)
            recording.frames([b"x"])
            recording.faulted("delay")
            recording.end("completed")

    threads = [threading.Thread(target=work, args=(calls[i::8],)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    totals = journal.totals()
    assert (totals.requests, totals.dropped) == (400, 350)
    assert totals.faults == {"delay": 400}
    assert totals.ended == {"completed": 400}
    assert len(journal.entries()) == 50


def test_a_call_of_several_prompts_is_found_by_each(
    journal: Journal, make_call: MakeCall, prompt_is: Callable[[str], Condition]
) -> None:
    journal.open(make_call("one", prompts=("one", "two")))
    for prompt, found in (("one", 1), ("two", 1), ("three", 0)):
        wanted = EntryFilter(conditions=(prompt_is(prompt),))
        assert len(journal.entries(wanted)) == found
