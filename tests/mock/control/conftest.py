"""A server in mock mode, and what its description says of each answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from jsonschema import Draft202012Validator

from caesar_server.app import create_app
from caesar_server.mock.scopes import Scopes
from caesar_server.settings import Settings
from caesar_server.testing import FakeClock

MakeApp = Callable[..., Flask]


@pytest.fixture
def scopes() -> Scopes:
    return Scopes()


@pytest.fixture
def make_app(scopes: Scopes) -> Iterator[MakeApp]:
    apps = []

    def make(**settings: Any) -> Flask:
        apps.append(create_app(Settings(**settings), clock=FakeClock(), mock=scopes))
        return apps[-1]

    yield make
    for app in apps:
        app.extensions["caesar_server"].close()


@pytest.fixture
def client(make_app: MakeApp) -> FlaskClient:
    return make_app().test_client()


@pytest.fixture(scope="session")
def document() -> Any:
    """The description of the API; of every such server the same."""
    app = create_app(Settings(), mock=Scopes())
    document = app.test_client().get("/openapi.json").json
    app.extensions["caesar_server"].close()
    return document


@pytest.fixture
def complete(client: FlaskClient) -> Callable[..., Any]:
    """Ask for a completion; return the response."""

    def ask(prompt: str = "Hello", *, under: str = "", **fields: Any) -> Any:
        headers = fields.pop("headers", {})
        body = {"model": "m", "prompt": prompt, **fields}
        # to its end, or the exchange would still go on
        return client.post(f"{under}/v1/completions", json=body, headers=headers, buffered=True)

    return ask


@pytest.fixture
def fits(document: Any) -> Callable[[str, Any], None]:
    """Check an answer against a component of the description."""

    def check(component: str, answer: Any) -> None:
        schema = {
            "$ref": f"#/components/schemas/Mock{component}",
            "components": document["components"],
        }
        Draft202012Validator(schema).validate(answer)

    return check
