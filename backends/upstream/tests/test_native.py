"""Research jobs of the Caesar API, against a scripted stand-in."""

from __future__ import annotations

import json
from typing import Any

import pytest

from caesar_server.contract import (
    ChatRequest,
    CompletionRequest,
    LoopFinished,
    Message,
    Part,
    ProgressNoted,
    ResearchParameters,
    ResearchRequest,
    ResultFound,
    Sampling,
    SourceStored,
    StatusChanged,
)
from caesar_server.testing import collect_events, make_context

RESULT = {"id": "r1", "title": "Light", "url": "https://example.org/", "citation_index": 1}
PARAMETERS = ResearchParameters(
    reasoning_loops=3, source_timeout_s=30, exclude_social=True, excluded_domains=("a.b",)
)


class FakeCaesar:
    """Plays the states of one job, one for each time that it is asked for."""

    def __init__(self, wire: Any, *states: dict[str, Any]) -> None:
        self._wire = wire
        self._states = list(states)
        self._turn = 0
        self.events: list[dict[str, str]] = []
        self.failures: list[bytes] = []

    def __call__(self, peer: Any) -> bool:
        peer.send(self._reply(peer.asked).replace(b"Connection: close\r\n", b""))
        return True

    def _reply(self, asked: Any) -> bytes:
        if self.failures:
            return self.failures.pop(0)
        wire = self._wire
        if (asked.method, asked.path) == ("POST", "/research"):
            return wire.json({"id": "job/1", "status": "queued"})
        if asked.path == "/research/job%2F1/events":
            return wire.json(self.events)
        if asked.path == "/research/job%2F1":
            state = self._states[min(self._turn, len(self._states) - 1)]
            self._turn += 1
            self.events = [
                {"message": f"line {n}", "created_at": "x"} for n in range(1, self._turn + 1)
            ]
            return wire.json({"id": "job/1", "results": [], "content": None, **state})
        if asked.path.startswith("/research/job%2F1/results/r1/content?format="):
            return wire.json({"content": asked.path.rpartition("=")[2] + " text"})
        return wire.json({"error": "Resource not found"}, status="404 Not Found")


@pytest.fixture
def native(raw, opened, wire):
    """Return a backend in front of a stand-in that plays these states."""

    def make(*states: dict[str, Any], **options: Any) -> tuple[Any, Any, FakeCaesar]:
        caesar = FakeCaesar(wire, *states)
        server = raw(caesar)
        per_server = {
            "url": server.url.removesuffix("/v1"),
            "kind": "caesar",
            "endpoint": "native",
            "api_key": "csk-secret",
            "poll_interval_s": 0.01,
            **options,
        }
        return opened(servers={"caesar": per_server}), server, caesar

    return make


DONE = {"status": "completed", "content": "Because [1].", "results": [RESULT]}


def test_a_job_is_created_followed_and_told(native, told) -> None:
    ask, server, _ = native(
        {"status": "queued"},
        {"status": "searching"},
        {"status": "searching", "results": [{**RESULT, "citation_index": None}]},
        {"status": "summarizing", "results": [RESULT], "reasoning_loops_consumed": 2},
        {**DONE, "reasoning_loops_consumed": 2, "transformed_content": None},
    )
    request = ResearchRequest(query="why?", parameters=PARAMETERS)
    answer = told(ask.events(request))
    assert server.asked[0].body == {
        "query": "why?",
        "reasoning_loops": 3,
        "source_timeout": 30,
        "reasoning_mode": False,
        "allow_early_exit": False,
        "exclude_social": True,
        "excluded_domains": ["a.b"],
    }
    headers = server.asked[0].headers
    assert (headers["authorization"], headers["api-version"]) == ("Bearer csk-secret", "2025-11-27")
    assert answer.answered_by == "caesar"
    assert (answer.text(), answer.reasons) == ("Because [1].", {0: "stop"})
    middle = [e for e in answer.events if not isinstance(e, ProgressNoted)][1:6]
    assert middle == [
        StatusChanged("searching"),
        ResultFound("r1", "Light", "https://example.org/"),
        StatusChanged("summarizing"),
        LoopFinished(1),
        LoopFinished(2),
    ]
    assert ResultFound("r1", "Light", "https://example.org/", None, 1) in answer.events
    lines = [e.message for e in answer.events if isinstance(e, ProgressNoted)]
    assert lines == [f"line {n}" for n in range(1, 6)]
    assert answer.details["loops_consumed"] == 2
    assert answer.details["upstream_job"] == "job/1"


