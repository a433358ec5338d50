"""What the mock answers, streamed and not, is what the description says: no more and no less."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from caesar_server.app import create_app
from caesar_server.contract.sse import SseDecoder
from caesar_server.registry import Registry
from caesar_server.settings import Settings

FIXTURES = {
    "research": {
        "text": "Much is new [1].",
        "statuses": ["searching", "summarizing"],
        "progress": ["Reading"],
        "results": [{"title": "News", "url": "https://a.example/", "citation_index": 1}],
    },
    "two": {"text": ["One answer.", "Another."]},
    "breaks": {"text": "Half an", "error": {"status": 503, "code": "lost", "message": "Gone"}},
    "refused": {"error": {"status": 400, "code": "bad_idea", "message": "Not that"}},
}

TEXT = st.one_of(st.sampled_from(sorted(FIXTURES)), st.text(min_size=1, max_size=40))
#: The members that both endpoints have; null is absent.
SAMPLING = {
    "max_tokens": st.none() | st.integers(1, 12),
    "temperature": st.none() | st.floats(0, 2),
    "top_p": st.floats(0, 1),
    "frequency_penalty": st.integers(-2, 2),
    "logit_bias": st.dictionaries(st.integers(0, 50_000).map(str), st.floats(-100, 100)),
    "seed": st.integers(-(2**63), 2**63 - 1),
    "stop": st.none() | st.text(min_size=1, max_size=3) | st.lists(st.just("new"), max_size=4),
    "n": st.integers(1, 4),
    "user": st.text(max_size=10),
    "metadata": st.none()
    | st.fixed_dictionaries({}, optional={"reasoning_loops": st.sampled_from([1, "3", None])}),
}
COMPLETIONS = st.fixed_dictionaries(
    {
        "model": st.text(min_size=1, max_size=10),
        "prompt": TEXT | st.lists(TEXT, min_size=1, max_size=3),
    },
    optional={**SAMPLING, "echo": st.booleans()},
)
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {
            "role": st.sampled_from(["system", "user", "assistant"]),
            "content": TEXT | TEXT.map(lambda text: [{"type": "text", "text": text}]),
        }
    ),
    max_size=3,
)
CHATS = st.fixed_dictionaries(
    {
        "model": st.text(min_size=1, max_size=10),
        "messages": st.tuples(MESSAGES, TEXT).map(
            lambda pair: [*pair[0], {"role": "user", "content": pair[1]}]
        ),
    },
    optional=SAMPLING,
)


def closed(schema: Any) -> Any:
    """Return ``schema`` so that members which it does not name are errors."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: closed(value) for key, value in schema.items()}
    if "properties" in schema and "type" in schema:
        found.setdefault("additionalProperties", False)
    return found


@pytest.fixture(scope="module")
def mock_app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flask]:
    path = tmp_path_factory.mktemp("mock") / "fixtures.json"
    path.write_text(json.dumps(FIXTURES))
    settings = Settings(
        default_backend="mock",
        allowed_backends=("mock",),
        backends={"mock": {"fixtures": str(path)}},
    )
    app = create_app(settings, Registry.from_entry_points(settings))
    # Its threads exist before the first test, so that no test is blamed for them.
    app.test_client().post(
        "/v1/completions", json={"model": "m", "prompt": "p", "stream": True}
    ).close()
    yield app
    app.extensions["caesar_server"].close()


@pytest.fixture(scope="module")
def client(mock_app: Flask) -> FlaskClient:
    return mock_app.test_client()


@pytest.fixture(scope="module")
def check(client: FlaskClient) -> Any:
    """Return a function that compares a value with a component, strictly."""
    components = client.get("/openapi.json").json["components"]
    schemas = closed(components["schemas"])
    validators = {
        name: Draft202012Validator(
            {"$ref": f"#/components/schemas/{name}", "components": {"schemas": schemas}},
            format_checker=Draft202012Validator.FORMAT_CHECKER,
        )
        for name in schemas
    }
    return lambda name, value: validators[name].validate(value)


def test_the_comparison_is_strict(check) -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    check("Usage", usage)
    for wrong in ({**usage, "more": 1}, {"prompt_tokens": 1}, {**usage, "total_tokens": "2"}):
        with pytest.raises(Exception, match=r"is not|unexpected|required"):
            check("Usage", wrong)


def events_of(data: bytes) -> list[str]:
    return [event.data for event in SseDecoder().feed(data)]


def compare(
    client: FlaskClient, check: Any, path: str, names: tuple[str, str], body: dict[str, Any]
) -> None:
    whole = client.post(path, json=body)
    if whole.status_code == 200:
        check(names[0], whole.json)
    else:
        check("Error", whole.json)
    for options in (None, {"include_usage": True}):
        reply = client.post(path, json={**body, "stream": True, "stream_options": options})
        if reply.content_type == "application/json":
            assert reply.status_code == whole.status_code
            check("Error", reply.json)
            continue
        *chunks, last = events_of(reply.data)
        assert last == "[DONE]"
        for chunk in map(json.loads, chunks):
            check("Error" if "error" in chunk else names[1], chunk)
        assert (whole.status_code == 200) == ("error" not in json.loads(chunks[-1]))


GENERATED = settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@GENERATED
@given(body=COMPLETIONS)
@example(body={"model": "m", "prompt": ["research", "two"], "n": 2, "echo": True})
@example(body={"model": "m", "prompt": "breaks"})
@example(body={"model": "m", "prompt": "refused"})
def test_completions_match_the_description(client, check, body: dict[str, Any]) -> None:
    compare(client, check, "/compat/completions", ("Completion", "CompletionChunk"), body)


@GENERATED
@given(body=CHATS)
@example(body={"model": "m", "messages": [{"role": "user", "content": "research"}]})
@example(body={"model": "m", "messages": [{"role": "user", "content": "breaks"}], "n": 2})
def test_chats_match_the_description(client, check, body: dict[str, Any]) -> None:
    names = ("ChatCompletion", "ChatCompletionChunk")
    compare(client, check, "/compat/chat/completions", names, body)


@pytest.mark.parametrize("top", [0, 2])
def test_log_probabilities_match_the_description(app: Flask, check, top: int) -> None:
    able = app.test_client()
    prompt = {"model": "m", "prompt": ["p", "q"], "n": 2, "logprobs": top}
    compare(able, check, "/compat/completions", ("Completion", "CompletionChunk"), prompt)
    assert able.post("/v1/completions", json=prompt).json["choices"][3]["logprobs"]["tokens"]
    messages = [{"role": "user", "content": "q"}]
    chat = {"model": "m", "messages": messages, "logprobs": True, "top_logprobs": top}
    names = ("ChatCompletion", "ChatCompletionChunk")
    compare(able, check, "/compat/chat/completions", names, chat)


def test_models_match_the_description(client, check) -> None:
    models = client.get("/compat/models").json
    check("ModelList", models)
    for model in models["data"]:
        check("Model", client.get(f"/compat/models/{model['id']}").json)


def test_the_operators_answers_match_the_description(client, check) -> None:
    check("Health", client.get("/healthz").json)
    check("Health", client.get("/health").json)
    check("Readiness", client.get("/readyz").json)
    check("NativeError", client.get("/nowhere").json)


def test_closing_a_schema_leaves_the_original_alone() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "object", "properties": {}}}}
    before = copy.deepcopy(schema)
    assert closed(schema)["properties"]["a"]["additionalProperties"] is False
    assert schema == before
