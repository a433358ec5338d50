"""A whole server in mock mode: rules over HTTP, the same bytes each time, exact counts at once."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from caesar_server.app import create_app
from caesar_server.contract import Backend, Completed, ContentDelta, ProgressNoted
from caesar_server.contract.events import ChoiceFinished
from caesar_server.contract.sse import SseDecoder
from caesar_server.mock.calls import CALL_HEADER
from caesar_server.mock.matching import conditions, contains, predicate
from caesar_server.mock.model.fault import Fault
from caesar_server.mock.model.pacing import Pacing
from caesar_server.mock.model.reply import MockResult, Reply
from caesar_server.mock.model.rule import Rule
from caesar_server.mock.scope import EPOCH_S, Manner
from caesar_server.mock.scopes import Scopes
from caesar_server.registry import Registry
from caesar_server.settings import Settings
from caesar_server.testing import LiveServer

MakeApp = Callable[..., Flask]
PATIENCE_S = 60.0


@pytest.fixture
def make_app() -> Iterator[MakeApp]:
    apps: list[Flask] = []

    def make(scopes: Scopes, settings: Settings | None = None, **more: Any) -> Flask:
        app = create_app(settings or Settings(), mock=scopes, **more)
        apps.append(app)
        return app

    yield make
    for app in apps:
        app.extensions["caesar_server"].close()


@pytest.fixture
def scopes() -> Scopes:
    return Scopes()


@pytest.fixture
def client(make_app: MakeApp, scopes: Scopes) -> FlaskClient:
    return make_app(scopes).test_client()


def post(client: FlaskClient, prompt: Any = "hi", **more: Any) -> TestResponse:
    path, headers = more.pop("path", "/compat/completions"), more.pop("headers", {})
    return client.post(path, json={"model": "any", "prompt": prompt, **more}, headers=headers)


def text(response: TestResponse) -> str:
    assert response.status_code == 200, response.text
    return str(response.json["choices"][0]["text"])


def rule(*texts: str, times: int | None = None, **wanted: Any) -> Rule:
    replies = tuple(Reply(text=text) for text in texts)
    return Rule(conditions=conditions(**wanted), replies=replies, times=times)


def test_rules_answer_on_all_paths(client: FlaskClient, scopes: Scopes) -> None:
    scopes.get().add(rule("Yes.", prompt=contains("quantum"), model="an*"))
    assert text(post(client, "quantum?")) == "Yes."
    assert text(post(client, "quantum?", path="/v1/completions")) == "Yes."
    chat = client.post(
        "/v1/chat/completions",
        json={"model": "any", "messages": [{"role": "user", "content": "quantum!"}]},
    )
    assert chat.json["choices"][0]["message"]["content"] == "Yes."
    assert text(post(client, "quantum?", model="other")) == "quantum?"


def test_a_stream_has_the_chunks_of_the_rule(client: FlaskClient, scopes: Scopes) -> None:
    scopes.get().add(Rule(replies=(Reply(text="Error correction improved [1].", chunks=5),)))
    response = post(client, stream=True)
    *chunks, done = [event.data for event in SseDecoder().feed(response.data)]
    pieces = [json.loads(chunk)["choices"][0]["text"] for chunk in chunks]
    assert done == "[DONE]"
    assert (len(pieces[:-1]), "".join(pieces)) == (5, "Error correction improved [1].")


def test_sources_of_a_rule_are_the_references(client: FlaskClient, scopes: Scopes) -> None:
    source = MockResult(title="News", url="https://example.org/n", citation_index=1)
    reply = Reply(text="New [1].", results=(source,), statuses=("searching",), progress=("Looks",))
    scopes.get().add(Rule(replies=(reply,)))
    assert text(post(client)).endswith("[1] [News](https://example.org/n)")


def test_a_system_prompt_gets_the_transformed_text(client: FlaskClient, scopes: Scopes) -> None:
    scopes.get().add(Rule(replies=(Reply(text="Plain", transformed="Shaped"),)))
    assert text(post(client, metadata={"system_prompt": "Be brief"})) == "Shaped"
    assert text(post(client)) == "Plain"


def test_strict_is_a_404_by_scope_or_header(client: FlaskClient, scopes: Scopes) -> None:
    strict = {"X-Caesar-Mock-Strict": "true"}
    for stream in (False, True):
        refused = post(client, "hi", headers=strict, stream=stream)
        assert (refused.status_code, refused.json["error"]["code"]) == (404, "no_fixture_match")
    assert text(post(client)) == "hi"
    scopes.get().strict = True
    assert post(client).status_code == 404


def test_a_predicate_that_raises_is_a_logged_500(
    client: FlaskClient, scopes: Scopes, caplog: pytest.LogCaptureFixture
) -> None:
    def wrong(prompt: str) -> bool:
        raise AssertionError("not this prompt")

    scopes.get().add(rule("x", prompt=predicate(wrong)))
    response = post(client)
    assert (response.status_code, response.json["error"]["code"]) == (500, "internal_error")
    assert "not this prompt" in caplog.text
    caplog.clear()


CALLS: tuple[dict[str, Any], ...] = (
    {"prompt": "one"},
    {"prompt": "one"},
    {"prompt": "two", "stream": True, "logprobs": 2},
    {"prompt": ["pick", "two words"], "n": 2, "logprobs": 3},
    {"prompt": "chance"},
    {"prompt": "chance"},
    {"prompt": "chance"},
    {"prompt": "template", "stream": True},
    {"prompt": 3},
)


def answers(make_app: MakeApp, seed: int) -> list[bytes]:
    scopes = Scopes(Manner(seed=seed))
    scope = scopes.get()
    scope.add(rule("A", "B", prompt="pick"))
    scope.add(Rule(conditions=conditions(prompt="chance"), faults=(CHANCE,)))
    template = "{{ call.prompt }} {{ range(1000) | random }}"
    scope.add(Rule(conditions=conditions(prompt="template"), replies=(Reply(template=template),)))
    client = make_app(scopes).test_client()
    return [post(client, **call).data for call in CALLS]


CHANCE = Fault(kind="status", status=503, probability=0.5)


def test_the_same_seed_and_calls_get_the_same_bytes(make_app: MakeApp) -> None:
    first = answers(make_app, 7)
    assert answers(make_app, 7) == first
    assert answers(make_app, 8) != first
    assert len(set(first)) >= len(CALLS) - 2  # chance may fail alike


def test_ids_are_uuids_and_time_stands_until_it_is_turned(
    client: FlaskClient, scopes: Scopes
) -> None:
    first, second = post(client).json, post(client).json
    assert first["id"] != second["id"]
    assert str(uuid.UUID(first["id"])) == first["id"]
    assert first["created"] == second["created"] == EPOCH_S
    scopes.get().clock.advance(60)
    assert post(client).json["created"] == EPOCH_S + 60


def test_after_a_reset_ids_begin_anew(client: FlaskClient, scopes: Scopes) -> None:
    first = [post(client).data, post(client, stream=True).data]
    scopes.get().reset("counters")
    assert [post(client).data, post(client, stream=True).data] == first


def test_a_job_that_still_runs_keeps_its_id(make_app: MakeApp, scopes: Scopes) -> None:
    scope = scopes.get()
    scope.pacing = Pacing(first_chunk_s=60)
    scope.clock.stop()
    client = make_app(scopes).test_client()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(post, client)
        scope.clock.wait_for_waiters(1)
        scope.reset("counters")
        second = pool.submit(post, client)
        scope.clock.wait_for_waiters(2)
        scope.clock.advance(60)
        found = [waiting.result(PATIENCE_S) for waiting in (first, second)]
    assert [text(response) for response in found] == ["hi", "hi"]
    assert len({response.json["id"] for response in found}) == 2


def test_a_client_cannot_name_another_call(make_app: MakeApp, scopes: Scopes) -> None:
    seen: list[dict[str, str]] = []

    class Looks(Backend):
        def run(self, request: Any, context: Any) -> Iterator[Any]:
            seen.append(dict(context.forwarded.headers))
            yield ContentDelta("x")
            yield ChoiceFinished()
            yield Completed()

    settings = Settings(default_backend="looks", forward_headers=(CALL_HEADER, "x-team"))
    registry = Registry.of({"looks": Looks}, settings)
    client = make_app(scopes, settings, registry=registry).test_client()
    post(client, headers={CALL_HEADER: "7", "x-team": "blue"}).close()
    (headers,) = seen
    assert headers.keys() == {CALL_HEADER, "x-team"}
    assert headers[CALL_HEADER] != "7"
    assert scopes.find_call(headers[CALL_HEADER]) is None


def test_settings_of_other_backends_say_nothing_here(make_app: MakeApp, scopes: Scopes) -> None:
    settings = Settings(
        default_backend="echo",
        allowed_backends=("echo",),
        backends={"upstream": {"base_url": "http://x"}},
        unknown_model="reject",
    )
    client = make_app(scopes, settings).test_client()
    assert text(post(client, model="gpt-4o")) == "hi"
    models = [model["id"] for model in client.get("/v1/models").json["data"]]
    assert models == ["caesar-research", "mock"]


def test_without_mock_mode_nothing_is_told_to_the_backend_and_ids_are_chance() -> None:
    apps = [create_app(Settings(default_backend="mock")) for _ in range(2)]
    ids = [post(app.test_client()).json["id"] for app in apps]
    for app in apps:
        app.extensions["caesar_server"].close()
    assert ids[0] != ids[1]


def test_progress_is_told_before_the_text(client: FlaskClient, scopes: Scopes) -> None:
    scopes.get().add(Rule(replies=(Reply(text="x", progress=("Reading",)),)))
    first, *_ = [event.data for event in SseDecoder().feed(post(client, stream=True).data)]
    assert json.loads(first)["caesar"]["message"] == ProgressNoted("Reading").message


@pytest.mark.slow
def test_200_calls_at_once_over_http_are_counted_exactly(make_app: MakeApp) -> None:
    scopes = Scopes()
    scope = scopes.get("t")
    scope.add(rule("first", "then", prompt=contains("p"), times=120))
    scope.add(Rule(conditions=conditions(stream=True), faults=(Fault(kind="status", status=429),),
                   times=25))  # fmt: skip

    def ask(number: int) -> str:
        body = {"model": "m", "prompt": f"p {number}", "stream": number % 2 == 0}
        request = urllib.request.Request(
            f"{server.base_url}/t/t/compat/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
                data = response.read()
        except urllib.error.HTTPError as error:
            with error:
                return str(error.code)
        if body["stream"]:
            chunks = [event.data for event in SseDecoder().feed(data)]
            pieces = [json.loads(chunk)["choices"][0]["text"] for chunk in chunks[:-1]]
            return "".join(pieces)
        return str(json.loads(data)["choices"][0]["text"])

    app = make_app(scopes, Settings(threads=300))
    with LiveServer(app) as server, ThreadPoolExecutor(200) as pool:
        found = Counter(pool.map(ask, range(200)))
    assert (found["429"], found["first"], found["then"]) == (25, 1, 119)
    assert sum(number for said, number in found.items() if said.startswith("p ")) == 55
    assert [scope.uses(rule_id) for rule_id in ("r1", "r2")] == [120, 25]
    assert len(scope.journal.entries()) == 200
    assert scopes.get().journal.entries() == ()
