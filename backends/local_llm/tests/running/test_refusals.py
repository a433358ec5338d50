"""What is refused, and in which words."""

from __future__ import annotations

import pytest

from caesar_server.contract import (
    BrainstormRequest,
    ChatRequest,
    Message,
    Part,
    ResearchRequest,
)


@pytest.mark.parametrize("request_", [ResearchRequest(query="x"), BrainstormRequest(query="x")])
def test_other_requests(echo, request_) -> None:
    assert echo.ask(request_).error.status == 400


def test_a_model_that_is_not_there(opened, tiny_model) -> None:
    path = str(tiny_model("echo").path)
    ask = opened(models={"one": {"path": path}, "two": {"path": path}})
    error = ask.complete("x", model="three").error
    assert (error.status, error.code, error.param) == (404, "model_not_found", "model")
    assert "one, two" in error.message
    assert "'three'" in error.message


def test_models_by_name_and_the_first_without(opened, tiny_model) -> None:
    ask = opened(
        temperature=0,
        models={
            "cats": {"path": str(tiny_model("bigram", text="the cat ran").path)},
            "story": {"path": str(tiny_model("echo").path)},
        },
    )
    assert [model.id for model in ask.backend.models()] == ["cats", "story"]
    assert ask.complete("the", max_tokens=1, model="story").text == " Once"
    assert ask.complete("the", max_tokens=1, model="cats").text == " cat"
    assert ask.complete("the", max_tokens=1).text == " cat"


def test_no_model_at_all(opened) -> None:
    ask = opened()
    error = ask.complete("x").error
    assert (error.status, error.code) == (503, "no_model")
    assert "backends.local_llm.models.NAME.path" in error.message
    assert ask.backend.health().status == "down"


def test_too_long_a_prompt_says_the_numbers(opened, tiny_model) -> None:
    ask = opened(tiny_model("echo").path, n_ctx=256)
    error = ask.complete("Once upon " * 200).error
    assert (error.status, error.code, error.param) == (400, "context_length_exceeded", "prompt")
    assert error.message.startswith("prompt: 402 tokens leave no room")
    assert "is 256 tokens" in error.message


def test_too_long_an_answer_says_the_numbers(opened, tiny_model) -> None:
    ask = opened(tiny_model("echo").path, n_ctx=256)
    error = ask.complete("Once upon", max_tokens=254).error
    assert error.message == (
        "prompt: 3 tokens and max_tokens = 254 make 257; the context of the model 'tiny' is 256 "
        "tokens"
    )
    assert ask.complete("Once upon", max_tokens=253, extra={"ignore_eos": True}).usage == (3, 253)


def test_too_long_a_chat(opened, tiny_model) -> None:
    ask = opened(tiny_model("echo").path, n_ctx=256)
    assert ask.chat(("user", "Once upon " * 200)).error.param == "messages"


def test_every_prompt_is_looked_at_before_the_first_is_answered(opened, tiny_model) -> None:
    ask = opened(tiny_model("echo").path, n_ctx=256)
    answer = ask.complete("Once", "Once upon " * 200)
    assert len(answer.events) == 1
    assert answer.error.code == "context_length_exceeded"


def test_a_suffix_that_the_model_does_not_know(echo) -> None:
    error = echo.complete("Once", suffix=" upon").error
    assert (error.status, error.param) == (400, "suffix")
    assert "'tiny'" in error.message


@pytest.mark.parametrize("token", [-1, 10_000_000])
def test_token_ids_that_the_model_does_not_have(echo, token: int) -> None:
    prompt = echo.complete((1, token)).error
    assert (prompt.status, prompt.param) == (400, "prompt")
    assert str(token) in prompt.message
    bias = echo.complete("x", logit_bias={token: 1.0}).error
    assert (bias.status, bias.param) == (400, "logit_bias")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("top_k", "many"),
        ("top_k", True),
        ("min_p", 2),
        ("repeat_penalty", 0),
        ("repetition_penalty", float("nan")),
        ("ignore_eos", "yes"),
    ],
)
def test_further_fields_of_a_wrong_kind(echo, field, value) -> None:
    error = echo.complete("x", extra={field: value}).error
    assert (error.status, error.param) == (400, field)
    assert error.message.startswith(f"{field}: expected")


def test_fields_that_nobody_knows_are_ignored(echo) -> None:
    assert echo.complete("Once upon", max_tokens=1, extra={"mirostat": 2}).text == " a"


def test_files(echo) -> None:
    message = Message(role="user", parts=(Part(file_id="f"),))
    error = echo.ask(ChatRequest(messages=(message,))).error
    assert (error.status, error.param) == (400, "messages")
