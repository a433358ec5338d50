"""Waiting for exchanges, and what is said when they do not come."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from caesar_server.mock.journal import EntryFilter, Journal, NotReachedError
from caesar_server.mock.model.call import Call
from caesar_server.mock.model.reply import Reply
from caesar_server.mock.model.rule import Condition, Decision, Rule

MakeCall = Callable[..., Call]
PromptIs = Callable[[str], Condition]

#: More than any of these tests needs.
PATIENTLY_S = 60.0


class Waiter:
    """Waits in a thread of its own."""

    def __init__(self, wait: Callable[[], object]) -> None:
        self._result: list[object] = []
        self._thread = threading.Thread(target=lambda: self._result.append(wait()))
        self._thread.start()

    def result(self) -> object:
        self._thread.join(PATIENTLY_S)
        return self._result[0]


def test_what_is_there_is_not_waited_for(journal: Journal, make_call: MakeCall) -> None:
    journal.open(make_call())
    assert len(journal.wait_for(1, 0)) == 1
    assert journal.wait_for(0, 0) == journal.entries()


def test_it_comes(journal: Journal, make_call: MakeCall, prompt_is: PromptIs) -> None:
    wanted = EntryFilter(conditions=(prompt_is("b"),))
    waiter = Waiter(lambda: [one.id for one in journal.wait_for(2, PATIENTLY_S, wanted)])
    for prompt in "abab":
        journal.open(make_call(prompt))
    assert waiter.result() in (["c2", "c4"],)


def test_the_end_can_be_waited_for(journal: Journal, make_call: MakeCall) -> None:
    recording = journal.open(make_call())
    waiter = Waiter(lambda: journal.wait_for(1, PATIENTLY_S, ended=True)[0].ended)
    recording.frames([b"x"])
    recording.end("client_left")
    assert waiter.result() == "client_left"


def test_an_outcome_can_be_waited_for(journal: Journal, make_call: MakeCall) -> None:
    recording = journal.open(make_call())
    wanted = EntryFilter(status=503)
    waiter = Waiter(lambda: len(journal.wait_for(1, PATIENTLY_S, wanted)))
    recording.answered(503)
    assert waiter.result() == 1


def test_a_reset_does_not_strand_who_waits(journal: Journal, make_call: MakeCall) -> None:
    waiter = Waiter(lambda: [one.id for one in journal.wait_for(2, PATIENTLY_S)])
    journal.open(make_call())
    journal.reset()
    for _ in range(2):
        journal.open(make_call())
    assert waiter.result() in (["c2", "c3"],)


def test_a_condition_is_asked_once_for_each_call(journal: Journal, make_call: MakeCall) -> None:
    asked: list[str] = []

    def holds(call: Call) -> bool:
        asked.append(call.id)
        return False

    condition = Condition("predicate", "never", holds, lambda _: "")
    recording = journal.open(make_call())
    with pytest.raises(NotReachedError):
        journal.wait_for(1, 0, EntryFilter(conditions=(condition,)))
    assert asked[:1] == ["c1"]
    before = len(asked)
    waiter = Waiter(lambda: _outcome(journal, EntryFilter(conditions=(condition,))))
    for _ in range(5):
        recording.faulted("delay")
    assert waiter.result() == 0
    # once while waiting, and then for the text of the error
    assert len(asked) - before <= 1 + (before - 1)


def _outcome(journal: Journal, wanted: EntryFilter) -> int:
    try:
        return len(journal.wait_for(1, 0.05, wanted))
    except NotReachedError as error:
        return len(error.found)


def test_the_error_has_what_came(
    journal: Journal, make_call: MakeCall, prompt_is: PromptIs
) -> None:
    journal.open(make_call("a"))
    journal.open(make_call("b"))
    with pytest.raises(TimeoutError) as caught:
        journal.wait_for(2, 0.01, EntryFilter(conditions=(prompt_is("a"),)))
    assert isinstance(caught.value, NotReachedError)
    assert [entry.id for entry in caught.value.found] == ["c1"]


def test_the_text_shows_what_matched_and_how_the_others_differ(
    journal: Journal, make_call: MakeCall, prompt_is: PromptIs
) -> None:
    rule = Rule(id="r1", name="greeting", replies=(Reply(text="Hi"),))
    one = journal.open(make_call("Hello"))
    one.decided(Decision(rule=rule))
    one.answered(200)
    one.end("completed")
    two = journal.open(make_call("Hallo", attempt=2))
    two.answered(429)
    two.end("completed")
    journal.open(make_call("Salut"))
    wanted = EntryFilter(conditions=(prompt_is("Hello"),), status=200)
    assert journal.explain(wanted, "exactly 2", 1) == (
        "expected exactly 2 of: prompt 'Hello', status 200\n"
        "     got 1\n"
        "\n"
        "these match:\n"
        "  #1 POST /compat/completions 'Hello' -> 200, completed by rule 'greeting'\n"
        "\n"
        "the nearest of the others:\n"
        "  #3 POST /compat/completions 'Salut' -> no answer, open\n"
        "      - prompt: wanted 'Hello', got 'Salut'\n"
        "      - status: wanted 200, got no answer\n"
        "  #2 POST /compat/completions 'Hallo' attempt 2 -> 429, completed\n"
        "      - prompt: wanted 'Hello', got 'Hallo'\n"
        "      - status: wanted 200, got 429"
    )


def test_the_nearest_come_first_and_not_all(
    journal: Journal, make_call: MakeCall, prompt_is: PromptIs
) -> None:
    near = journal.open(make_call("Hello"))
    near.answered(500)
    for _ in range(9):
        journal.open(make_call("Salut"))
    text = journal.explain(
        EntryFilter(conditions=(prompt_is("Hello"),), status=200), "at least 1", 0
    )
    section = text.partition("the nearest of the others:\n")[2].splitlines()
    assert section[0].startswith("  #1 ")
    assert section[2].startswith("  #10 ")
    assert section[-1] == "    and 5 more"


def test_an_empty_journal_says_so(journal: Journal) -> None:
    assert journal.explain(EntryFilter(), "at least 1", 0).endswith("no request has come")
    assert "of: any request\n" in journal.explain(EntryFilter(), "at least 1", 0)
