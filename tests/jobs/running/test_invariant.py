"""The rules for the events of one run."""

from __future__ import annotations

import dataclasses
import enum
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
    LogprobToken,
    LoopFinished,
    ProgressNoted,
    RequestLogged,
    ResultFound,
    SourceStored,
    Started,
    StatusChanged,
    TopLogprob,
    UsageCounted,
)
from caesar_server.contract.events import EVENT_TYPES
from caesar_server.errors import AnswerTooLongError
from caesar_server.jobs.running.invariant import ContractBreach, Invariant
from caesar_server.jobs.running.values import CHECKS
from caesar_server.store.base import Record
from caesar_server.store.sql.rows import record_rows, records_of

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
    (1, [], ContentDelta(b"a"), "the text b'a' (bytes)", "give it a str (IncrementalUtf8"),
    (1, [], ContentDelta(None), "the text None", "give it a str (IncrementalUtf8"),
    (1, [], ContentDelta("a", channel="main"), "the channel 'main'", "give it one of content, "),
    (1, [], ChoiceFinished(0, "tool_calls"), "the reason 'tool_calls'", "one of stop, length"),
    (1, [], UsageCounted("5"), "the prompt_tokens '5' (", "a whole number (int) from 0"),
    (1, [], UsageCounted(1, 2.0), "the completion_tokens 2.0 (", "a whole number (int) from 0"),
    (1, [], UsageCounted(-1), "the prompt_tokens -1 (", "a whole number (int) from 0"),
    (1, [], Failed("no"), "Failed holds 'no'", "give it an ErrorInfo"),
    (1, [], Failed(ErrorInfo("no", "a\0b")), r"the code 'a\x00b'", "without NUL"),
    (1, [], Failed(ErrorInfo("no", "\ud800")), r"the code '\ud800'", "without NUL"),
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


MOST = 2**31 - 1
#: Larger than any float, and of more digits than Python prints.
HUGE = 10**5000


class Word(enum.StrEnum):
    CONTENT = "content"


class Count(enum.IntEnum):
    ONE = 1


class OwnStr(str):
    pass


class OwnInt(int):
    pass


class OwnFloat(float):
    pass


def tokens(*tokens: Any) -> ContentDelta:
    return ContentDelta("a", logprobs=tokens)


def result(**fields: Any) -> ResultFound:
    return ResultFound(**{"id": "r", "title": "t", "url": "u", **fields})


def request(**fields: Any) -> RequestLogged:
    return RequestLogged(**{"url": "u", **fields})


FITS = [
    *(result(score=score) for score in (None, 0, 0.0, 0.5, 1, 1.0)),
    *(result(citation_index=index) for index in (None, 1, MOST, Count.ONE)),
    *(LoopFinished(loop) for loop in (1, MOST)),
    *(request(duration_ms=ms) for ms in (0, MOST)),
    *(request(response_status=status) for status in (None, 100, 599)),
    request(result_id="r"),
    SourceStored("r", None, ""),
    ProgressNoted("\ud800"),
    ProgressNoted(Word.CONTENT),
    ContentDelta("a", channel=Word.CONTENT),
    UsageCounted(MOST, 0),
    Started({"pair": (1, 2), "none": None, "deep": [{"a": [True, 1.5, 2**70]}], 1: 2}),
    tokens(),
    tokens(LogprobToken("a", None), LogprobToken("b", -1, (TopLogprob("c", -0.5),))),
]


@pytest.mark.parametrize("event", FITS, ids=repr)
def test_what_fits_passes_and_comes_back_from_the_store(event):
    check([event])
    (record,) = record_rows("job", [Record(1, 1.0, event)])
    assert records_of("job", 1, record["body"], 0)[0].seq == 1


