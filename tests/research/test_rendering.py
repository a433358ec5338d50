"""What became of a job, and the native objects that show it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caesar_server.blueprints.research.rendering.event_items import event_item, waiting_item
from caesar_server.blueprints.research.rendering.folding import query_of, view_of
from caesar_server.blueprints.research.rendering.objects import (
    created_object,
    research_object,
    result_object,
    running_time,
    sound,
)
from caesar_server.contract.errors import ErrorInfo
from caesar_server.contract.events import (
    ChoiceFinished,
    Completed,
    ContentDelta,
    Event,
    Failed,
    LoopFinished,
    ProgressNoted,
    RequestLogged,
    ResultFound,
    SourceStored,
    Started,
    Status,
    StatusChanged,
    UsageCounted,
)
from caesar_server.contract.request import (
    BrainstormRequest,
    ChatRequest,
    CompletionRequest,
    FollowUpRequest,
    Message,
    Part,
    Request,
    ResearchParameters,
    ResearchRequest,
)
from caesar_server.store.base import Job, Record
from caesar_server.web.timestamps import timestamp

QUESTION = ResearchRequest(query="why?")
SHAPED = ResearchParameters(system_prompt="as JSON")
CREATED_AT = 1_757_851_200.25


def job_of(request: Request = QUESTION, **fields: Any) -> Job:
    fields = {"status": "completed", "finished_at": CREATED_AT + 34.9, **fields}
    return Job(id="j", created_at=CREATED_AT, model="m", backend="b", request=request, **fields)


def records_of(*events: Event) -> Sequence[Record]:
    return [Record(seq, CREATED_AT + seq, event) for seq, event in enumerate(events, 1)]


def found(id: str, citation_index: int | None = None, **fields: Any) -> ResultFound:
    return ResultFound(id, f"Title {id}", f"https://{id}.test/", None, citation_index, **fields)


def test_the_answer_is_what_the_first_choice_says() -> None:
    events = (
        ContentDelta("thinking", channel="reasoning"),
        ContentDelta("The "),
        ContentDelta("other", choice=1),
        ContentDelta("answer [1]"),
        ChoiceFinished(),
        Completed(),
    )
    view = view_of(job_of(), records_of(*events))
    assert (view.content, view.transformed, view.error) == ("The answer [1]", None, None)


@pytest.mark.parametrize(
    ("parameters", "events", "transformed"),
    [
        (ResearchParameters(), [ContentDelta("a")], None),
        (ResearchParameters(system_prompt=""), [ContentDelta("a")], None),
        (SHAPED, [ContentDelta("a")], "a"),
        (SHAPED, [ContentDelta("a"), ContentDelta("b", channel="transformed")], "b"),
        (
            ResearchParameters(),
            [ContentDelta("{", channel="transformed"), ContentDelta("}", channel="transformed")],
            "{}",
        ),
        (SHAPED, [ContentDelta("a"), ContentDelta("", channel="transformed")], "a"),
        (SHAPED, [], ""),
    ],
)
@pytest.mark.parametrize("kind", ["research", "chat", "completion"])
def test_the_reshaped_answer(kind, parameters, events, transformed) -> None:
    asked = {
        "research": ResearchRequest(query="q", parameters=parameters),
        "chat": ChatRequest(messages=(), parameters=parameters),
        "completion": CompletionRequest(prompts=("q",), parameters=parameters),
    }
    view = view_of(job_of(asked[kind]), records_of(*events))
    assert view.transformed == transformed


@pytest.mark.parametrize("status", [s for s in get_args(Status) if s != "completed"])
def test_there_is_no_text_until_the_job_is_completed(status) -> None:
    events = (ContentDelta("a"), ContentDelta("b", channel="transformed"), found("r"))
    ended = {} if status == "failed" else {"finished_at": None}
    view = view_of(job_of(status=status, **ended), records_of(*events))
    assert (view.content, view.transformed) == (None, None)
    assert view.results == (found("r"),)


def test_a_completed_job_without_text_has_an_empty_one() -> None:
    # a public client takes its length
    assert view_of(job_of(), ()).content == ""


def test_results_are_by_citation_and_those_without_last() -> None:
    events = (found("x"), found("b", 2), found("y"), found("a", 1), found("x2"))
    view = view_of(job_of(), records_of(*events))
    assert [result.id for result in view.results] == ["a", "b", "x", "y", "x2"]


def test_a_later_result_replaces_the_one_with_its_id_in_its_place() -> None:
    events = (found("a"), found("b"), ResultFound("a", "New", "https://new.test/", 0.5))
    view = view_of(job_of(), records_of(*events))
    assert [(result.id, result.title) for result in view.results] == [
        ("a", "New"),
        ("b", "Title b"),
    ]


def test_a_failed_job_tells_why() -> None:
    error = ErrorInfo(message="the upstream is down", code="x")
    events = records_of(ContentDelta("half"), Failed(error))
    view = view_of(job_of(status="failed"), events)
    assert view.error == error
    body = research_object(view, now=0)
    assert (body["status"], body["error"], body["content"]) == ("failed", error.message, None)
    # even if its records are gone
    assert research_object(view_of(job_of(status="failed"), ()), now=0)["error"]


@pytest.mark.parametrize(
    ("request_", "query"),
    [
        (QUESTION, "why?"),
        (BrainstormRequest(query="why?"), "why?"),
        (FollowUpRequest(content="and?", query="why?", answer="so"), "and?"),
        (CompletionRequest(prompts=("one", "two")), "one"),
        (CompletionRequest(prompts=((1, 2), "two")), "two"),
        (CompletionRequest(prompts=((1, 2),)), ""),
        (
            ChatRequest(
                messages=(
                    Message(role="system", parts=(Part(text="be kind"),)),
                    Message(role="user", parts=(Part(text="one"),)),
                    Message(role="assistant", parts=(Part(text="two"),)),
                    Message(
                        role="user", parts=(Part(text="thr"), Part(file_id="f"), Part(text="ee"))
                    ),
                    Message(role="tool", parts=(Part(text="four"),)),
                )
            ),
            "thr\nee",
        ),
        (ChatRequest(messages=(Message(role="assistant"),)), ""),
    ],
)
def test_what_was_asked(request_, query) -> None:
    assert query_of(request_) == query


def test_a_completed_research() -> None:
    events = records_of(found("u"), found("a", 1), ContentDelta("text [1]"), Completed())
    assert research_object(view_of(job_of(loops=2), events), now=0) == {
        "id": "j",
        "created_at": "2025-09-14T12:00:00.250Z",
        "status": "completed",
        "query": "why?",
        "reasoning_loops_consumed": 2,
        "running_time": 34,
        "results": [
            {
                "id": "a",
                "title": "Title a",
                "url": "https://a.test/",
                "citation_index": 1,
                "score": None,
            },
            {"id": "u", "title": "Title u", "url": "https://u.test/", "score": None},
        ],
        "content": "text [1]",
        "transformed_content": None,
        "completed_at": "2025-09-14T12:00:35.150Z",
    }


def test_a_running_research() -> None:
    job = job_of(status="searching", finished_at=None)
    body = research_object(view_of(job, ()), now=CREATED_AT + 5.999)
    assert (body["running_time"], body["results"], body["content"]) == (5, [], None)
    # some clients take any of the latter for a failure
    assert not {"completed_at", "error"} & set(body)


@pytest.mark.parametrize("kind", [int, float])
def test_running_time_is_whole_and_never_negative(kind) -> None:
    assert running_time(job_of(finished_at=None), now=kind(0)) == 0
    assert running_time(job_of(finished_at=CREATED_AT - 5), now=kind(0)) == 0
    seconds = running_time(job_of(finished_at=None), now=kind(CREATED_AT + 60.75))
    assert seconds == 60
    assert type(seconds) is int


def test_what_is_told_of_a_new_job() -> None:
    job = job_of(status="searching", finished_at=None)
    assert created_object(job) == {"id": "j", "status": "queued"}
    assert created_object(job, "no answers")["warning"] == "no answers"


@pytest.mark.parametrize(
    ("score", "told"), [(0.25, 0.25), (0.0, 0.0), (None, None), (math.nan, None), (math.inf, None)]
)
def test_scores_are_numbers_that_json_has(score, told) -> None:
    assert result_object(ResultFound("r", "t", "u", score))["score"] == told


@given(st.floats(0, 253_402_300_000))
def test_timestamps_are_read_by_python_go_and_javascript(seconds) -> None:
    text = timestamp(seconds)
    # RFC 3339 with a zone, which is what Go's time.Time and ECMAScript's Date.parse define
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", text)
    moment = datetime.fromisoformat(text)
    exact = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    assert abs(moment - exact) <= timedelta(milliseconds=0.6)


def test_timestamps_do_not_carry_a_thousandth_millisecond() -> None:
    assert timestamp(1_757_851_199.9996) == "2025-09-14T12:00:00.000Z"
    assert timestamp(1_757_851_200) == "2025-09-14T12:00:00.000Z"


@given(st.text(st.characters() | st.characters(categories=["Cs"])))
def test_text_reaches_strict_readers(text) -> None:
    told = sound(text)
    assert json.loads(json.dumps(told).encode()) == told
    told.encode()
    assert sound(told) == told
    if not re.search("[\ud800-\udfff]", text):
        assert told == text


def test_halves_of_a_character_become_one_and_a_lone_half_a_mark() -> None:
    halves = (ContentDelta("a\ud83d"), ContentDelta("\ude00b\ud83d"), ContentDelta("\x00"))
    body = research_object(
        view_of(job_of(ResearchRequest(query="\udc00q")), records_of(*halves)), 0
    )
    assert (body["content"], body["query"]) == ("a\N{GRINNING FACE}b\ufffd\x00", "\ufffdq")
    result = result_object(ResultFound("\ud800", "\ud800", "https://\ud800.test"))
    assert result["id"] == result["title"] == "\ufffd"
    assert result["url"] == "https://\ufffd.test"


ASKED = job_of(ResearchRequest(query="q"))


def test_what_waits_says_the_same_before_and_after_it_begins() -> None:
    (record,) = records_of(StatusChanged("queued"))
    assert event_item(record, ASKED) == waiting_item(ASKED)
    assert waiting_item(ASKED)["created_at"] == timestamp(ASKED.created_at)


def test_each_status_and_each_note_is_an_item() -> None:
    events = (StatusChanged("searching", "Looking"), ProgressNoted("Reading 12 sources \ud83d"))
    assert [event_item(record, ASKED) for record in records_of(*events)] == [
        {"message": "Looking", "created_at": "2025-09-14T12:00:01.250Z"},
        {"message": "Reading 12 sources \ufffd", "created_at": "2025-09-14T12:00:02.250Z"},
    ]


@pytest.mark.parametrize("status", get_args(Status))
def test_a_status_of_which_nothing_is_said_has_a_sentence(status) -> None:
    (record,) = records_of(StatusChanged(status))
    item = event_item(record, ASKED)
    assert item is not None
    assert re.fullmatch(r"[A-Z][a-z ]+", item["message"])


@pytest.mark.parametrize(
    "event",
    [
        Started(),
        found("r"),
        SourceStored("r"),
        RequestLogged("https://a.test"),
        LoopFinished(1),
        ContentDelta("a"),
        UsageCounted(1),
        ChoiceFinished(),
        Completed(),
        Failed(ErrorInfo(message="m", code="c")),
    ],
    ids=lambda event: event.type,
)
def test_other_events_are_no_items(event) -> None:
    assert event_item(records_of(event)[0], ASKED) is None
