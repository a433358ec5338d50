"""The Vercel AI SDK, with its provider for OpenAI-compatible servers, against a real server."""

from __future__ import annotations

import json
from functools import partial

import pytest

kinds = pytest.mark.parametrize("kind", ["completions", "chat"])
CITED = "Much is new [1].\n\n## References\n\n[1] [News](https://a.example/)"


@pytest.fixture
def run(run_node):
    return partial(run_node, "vercel_ai_sdk.mjs")


@kinds
def test_a_plain_answer(run, kind):
    answer = run("plain", kind=kind, prompt="capital?")
    assert answer["text"] == "The capital is Paris."
    assert answer["finishReason"] == "stop"
    # The completion model wraps the prompt in a transcript, whose two labels are words too.
    words = 3 if kind == "completions" else 1
    assert answer["usage"]["inputTokens"] == words
    assert answer["usage"]["outputTokens"] == 4


@kinds
def test_a_stream_has_usage_only_where_the_provider_asks_for_it(run, kind):
    answer = run("streamed", kind=kind, prompt="capital?", usage=True)
    assert answer["text"] == "The capital is Paris."
    assert answer["finish"] == "stop"
    assert answer["errors"] == []
    assert answer["usage"]["outputTokens"] == 4
    without = run("streamed", kind=kind, prompt="capital?")
    assert without["text"] == answer["text"]
    assert "outputTokens" not in without["usage"]


@kinds
def test_references_and_progress(run, kind):
    answer = run("streamed", kind=kind, prompt="research")
    assert answer["text"] == CITED
    # The chunks of a text completion have no place for it that this client would read.
    progress = "searching\nsummarizing\nReading\n" if kind == "chat" else ""
    assert answer["reasoning"] == progress


@kinds
def test_an_error_before_the_answer_has_the_whole_body(run, kind):
    error = run("failing", kind=kind, prompt="refused")
    assert (error["name"], error["statusCode"]) == ("AI_APICallError", 400)
    assert error["message"] == "Not that"
    assert error["body"]["error"]["code"] == "bad_idea"
    assert error["isRetryable"] is False


@kinds
def test_an_error_before_a_stream_is_its_only_part(run, kind):
    answer = run("streamed", kind=kind, prompt="refused")
    assert answer["types"] == ["start", "error"]
    (error,) = answer["errors"]
    assert (error["name"], error["statusCode"]) == ("AI_APICallError", 400)
    assert error["body"]["error"]["code"] == "bad_idea"


@kinds
def test_an_error_in_mid_stream_is_a_part_and_raises_nothing(run, kind):
    answer = run("streamed", kind=kind, prompt="breaks")
    assert answer["text"] == "Half an"
    assert answer["finish"] == "error"
    (error,) = answer["errors"]
    assert error["value"] == {
        "message": "Gone",
        "type": "server_error",
        "param": None,
        "code": "lost",
    }


def test_the_text_alone_does_not_tell_that_a_stream_broke_off(run):
    answer = run("textOnly", kind="completions", prompt="breaks")
    assert answer == {"text": "Half an", "whole": "Half an", "finish": "error"}


@kinds
def test_a_limit_is_retried_after_the_delay_that_it_names(run, server, kind):
    prompt = f"ai-sdk limited {kind}"
    answer = run("plain", kind=kind, prompt=prompt, model="limited", maxRetries=1)
    assert answer["text"] == "At last."
    first, second = server.attempts(prompt)
    assert second - first >= server.retry_after_s


def test_the_header_that_forbids_a_retry_is_not_known_to_it(run, server):
    prompt = "ai-sdk lost"
    error = run("failing", kind="chat", prompt=prompt, model="lost", maxRetries=1)
    assert (error["name"], error["attempts"]) == ("AI_RetryError", 2)
    assert len(server.attempts(prompt)) == 2


@kinds
def test_metadata_arrives_at_the_backend(run, kind):
    options = {"caesar": {"metadata": {"reasoning_loops": 4, "exclude_social": True}}}
    answer = run("plain", kind=kind, prompt="x", model="mirror", providerOptions=options)
    parameters = json.loads(answer["text"])["parameters"]
    assert parameters["auto"] is False
    assert parameters["reasoning_loops"] == 4
    assert parameters["exclude_social"] is True


def test_a_completion_model_sends_a_transcript_and_a_stop_sequence(run):
    answer = run("plain", kind="completions", prompt="x", model="mirror")
    asked = json.loads(answer["text"])
    assert asked["prompts"] == ["user:\nx\n\nassistant:\n"]
    assert asked["sampling"]["stop"] == ["\nuser:"]


@kinds
def test_aborting_ends_the_run(staying_node, server, kind):
    prompt = f"ai-sdk left {kind}"
    asked = {"kind": kind, "prompt": prompt, "model": "endless"}
    with staying_node("vercel_ai_sdk.mjs", "leaving", **asked) as answer:
        assert answer["text"].startswith("tick tick tick ")
        assert "abort" in answer["types"]
        assert answer["errors"] == []
        assert server.wait_for_end_of(prompt)