def test_sources_are_fetched_where_wanted(native, told) -> None:
    ask, _, _ = native(DONE, fetch_sources=True)
    answer = told(ask.events(ResearchRequest(query="why?")))
    assert SourceStored("r1", raw="raw text", markdown="markdown text") in answer.events


@pytest.mark.parametrize(
    "request_",
    [
        CompletionRequest(prompts=("why?",)),
        ChatRequest(
            messages=(
                Message(role="user", parts=(Part(text="first"),)),
                Message(role="assistant", parts=(Part(text="hm"),)),
                Message(role="user", parts=(Part(text="why?"),)),
            )
        ),
    ],
)
def test_completions_and_chats_are_questions(native, told, request_) -> None:
    ask, server, _ = native(DONE)
    assert told(ask.events(request_)).text() == "Because [1]."
    assert server.asked[0].body == {"query": "why?", "auto": True}


def test_the_shaped_text_is_the_answer(native, told) -> None:
    ask, _, _ = native({**DONE, "transformed_content": '{"a": 1}'})
    answer = told(ask.events(ResearchRequest(query="why?")))
    assert answer.text() == '{"a": 1}'
    assert answer.details["content"] == "Because [1]."


def test_a_failed_job_is_a_failure_with_its_reason(native, told) -> None:
    ask, _, _ = native({"status": "failed", "error": "csk-secret ran out of sources"})
    error = told(ask.events(ResearchRequest(query="why?"))).error
    assert (error.status, error.code) == (502, "research_failed")
    assert error.message == "[secret] ran out of sources"


def test_polls_may_fail_a_few_times(native, told, wire) -> None:
    ask, server, caesar = native(DONE)
    created = wire.json({"id": "job/1", "status": "queued"})
    caesar.failures = [created, *[wire.head(status="503 No", Content_Length="0")] * 4]
    assert told(ask.events(ResearchRequest(query="why?"))).text() == "Because [1]."
    assert len([asked for asked in server.asked if asked.method == "POST"]) == 1


def test_polls_that_go_on_failing_end_it(native, told, wire) -> None:
    ask, _, caesar = native(DONE)
    created = wire.json({"id": "job/1", "status": "queued"})
    caesar.failures = [created, *[wire.head(status="503 No", Content_Length="0")] * 9]
    assert told(ask.events(ResearchRequest(query="why?"))).error.status == 503


def test_a_refused_job_keeps_status_and_words(native, told, wire) -> None:
    ask, _, caesar = native(DONE)
    caesar.failures = [wire.json({"error": "query is blank"}, status="400 Bad Request")]
    error = told(ask.events(ResearchRequest(query=" "))).error
    assert (error.status, error.message) == (400, "query is blank")


@pytest.mark.parametrize(
    ("request_", "param"),
    [
        (CompletionRequest(prompts=("a", "b")), "n"),
        (CompletionRequest(prompts=((1,),)), "prompt"),
        (CompletionRequest(prompts=("a",), echo=True), "echo"),
        (CompletionRequest(prompts=("a",), suffix="s"), "suffix"),
        (CompletionRequest(prompts=("a",), sampling=Sampling(logprobs=1)), "logprobs"),
        (ResearchRequest(query="a", file_ids=("f",)), "files"),
    ],
)
def test_what_a_job_cannot_do_is_refused(native, told, request_, param: str) -> None:
    ask, server, _ = native(DONE)
    error = told(ask.events(request_)).error
    assert (error.status, error.param) == (400, param)
    assert server.made == 0


def test_a_cancel_ends_the_wait(native, told) -> None:
    ask, server, _ = native({"status": "researching"}, poll_interval_s=30)
    context = make_context(timeout_s=0.3)
    error = told(collect_events(ask.backend, ResearchRequest(query="why?"), context)).error
    assert error.status == 504
    assert json.dumps(len(server.asked))
