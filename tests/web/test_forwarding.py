"""What of the caller's request reaches a backend: what the operator lists, and nothing else."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from caesar_server.app import create_app
from caesar_server.contract import ChoiceFinished, Completed, Context, Event
from caesar_server.contract.context import Forwarded
from caesar_server.registry import Registry
from caesar_server.settings import Settings
from caesar_server.testing import LiveServer, SseClient, scripted_backend

HEADERS = {"Authorization": "Bearer callers-own-key", "X-Tenant": "blue", "Cookie": "a=b"}


@contextmanager
def serving(seen: list[Forwarded], **settings: object) -> Iterator[SseClient]:
    def note(context: Context) -> list[Event]:
        seen.append(context.forwarded)
        return [ChoiceFinished(), Completed()]

    chosen = Settings(**settings)
    app = create_app(chosen, registry=Registry.of({"one": scripted_backend([note])}, chosen))
    with LiveServer(app) as server:
        yield server.client()


def ask(client: SseClient, stream: bool, headers: dict[str, str] = HEADERS) -> int:
    body = {"model": "one", "prompt": "x", "stream": stream}
    response = client.post("/compat/completions", body, headers=headers)
    response.read()
    return response.status


@pytest.mark.parametrize("stream", [False, True])
def test_nothing_is_forwarded_by_default(stream: bool) -> None:
    seen: list[Forwarded] = []
    with serving(seen) as client:
        assert ask(client, stream) == 200
    assert seen == [Forwarded()]


@pytest.mark.parametrize("stream", [False, True])
def test_listed_headers_and_the_callers_key_are(stream: bool) -> None:
    seen: list[Forwarded] = []
    with serving(seen, forward_headers=("X-Tenant", "Authorization", "x-absent")) as client:
        assert ask(client, stream) == 200
    assert seen == [Forwarded({"x-tenant": "blue"}, "callers-own-key")]
    assert "callers-own-key" not in repr(seen)


def test_a_key_of_this_server_stays_here() -> None:
    seen: list[Forwarded] = []
    digest = "sha256:" + hashlib.sha256(b"callers-own-key").hexdigest()
    with serving(seen, forward_headers=("authorization",), api_keys=(digest,)) as client:
        assert ask(client, False) == 200
    assert seen == [Forwarded()]


@pytest.mark.parametrize("value", ["Basic dTpw", "Bearer", "Bearer two words"])
def test_what_is_no_bearer_key_is_not_forwarded(value: str) -> None:
    seen: list[Forwarded] = []
    with serving(seen, forward_headers=("authorization",)) as client:
        assert ask(client, False, {"Authorization": value}) == 200
    assert seen == [Forwarded()]
