"""A mock's own routes of Caesar, by Flask's client and over a socket."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from flask.testing import FlaskClient

from caesar_server.app import create_app
from caesar_server.mock.matching import conditions
from caesar_server.mock.model.fault import Fault
from caesar_server.mock.model.reply import Reply
from caesar_server.mock.model.rule import Rule
from caesar_server.mock.scope import Scope
from caesar_server.mock.scopes import Scopes
from caesar_server.settings import Settings


@pytest.fixture
def scopes() -> Scopes:
    return Scopes()


@pytest.fixture
def client(scopes: Scopes) -> Iterator[FlaskClient]:
    app = create_app(Settings(), mock=scopes)
    yield app.test_client()
    app.extensions["caesar_server"].close()


@pytest.fixture
def reply(scopes: Scopes) -> Callable[..., None]:
    """Adds a rule that answers: the fields of a reply, and conditions as ``when``."""

    def add(scope: Scope | None = None, when: dict[str, Any] | None = None, **fields: Any) -> None:
        rule = Rule(conditions=conditions(**(when or {})), replies=(Reply(**fields),))
        (scope or scopes.get()).add(rule)

    return add


@pytest.fixture
def fault(scopes: Scopes) -> Callable[..., None]:
    """Adds a rule that lets something go wrong."""

    def add(kind: Any, when: dict[str, Any], times: int | None = None, **fields: Any) -> None:
        found = (Fault(kind=kind, **fields),)
        scopes.get().add(Rule(conditions=conditions(**when), faults=found, times=times))

    return add


@pytest.fixture
def create(client: FlaskClient) -> Callable[..., str]:
    """Begins a job and returns its id."""

    def post(query: str = "Why?", prefix: str = "", **body: Any) -> str:
        response = client.post(f"{prefix}/research", json={"query": query, **body})
        assert response.status_code == 200, response.text
        assert response.json["status"] == "queued"
        return str(response.json["id"])

    return post


@pytest.fixture
def statuses(client: FlaskClient) -> Callable[..., list[str]]:
    """Polls a job and returns what each poll sees."""

    def poll(job_id: str, times: int, prefix: str = "") -> list[str]:
        path = f"{prefix}/research/{job_id}"
        return [client.get(path).json["status"] for _ in range(times)]

    return poll
