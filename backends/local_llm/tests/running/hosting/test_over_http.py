"""Through the server: what the surfaces make of the events."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from flask.testing import FlaskClient

from caesar_backend_local_llm import LocalLlmBackend
from caesar_server.app import create_app
from caesar_server.registry import Registry
from caesar_server.settings import Settings


@pytest.fixture
def client(engine: Any, tiny_model: Callable[..., Any]) -> Iterator[FlaskClient]:
    models = {"tiny": {"path": str(tiny_model("random", fill_in=True).path)}}
    settings = Settings(
        default_backend="local_llm", backends={"local_llm": {"models": models}}, threads=8
    )
    app = create_app(settings, Registry.of({"local_llm": LocalLlmBackend}, settings))
    yield app.test_client()
    app.extensions["caesar_server"].close()


def chunks(client: FlaskClient, path: str, body: dict[str, Any]) -> list[Any]:
    asked = {**body, "stream": True, "stream_options": {"include_usage": True}}
    lines = client.post(path, json=asked).get_data(as_text=True).splitlines()
    data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    assert data.pop() == "[DONE]"
    return [json.loads(item) for item in data]


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"n": 3},
        {"echo": True, "logprobs": 2},
        {"stop": ["a", "e"], "logprobs": 1},
        {"prompt": [[5, 6, 7], [8]], "echo": True},
        {"suffix": " upon"},
        {"frequency_penalty": 1, "logit_bias": {"40": 2}, "top_p": 0.9, "top_k": 20},
        {"response_format": {"type": "json_object"}},
    ],
)
def test_a_stream_says_what_the_answer_says(client: FlaskClient, more: dict[str, Any]) -> None:
    body = {"model": "local_llm/tiny", "prompt": "Once", "seed": 4, "max_tokens": 20, **more}
    whole = client.post("/compat/completions", json=body).get_json()
    stream = chunks(client, "/compat/completions", body)
    assert stream[-1]["usage"] == whole["usage"]
    assert stream[-1]["choices"] == []
    found = [choice for chunk in stream for choice in chunk["choices"]]
    for choice in whole["choices"]:
        mine = [part for part in found if part["index"] == choice["index"]]
        assert "".join(part["text"] for part in mine) == choice["text"]
        assert [part["finish_reason"] for part in mine if part["finish_reason"]] == [
            choice["finish_reason"]
        ]
        if choice["logprobs"] is not None:
            for name, values in choice["logprobs"].items():
                parts = [part["logprobs"][name] for part in mine if part["logprobs"]]
                assert [value for part in parts for value in part] == values


def test_chats(client: FlaskClient) -> None:
    body = {
        "model": "local_llm",
        "messages": [{"role": "user", "content": "hi"}],
        "seed": 4,
        "max_completion_tokens": 12,
        "logprobs": True,
        "top_logprobs": 3,
    }
    whole = client.post("/compat/chat/completions", json=body).get_json()
    stream = chunks(client, "/compat/chat/completions", body)
    (choice,) = whole["choices"]
    deltas = [part["delta"].get("content") or "" for c in stream for part in c["choices"]]
    assert "".join(deltas) == choice["message"]["content"]
    assert stream[-1]["usage"] == whole["usage"]
    assert len(choice["logprobs"]["content"]) == whole["usage"]["completion_tokens"] == 12
    assert all(len(token["top_logprobs"]) == 3 for token in choice["logprobs"]["content"])


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("change", "status", "param", "code"),
    [
        ({"model": "local_llm/other"}, 404, "model", "model_not_found"),
        ({"max_tokens": 0}, 400, "max_tokens", None),
        ({"max_tokens": 100_000}, 400, "prompt", "context_length_exceeded"),
        ({"prompt": ""}, 400, "prompt", None),
        ({"prompt": [99_999_999]}, 400, "prompt", None),
        ({"logit_bias": {"99999999": 1}}, 400, "logit_bias", None),
        ({"grammar": "root ::= ("}, 400, "grammar", None),
    ],
)
def test_mistakes_have_a_status_of_their_own(
    client: FlaskClient, change, status: int, param: str, code: str | None, stream: bool
) -> None:
    body = {"model": "local_llm/tiny", "prompt": "Once", "stream": stream, **change}
    response = client.post("/compat/completions", json=body)
    error = response.get_json()["error"]
    assert (response.status_code, error["param"]) == (status, param), error
    assert code is None or error["code"] == code


def test_the_models_are_listed(client: FlaskClient) -> None:
    listed = client.get("/compat/models").get_json()["data"]
    assert [model["id"] for model in listed if "/" in model["id"]] == ["local_llm/tiny"]
