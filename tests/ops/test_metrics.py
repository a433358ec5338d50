"""Who may read ``/metrics``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from flask.testing import FlaskClient

from caesar_server.app import create_app
from caesar_server.contract import ChoiceFinished, Completed, ContentDelta
from caesar_server.registry import Registry
from caesar_server.settings import Settings
from caesar_server.testing import scripted_backend

KEY = "csk-a-key-for-the-scraper"


@pytest.fixture
def client_for() -> Iterator[Callable[..., FlaskClient]]:
    """Make an app with these settings; gives its client."""
    apps = []

    def make(**settings: Any) -> FlaskClient:
        values = Settings(default_backend="hello", **settings)
        backend = scripted_backend((ContentDelta("hello"), ChoiceFinished(), Completed()))
        apps.append(create_app(values, Registry.of({"hello": backend}, values)))
        return apps[-1].test_client()

    yield make
    for app in apps:
        app.extensions["caesar_server"].close()


ClientFor = Callable[..., FlaskClient]


def test_open_without_keys(client_for: ClientFor) -> None:
    reply = client_for(keys_file="/nowhere/keys.json").get("/metrics")
    assert reply.status_code == 200
    assert reply.content_type == "text/plain; version=0.0.4; charset=utf-8"
    assert reply.headers["Cache-Control"] == "no-store"
    assert "caesar_build_info{" in reply.text


def test_asks_for_a_key_where_there_are_keys(client_for: ClientFor) -> None:
    client = client_for(api_keys=(KEY,))
    refused = client.get("/metrics")
    assert refused.status_code == 401
    assert "caesar_" not in refused.text
    with_key = client.get("/metrics", headers={"Authorization": f"Bearer {KEY}"})
    assert with_key.status_code == 200
    assert 'caesar_refusals_total{code="' in with_key.text
    assert KEY not in with_key.text


def test_open_if_the_operator_wants_it_and_nothing_else_is(client_for: ClientFor) -> None:
    client = client_for(api_keys=(KEY,), metrics_public=True)
    assert client.get("/metrics").status_code == 200
    assert client.get("/compat/models").status_code == 401


def test_other_methods_are_refused(client_for: ClientFor) -> None:
    assert client_for().post("/metrics", json={}).status_code == 405
    assert client_for().head("/metrics").status_code == 200