MISFITS = [
    # an event, the field that is wrong, what it holds, what it may hold
    (result(id=7), "id", "7 (int)", "a str"),
    (result(title=None), "title", "None (NoneType)", "a str"),
    (result(url=OwnStr("u")), "url", "'u' (OwnStr)", "a str"),
    (result(score="0.1"), "score", "'0.1' (str)", "a number (float) from 0 to 1, or None"),
    (result(score=True), "score", "True (bool)", "from 0 to 1"),
    (result(score=-0.1), "score", "-0.1 (float)", "from 0 to 1"),
    (result(score=1.1), "score", "1.1 (float)", "from 0 to 1"),
    (result(score=2), "score", "2 (int)", "from 0 to 1"),
    (result(score=math.nan), "score", "nan (float)", "from 0 to 1"),
    (result(score=math.inf), "score", "inf (float)", "from 0 to 1"),
    (result(score=OwnFloat(0.5)), "score", "0.5 (OwnFloat)", "from 0 to 1"),
    (result(citation_index=2.5), "citation_index", "2.5 (float)", "(int) from 1 to 2147483647"),
    (result(citation_index=True), "citation_index", "True (bool)", "from 1 to 2147483647"),
    (result(citation_index="1"), "citation_index", "'1' (str)", "from 1 to 2147483647"),
    (result(citation_index=0), "citation_index", "0 (int)", "from 1 to 2147483647"),
    (result(citation_index=-3), "citation_index", "-3 (int)", "from 1 to 2147483647"),
    (result(citation_index=MOST + 1), "citation_index", "2147483648", "from 1 to 2147483647"),
    (result(citation_index=HUGE), "citation_index", "(int)", "from 1 to 2147483647"),
    (result(citation_index=OwnInt(1)), "citation_index", "1 (OwnInt)", "from 1 to 2147483647"),
    (ProgressNoted(5), "message", "5 (int)", "a str"),
    (ProgressNoted(b"x"), "message", "b'x' (bytes)", "a str"),
    (StatusChanged("searching", None), "message", "None (NoneType)", "a str"),
    (StatusChanged(OwnStr("searching")), "status", "(OwnStr)", "one of queued, searching"),
    (SourceStored(5), "result_id", "5 (int)", "a str"),
    (SourceStored("r", raw=5), "raw", "5 (int)", "a str, or None"),
    (SourceStored("r", markdown=b""), "markdown", "b'' (bytes)", "a str, or None"),
    (LoopFinished(1.5), "loop", "1.5 (float)", "a whole number (int) from 1 to 2147483647"),
    (LoopFinished(True), "loop", "True (bool)", "from 1 to 2147483647"),
    (LoopFinished(0), "loop", "0 (int)", "from 1 to 2147483647"),
    (LoopFinished(MOST + 1), "loop", "2147483648 (int)", "from 1 to 2147483647"),
    (request(url=None), "url", "None (NoneType)", "a str"),
    (request(method=1), "method", "1 (int)", "a str"),
    (request(duration_ms=1.5), "duration_ms", "1.5 (float)", "from 0 to 2147483647"),
    (request(duration_ms=-1), "duration_ms", "-1 (int)", "from 0 to 2147483647"),
    (request(duration_ms=MOST + 1), "duration_ms", "2147483648", "from 0 to 2147483647"),
    (request(response_status="200"), "response_status", "'200' (str)", "an int from 100 to 599"),
    (request(response_status=99), "response_status", "99 (int)", "from 100 to 599, or None"),
    (request(response_status=600), "response_status", "600 (int)", "from 100 to 599, or None"),
    (request(request_headers={}), "request_headers", "{} (dict)", "a str"),
    (request(response_body=b""), "response_body", "b'' (bytes)", "a str"),
    (request(provider=None), "provider", "None (NoneType)", "a str"),
    (request(result_id=1), "result_id", "1 (int)", "a str, or None"),
    (UsageCounted(True), "prompt_tokens", "True (bool)", "from 0 to 2147483647"),
    (UsageCounted(0, MOST + 1), "completion_tokens", "2147483648", "from 0 to 2147483647"),
    (ContentDelta(OwnStr("a")), "text", "'a' (OwnStr)", "a str"),
    (ContentDelta("a", channel=[]), "channel", "[] (list)", "one of content"),
    (ChoiceFinished(0, None), "reason", "None (NoneType)", "one of stop"),
    (tokens("a"), "logprobs[0]", "'a' (str)", "a LogprobToken"),
    (ContentDelta("a", logprobs=[]), "logprobs", "[] (list)", "a tuple of LogprobToken"),
    (tokens(LogprobToken(1, -1.0)), "logprobs[0].token", "1 (int)", "a str"),
    (tokens(LogprobToken("a", "-1")), "logprobs[0].logprob", "'-1' (str)", "finite float, or None"),
    (tokens(LogprobToken("a", -math.inf)), "logprobs[0].logprob", "-inf (float)", "a finite"),
    (tokens(LogprobToken("a", math.nan)), "logprobs[0].logprob", "nan (float)", "a finite"),
    (tokens(LogprobToken("a", -HUGE)), "logprobs[0].logprob", "(int)", "a finite float"),
    (tokens(LogprobToken("a", -1.0, [])), "logprobs[0].top", "[] (list)", "tuple of TopLogprob"),
    (tokens(LogprobToken("a", -1.0, ("b",))), "logprobs[0].top[0]", "'b'", "a TopLogprob"),
    (
        tokens(LogprobToken("a", None), LogprobToken("a", -1.0, (TopLogprob("b", None),))),
        "logprobs[1].top[0].logprob",
        "None (NoneType)",
        "a finite float",
    ),
    (
        tokens(LogprobToken("a", -1.0, (TopLogprob(b"b", -1.0),))),
        "logprobs[0].top[0].token",
        "b'b' (bytes)",
        "a str",
    ),
    (Started(None), "details", "None (NoneType)", "a dict of JSON values"),
    (Started([1]), "details", "[1] (list)", "a dict of JSON values"),
    (Started({"a": math.nan}), "details", "{'a': nan} (dict)", "a dict of JSON values: "),
    (Started({"a": {1}}), "details", "{'a': {1}} (dict)", "set is not JSON serializable"),
    (Started({"a": b"x"}), "details", "(dict)", "bytes is not JSON serializable"),
    (Started({(1, 2): 3}), "details", "(dict)", "a dict of JSON values: "),
    (Started({"a": HUGE}), "details", "(dict)", "a dict of JSON values: "),
    (Started({"a": OwnFloat(1)}), "details", "(dict)", "OwnFloat is unsupported"),
    (Failed(ErrorInfo("n", "c", transient=1)), "transient", "1 (int)", "a bool"),
    (Failed(ErrorInfo("n", "c", retry_after_s=HUGE)), "retry_after_s", "(int)", "seconds from 0"),
    (Failed(ErrorInfo("n", OwnStr("c"))), "code", "'c' (OwnStr)", "a str"),
]


