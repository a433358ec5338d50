"""The mock: replies as events, the same each time."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caesar_server.contract import (
    BrainstormRequest,
    ChatRequest,
    ChoiceFinished,
    Completed,
    CompletionRequest,
    ContentDelta,
    ErrorInfo,
    Event,
    Failed,
    FollowUpRequest,
    InvalidRequestError,
    LoopFinished,
    Message,
    Part,
    ProgressNoted,
    Request,
    RequestLogged,
    ResearchRequest,
    ResultFound,
    Sampling,
    SourceStored,
    StatusChanged,
    UsageCounted,
)
from caesar_server.mock.backend import MockBackend, MockOptions, mock_backend
from caesar_server.mock.model.pacing import Pacing
from caesar_server.mock.model.reply import MockError
from caesar_server.mock.scope import Manner
from caesar_server.mock.scopes import Scopes
from caesar_server.testing import BackendConformance, collect_events, make_context

FIXTURES = {
    "hi": "Hello, world!",
    "pick": {"text": ["one", "two"]},
    "cut": {"text": "abcdefghij", "chunks": 3},
    "news": {
        "statuses": ["searching", "summarizing"],
        "progress": ["Reading 1 source"],
        "results": [
            {"id": "a", "title": "A", "url": "u", "citation_index": 1, "markdown": "# A"},
            {"id": "b", "title": "B", "url": "v", "score": 0.5},
        ],
        "text": "So it is [1].",
    },
    "vague": {"questions": [{"question": "Where?", "options": ["Here", "There"]}]},
    "deep": {
        "results": [{"id": "a", "title": "A", "url": "u"}],
        "requests": [{"url": "https://api.example.org/a", "result": 0}],
        "loops": 2,
        "text": "Yes.",
    },
    "refuse": {"error": {"message": "no", "code": "nope", "status": 403}},
    "break": {"text": "half an", "error": {"message": "gone", "status": 502}},
}

Ask = Callable[[Request], list[Event]]


@pytest.fixture
def ask(tmp_path: Path) -> Ask:
    """Return the events of a request to a mock with :data:`FIXTURES`."""
    path = tmp_path / "fixtures.json"
    path.write_text(json.dumps(FIXTURES))
    backend = MockBackend(MockOptions(fixtures=path))
    backend.open()
    return lambda request: collect_events(backend, request)


def complete(*prompts: str, echo: bool = False, **sampling: Any) -> CompletionRequest:
    return CompletionRequest(prompts=prompts, echo=echo, sampling=Sampling(**sampling))


def texts(events: list[Event]) -> dict[int, str]:
    found: dict[int, str] = {}
    for event in events:
        if isinstance(event, ContentDelta):
            found[event.choice] = found.get(event.choice, "") + event.text
    return found


def usage(events: list[Event]) -> tuple[int, int]:
    counted = [event for event in events if isinstance(event, UsageCounted)]
    return (
        sum(event.prompt_tokens for event in counted),
        sum(event.completion_tokens for event in counted),
    )


def test_a_prompt_of_the_file_gets_its_text_word_by_word(ask: Ask) -> None:
    assert ask(complete("hi")) == [
        ContentDelta("Hello,"),
        ContentDelta(" world!"),
        UsageCounted(prompt_tokens=1, completion_tokens=2),
        ChoiceFinished(),
        Completed(),
    ]


def test_another_prompt_is_repeated(ask: Ask) -> None:
    events = ask(complete(" What\n\nis  this? "))
    assert texts(events) == {0: " What\n\nis  this? "}
    assert usage(events) == (3, 3)


@given(st.text())
def test_the_repeated_text_is_exactly_the_prompt(prompt: str) -> None:
    events = collect_events(MockBackend(), complete(prompt))
    assert texts(events).get(0, "") == prompt


def test_prompts_and_choices_are_numbered_and_prompts_counted_once(ask: Ask) -> None:
    events = ask(complete("pick", "two words", n=3))
    assert texts(events) == {0: "one", 1: "two", 2: "one", 3: "two words", 4: "two words",
                             5: "two words"}  # fmt: skip
    assert usage(events) == (3, 9)


def test_stop_max_tokens_and_echo_are_honoured(ask: Ask) -> None:
    assert texts(ask(complete("hi", stop=("wor",)))) == {0: "Hello, "}
    limited = ask(complete("hi", max_tokens=1, echo=True))
    assert texts(limited) == {0: "hiHello,"}
    assert ChoiceFinished(0, "length") in limited
    assert usage(limited) == (1, 1)


def test_chunks_is_the_number_of_deltas(ask: Ask) -> None:
    deltas = [event.text for event in ask(complete("cut")) if isinstance(event, ContentDelta)]
    assert deltas == ["abc", "def", "ghij"]
    cut = ask(complete("cut", stop=("c",)))
    assert [event.text for event in cut if isinstance(event, ContentDelta)] == ["a", "b"]


def test_findings_come_before_the_text(ask: Ask) -> None:
    events = ask(ResearchRequest(query="news"))
    assert events[:7] == [
        StatusChanged("searching"),
        StatusChanged("summarizing"),
        ProgressNoted("Reading 1 source"),
        ResultFound("a", "A", "u", None, 1),
        SourceStored("a", None, "# A"),
        ResultFound("b", "B", "v", 0.5),
        ContentDelta("So"),
    ]
    assert texts(events) == {0: "So it is [1]."}
    assert events[-1] == Completed()


def test_an_error_alone_is_the_first_event(ask: Ask) -> None:
    refused = ErrorInfo("no", "nope", type="invalid_request_error", status=403)
    assert ask(complete("refuse", echo=True)) == [Failed(refused)]


@pytest.mark.parametrize(
    ("status", "type_"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (429, "rate_limit_error"),
        (503, "server_error"),
    ],
)
def test_an_error_without_a_type_has_that_of_its_status(status: int, type_: str) -> None:
    assert MockError(message="no", status=status).info().type == type_
    assert MockError(message="no", status=status, type="own").info().type == "own"


def test_an_error_after_a_text_breaks_it_off(ask: Ask) -> None:
    assert ask(complete("break")) == [
        ContentDelta("half"),
        ContentDelta(" an"),
        Failed(ErrorInfo("gone", "backend_error", status=502)),
    ]


def message(role: str, *texts: str) -> Message:
    return Message(role=role, parts=tuple(Part(text=text) for text in texts))


def test_a_chat_is_about_its_last_user_message_and_counts_them_all(ask: Ask) -> None:
    request = ChatRequest(
        messages=(
            message("system", "Be kind."),
            message("user", "refuse"),
            message("assistant", "Why?"),
            message("user", "hi"),
            message("assistant", "Well,"),
        ),
        sampling=Sampling(n=2),
    )
    events = ask(request)
    assert texts(events) == {0: "Hello, world!", 1: "Hello, world!"}
    assert usage(events) == (6, 4)


def test_a_chat_of_nobody_is_refused_before_anything_is_said() -> None:
    events = MockBackend().run(ChatRequest(messages=(message("system", "hi"),)), make_context())
    with pytest.raises(InvalidRequestError) as caught:
        next(events)
    assert caught.value.param == "messages"


def test_token_ids_are_a_prompt_of_their_numbers() -> None:
    request = CompletionRequest(prompts=("fine", (15496, 995)), echo=True)
    events = collect_events(MockBackend(), request)
    assert texts(events) == {0: "finefine", 1: "15496 99515496 995"}
    assert usage(events) == (3, 3)


def test_a_follow_up_is_about_its_content(ask: Ask) -> None:
    assert texts(ask(FollowUpRequest(content="hi", query="b", answer="c"))) == {0: "Hello, world!"}
    assert texts(ask(FollowUpRequest(content="So?", query="b", answer="c"))) == {0: "So?"}


def test_a_brainstorm_gets_the_questions_of_the_reply(ask: Ask) -> None:
    questions = [{"question": "Where?", "options": ["Here", "There"]}]
    assert ask(BrainstormRequest(query="vague")) == [Completed({"questions": questions})]
    assert ask(BrainstormRequest(query="clear")) == [Completed({"questions": []})]
    assert ask(BrainstormRequest(query="refuse"))[-1] == ask(complete("refuse"))[-1]


def test_third_party_calls_and_loops_are_reported(ask: Ask) -> None:
    events = ask(ResearchRequest(query="deep"))
    assert events[:4] == [
        ResultFound("a", "A", "u"),
        RequestLogged("https://api.example.org/a", response_status=200, result_id="a"),
        LoopFinished(1),
        LoopFinished(2),
    ]
    assert events[-1] == Completed({"loops_consumed": 2})


def test_the_same_request_gets_the_same_events_with_any_seed(ask: Ask) -> None:
    assert ask(complete("news", seed=1)) == ask(complete("news", seed=2))


class TestMock(BackendConformance):
    backend_class = MockBackend


class TestInMockMode(BackendConformance):
    backend_class = mock_backend(
        Scopes(Manner(pacing=Pacing(first_chunk_s=0.01, tokens_per_s=1000, jitter=0.5)))
    )
