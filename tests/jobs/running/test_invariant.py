"""The rules for the events of one run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from caesar_server.contract import (
    ChoiceFinished,
    Completed,
    ContentDelta,
    ErrorInfo,
    Failed,
    LoopFinished,
    ProgressNoted,
    RequestLogged,
    ResultFound,
    SourceStored,
    Started,
    StatusChanged,
    UsageCounted,
)
from caesar_server.jobs.running.invariant import ContractBreach, Invariant

FAILED = Failed(ErrorInfo("no", "code"))


def check(events: Sequence[Any], choices: int = 1) -> None:
    invariant = Invariant(choices)
    for event in events:
        invariant.check(event)


@pytest.mark.parametrize(
    ("choices", "events"),
    [
        (1, [ContentDelta("a"), ContentDelta("b"), ChoiceFinished(), Completed()]),
        (1, [ChoiceFinished(), Completed()]),
        (0, [Completed({"questions": []})]),
        (1, [FAILED]),
        (2, [ContentDelta("a", 1), FAILED]),
        (
            2,
            [
                ContentDelta("a", 1),
                ContentDelta("b", 0),
                ChoiceFinished(1),
                ContentDelta("b", 0),
                ChoiceFinished(0),
                Completed(),
            ],
        ),
        (
            1,
            [
                ProgressNoted("hello"),
                StatusChanged("searching"),
                Started(),
                StatusChanged("searching"),
                StatusChanged("researching"),
                StatusChanged("analyzing"),
                StatusChanged("summarizing"),
                ResultFound("r", "t", "u"),
                ResultFound("r", "t", "u", citation_index=1),
                SourceStored("r", raw=""),
                RequestLogged("u"),
                LoopFinished(1),
                ContentDelta("a", channel="reasoning"),
                ChoiceFinished(),
                UsageCounted(1, 2),
                UsageCounted(1, 2),
                Completed(),
            ],
        ),
    ],
)
def test_what_keeps_the_rules_passes(choices, events):
    check(events, choices)


class OwnEvent(ContentDelta):
    pass


BREACHES = [
    # choices, what came before, what must not come then, what was wrong, how to keep the rule
    (1, [], "text", "'text', which is no event", "yield instances of the classes in"),
    (1, [], ContentDelta, "which is no event", "yield instances of the classes in"),
    (1, [], OwnEvent("a"), "which is no event", "yield instances of the classes in"),
    (0, [Completed()], ProgressNoted("x"), "after the terminal event", "end run"),
    (0, [Completed()], Completed(), "Completed came after the terminal event", "end run"),
    (1, [FAILED], FAILED, "Failed came after the terminal event", "end run"),
    (1, [FAILED], ContentDelta("a"), "ContentDelta came after the terminal event", "end run"),
    (1, [Started()], Started(), "Started came twice", "yield it once"),
    (1, [ContentDelta("a")], Started(), "Started came after the first", "yield it before"),
    (1, [ChoiceFinished()], ContentDelta("a"), "ContentDelta of choice 0", "after the last delta"),
    (1, [ChoiceFinished()], ChoiceFinished(), "ChoiceFinished of choice 0", "ChoiceFinished once"),
    (2, [], ContentDelta("a", 2), "names choice 2", "number the request's choices 0 to 1"),
    (2, [], ChoiceFinished(-1), "names choice -1", "number the request's choices 0 to 1"),
    (2, [], ContentDelta("a", "0"), "names choice '0'", "number the request's choices 0 to 1"),
    (2, [], ContentDelta("a", [0]), "names choice [0]", "number the request's choices 0 to 1"),
    (2, [], ContentDelta("a", 0.0), "names choice 0.0", "number the request's choices 0 to 1"),
    (2, [], ContentDelta("a", True), "names choice True", "number the request's choices 0 to 1"),
    (0, [], ContentDelta("a"), "the request has no choices", "answer in Completed(details)"),
    (1, [], Completed(), "before choice 0 was finished", "yield ChoiceFinished(choice=0) first"),
    (
        3,
        [ChoiceFinished(0), ChoiceFinished(2)],
        Completed(),
        "before choice 1 was finished",
        "yield ChoiceFinished(choice=1) first",
    ),
    (1, [], StatusChanged("queued"), "'queued') is not a backend's", "use one of searching"),
    (1, [], StatusChanged("completed"), "is not a backend's", "yield Completed or Failed"),
    (1, [], StatusChanged("failed"), "is not a backend's", "yield Completed or Failed"),
    (1, [], StatusChanged("thinking"), "is not a backend's", "use one of searching, researching"),
    (1, [], ContentDelta(b"a"), "holds b'a'", "its text must be a str"),
    (1, [], ContentDelta(None), "holds None", "its text must be a str"),
    (1, [], ContentDelta("a", channel="main"), "the channel 'main'", "use one of content, "),
    (1, [], ChoiceFinished(0, "tool_calls"), "the reason 'tool_calls'", "use one of stop, length"),
    (1, [], UsageCounted("5"), "counts '5' tokens", "whole numbers from 0"),
    (1, [], UsageCounted(1, 2.0), "counts 2.0 tokens", "whole numbers from 0"),
    (1, [], UsageCounted(-1), "counts -1 tokens", "whole numbers from 0"),
    (1, [], Failed("no"), "Failed holds 'no'", "give it an ErrorInfo"),
    (1, [], Failed(ErrorInfo("no", "c", status=200)), "status 200", "from 400 to 599"),
    (1, [], Failed(ErrorInfo("no", "c", status=600)), "status 600", "from 400 to 599"),
    (1, [], Failed(ErrorInfo("no", "c", status=None)), "status None", "from 400 to 599"),
    (1, [], Failed(ErrorInfo({}, "c")), "the message {}", "give it a str"),
    (1, [], Failed(ErrorInfo("no", "c", param=["n"])), "the param ['n']", "give it a str"),
    (1, [], Failed(ErrorInfo("n", "c", retry_after_s=math.inf)), "retry_after_s inf", "from 0 on"),
    (1, [], Failed(ErrorInfo("n", "c", retry_after_s=math.nan)), "retry_after_s nan", "from 0 on"),
    (1, [], Failed(ErrorInfo("n", "c", retry_after_s=-1)), "retry_after_s -1", "from 0 on"),
]


@pytest.mark.parametrize(("choices", "before", "event", "wrong", "cure"), BREACHES)
def test_a_breach_says_what_was_wrong_and_how_to_keep_the_rule(choices, before, event, wrong, cure):
    invariant = Invariant(choices)
    for earlier in before:
        invariant.check(earlier)
    with pytest.raises(ContractBreach) as breach:
        invariant.check(event)
    assert wrong in str(breach.value)
    assert cure in str(breach.value)


def test_a_breach_does_not_quote_pages_of_text():
    with pytest.raises(ContractBreach) as breach:
        check(["x" * 100_000])
    assert len(str(breach.value)) < 500
