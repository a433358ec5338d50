"""curl against a real server: what scripts see."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

WITHIN_S = 60
#: Exit codes of curl.
HTTP_ERROR, TIMED_OUT = 22, 28
kinds = pytest.mark.parametrize("kind", ["completions", "chat"])

Curl = Callable[..., subprocess.CompletedProcess[str]]


def body_for(kind: str, prompt: str, model: str, more: dict[str, Any]) -> str:
    question: dict[str, Any] = {"prompt": prompt}
    if kind == "chat":
        question = {"messages": [{"role": "user", "content": prompt}]}
    return json.dumps({"model": model, **question, **more})


@pytest.fixture
def command(server) -> Callable[..., list[str]]:
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("curl is not installed")

    def make(
        kind: str, prompt: str, *flags: str, model: str = "caesar-research", **more: Any
    ) -> list[str]:
        path = {"completions": "/completions", "chat": "/chat/completions"}[kind]
        given = ["-H", "Content-Type: application/json", "-d", body_for(kind, prompt, model, more)]
        return [curl, "-sSN", *flags, *given, server.base_url + path]

    return make


@pytest.fixture
def curl(command) -> Curl:
    def run(*arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command(*arguments, **more), capture_output=True, text=True, timeout=WITHIN_S
        )

    return run


def text_of(choice: dict[str, Any]) -> str:
    if "text" in choice:
        return choice["text"]
    return choice.get("message", choice.get("delta"))["content"]


def frames(output: str) -> list[str]:
    """Return the data of a stream's frames."""
    *whole, rest = output.split("\n\n")
    assert rest == ""
    assert all(frame.startswith("data: ") and "\n" not in frame for frame in whole)
    return [frame.removeprefix("data: ") for frame in whole]


@kinds
def test_a_plain_answer(curl, kind):
    result = curl(kind, "capital?")
    assert result.returncode == 0, result.stderr
    body = json.loads(result.stdout)
    assert text_of(body["choices"][0]) == "The capital is Paris."
    assert body["usage"]["total_tokens"] == 5


@kinds
def test_a_stream_ends_with_its_usage_and_done(curl, kind):
    result = curl(kind, "capital?", stream=True, stream_options={"include_usage": True})
    assert result.returncode == 0, result.stderr
    *chunks, usage, done = frames(result.stdout)
    assert done == "[DONE]"
    assert json.loads(usage)["choices"] == []
    assert json.loads(usage)["usage"]["total_tokens"] == 5
    pieces = [json.loads(chunk)["choices"][0] for chunk in chunks]
    assert "".join(text_of(piece) for piece in pieces[:-1]) == "The capital is Paris."
    assert pieces[-1]["finish_reason"] == "stop"


@pytest.mark.parametrize("stream", [False, True])
@kinds
def test_an_error_before_the_answer_is_an_exit_code_with_fail(curl, kind, stream):
    result = curl(kind, "refused", "--fail-with-body", stream=stream)
    assert result.returncode == HTTP_ERROR
    assert json.loads(result.stdout) == {
        "error": {
            "message": "Not that",
            "type": "invalid_request_error",
            "param": None,
            "code": "bad_idea",
        }
    }


@kinds
def test_an_error_in_mid_stream_is_a_frame_that_no_exit_code_shows(curl, kind):
    result = curl(kind, "breaks", "--fail-with-body", stream=True)
    assert result.returncode == 0, result.stderr
    *_, error, done = frames(result.stdout)
    assert json.loads(error)["error"]["code"] == "lost"
    assert done == "[DONE]"


def test_a_limit_is_retried_after_the_whole_seconds_that_it_names(curl, server):
    result = curl("completions", "curl limited", "--retry", "1", model="limited")
    # What was answered to the first attempt is printed as well.
    first_answer, second_answer = result.stdout.splitlines()
    assert json.loads(first_answer)["error"]["code"] == "rate_limit_exceeded"
    assert text_of(json.loads(second_answer)["choices"][0]) == "At last."
    first, second = server.attempts("curl limited")
    assert second - first >= server.retry_after_s


def test_the_header_that_forbids_a_retry_is_not_known_to_it(curl, server):
    curl("completions", "curl lost", "--retry", "1", model="lost")
    assert len(server.attempts("curl lost")) == 2


@kinds
def test_metadata_arrives_at_the_backend(curl, kind):
    result = curl(kind, "x", model="mirror", metadata={"reasoning_loops": 4})
    asked = json.loads(text_of(json.loads(result.stdout)["choices"][0]))
    assert asked["parameters"]["auto"] is False
    assert asked["parameters"]["reasoning_loops"] == 4


@pytest.mark.parametrize("stream", [False, True])
@kinds
def test_a_client_that_gives_up_ends_the_run(curl, server, kind, stream):
    prompt = f"curl late {kind} {stream}"
    result = curl(kind, prompt, "--max-time", "0.5", model="endless", stream=stream)
    assert result.returncode == TIMED_OUT
    assert server.wait_for_end_of(prompt)


def test_a_client_that_is_stopped_ends_the_run(command, server):
    arguments = command("completions", "curl left", model="endless", stream=True)
    with subprocess.Popen(arguments, stdout=subprocess.PIPE) as client:
        try:
            assert client.stdout.readline().startswith(b"data: ")
        finally:
            client.kill()
    assert server.wait_for_end_of("curl left")
