"""The official Node SDK against a real server."""

from __future__ import annotations

import json
from functools import partial

import pytest

kinds = pytest.mark.parametrize("kind", ["completions", "chat"])
CITED = "Much is new [1].\n\n## References\n\n[1] [News](https://a.example/)"
USAGE = {"prompt_tokens": 1, "completion_tokens": 4, "total_tokens": 5}


@pytest.fixture
def run(run_node):
    return partial(run_node, "openai_node.mjs")


@pytest.fixture
def stay(staying_node):
    return partial(staying_node, "openai_node.mjs")


@kinds
def test_a_plain_answer(run, kind):
    answer = run("plain", kind=kind, prompt="capital?")
    assert answer["object"] == {"completions": "text_completion", "chat": "chat.completion"}[kind]
    assert answer["texts"] == ["The capital is Paris."]
    assert answer["reasons"] == ["stop"]
    assert answer["usage"] == USAGE
    assert answer["requestID"]


def test_n_and_a_list_of_prompts(run):
    answer = run("plain", kind="completions", prompt=["two", "capital?"], n=2)
    paris = "The capital is Paris."
    assert answer["texts"] == ["One answer.", "Another.", paris, paris]


@kinds
def test_a_stream_without_usage(run, kind):
    answer = run("streamed", kind=kind, prompt="capital?")
    assert answer["text"] == "The capital is Paris."
    assert [reason for reason in answer["reasons"] if reason] == ["stop"]
    assert len(answer["ids"]) == 1
    assert not any(answer["usages"])


@kinds
def test_a_stream_with_usage(run, kind):
    options = {"include_usage": True}
    answer = run("streamed", kind=kind, prompt="capital?", stream_options=options)
    assert answer["text"] == "The capital is Paris."
    *before, last = answer["usages"]
    assert last == USAGE
    assert not any(before)


@kinds
def test_references_and_progress(run, kind):
    answer = run("streamed", kind=kind, prompt="research")
    assert answer["text"] == CITED
    statuses = [step["status"] for step in answer["progress"]]
    assert statuses == ["searching", "summarizing", "summarizing"]


@pytest.mark.parametrize("stream", [False, True])
@kinds
def test_an_error_before_the_answer_is_raised_with_its_words(run, kind, stream):
    error = run("failing", kind=kind, prompt="refused", stream=stream)
    assert (error["name"], error["status"]) == ("BadRequestError", 400)
    assert (error["code"], error["message"]) == ("bad_idea", "400 Not that")
    assert error["text"] is None
    assert error["requestID"]


@pytest.mark.parametrize("stream", [False, True])
@kinds
def test_an_error_of_validation_names_the_field(run, kind, stream):
    metadata = {"reasoning_loops": 99}
    error = run("failing", kind=kind, prompt="x", stream=stream, metadata=metadata)
    assert error["name"] == "BadRequestError"
    assert error["param"] == "metadata.reasoning_loops"


@kinds
def test_an_error_in_mid_stream_is_raised_after_the_text_so_far(run, kind):
    error = run("failing", kind=kind, prompt="breaks", stream=True)
    assert error["text"] == "Half an"
    assert error["name"] == "APIError"
    assert (error["code"], error["type"]) == ("lost", "server_error")
    assert "Gone" in error["message"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_limit_is_retried_after_the_delay_that_it_names(run, server, stream):
    prompt = f"openai-node limited {stream}"
    scenario = "streamed" if stream else "plain"
    answer = run(scenario, kind="completions", prompt=prompt, model="limited", maxRetries=2)
    assert answer["text" if stream else "texts"] in ("At last.", ["At last."])
    first, second = server.attempts(prompt)
    assert second - first >= server.retry_after_s


def test_a_job_that_had_begun_is_not_tried_again(run, server):
    prompt = "openai-node lost"
    error = run("failing", kind="completions", prompt=prompt, model="lost", maxRetries=2)
    assert (error["name"], error["status"]) == ("InternalServerError", 503)
    assert len(server.attempts(prompt)) == 1


@kinds
def test_metadata_arrives_at_the_backend(run, kind):
    metadata = {"reasoning_loops": 4, "exclude_social": "true"}
    answer = run("plain", kind=kind, prompt="x", model="mirror", metadata=metadata)
    parameters = json.loads(answer["texts"][0])["parameters"]
    assert parameters["auto"] is False
    assert parameters["reasoning_loops"] == 4
    assert parameters["exclude_social"] is True


@kinds
def test_leaving_the_loop_ends_the_run(stay, server, kind):
    prompt = f"openai-node left {kind}"
    with stay("leaving", kind=kind, prompt=prompt, model="endless") as left:
        assert left == {"ticks": 3}
        assert server.wait_for_end_of(prompt)


def test_a_plain_call_that_times_out_ends_the_run(stay, server):
    asked = {"kind": "completions", "prompt": "openai-node late", "model": "endless"}
    with stay("failing", **asked, timeout_ms=500) as error:
        assert error["name"] == "APIConnectionTimeoutError"
        assert server.wait_for_end_of("openai-node late")


def test_models(run):
    models = run("models")
    assert "caesar-research" in models["ids"]
    assert models["one"]["owned_by"] == "caesar-server"