@pytest.mark.parametrize(("event", "field", "seen", "expected"), MISFITS)
def test_a_wrong_value_is_named_before_it_is_stored(event, field, seen, expected):
    with pytest.raises(ContractBreach) as breach:
        check([event])
    said = str(breach.value)
    name = "an error" if isinstance(event, Failed) else type(event).__name__
    assert said.startswith(f"{name} has the {field} ")
    assert seen in said
    assert expected in said
    assert len(said) < 500


def test_a_completed_holds_json_alone():
    with pytest.raises(ContractBreach, match="Completed has the details"):
        check([Completed({"a": object()})], choices=0)


def test_every_field_of_every_event_is_checked():
    apart = {ContentDelta: {"logprobs"}}
    for cls in EVENT_TYPES.values():
        named = {field.name for field in dataclasses.fields(cls)}
        assert {field for field, _, _ in CHECKS[cls]} == named - apart.get(cls, set()), cls


def test_a_breach_does_not_quote_pages_of_text():
    with pytest.raises(ContractBreach) as breach:
        check(["x" * 100_000])
    assert len(str(breach.value)) < 500


@pytest.mark.parametrize(
    ("choices", "events"),
    [
        (1, [ContentDelta("abc"), ContentDelta("de")]),
        (2, [ContentDelta("abc"), ContentDelta("de", 1)]),
        (1, [ContentDelta("abc", channel="reasoning"), ContentDelta("de")]),
        (1, [ContentDelta("ab", logprobs=(LogprobToken("ab", -1.0, (TopLogprob("c", -2.0),)),))]),
    ],
)
def test_text_may_be_as_long_as_the_limit_over_all_choices(choices, events):
    for limit in (5, 6, None):
        invariant = Invariant(choices, limit)
        for event in events:
            invariant.check(event)
    invariant = Invariant(choices, 4)
    for event in events[:-1]:
        invariant.check(event)
    with pytest.raises(AnswerTooLongError, match="max_answer_chars, 4 characters"):
        invariant.check(events[-1])
