"""Apps for tests of the OpenAI-compatible surface."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
from flask.testing import FlaskClient

from caesar_server.app import create_app
from caesar_server.contract import Backend
from caesar_server.registry import Registry
from caesar_server.settings import Settings
from caesar_server.testing import FakeClock, scripted_backend

MakeClient = Callable[..., FlaskClient]


@pytest.fixture
def make_client() -> Iterator[MakeClient]:
    """Return a function from a backend class, or a script, and settings to a client of an app."""
    apps = []

    def make(
        backend: Any, *, capabilities: Mapping[str, Any] | None = None, **settings: Any
    ) -> FlaskClient:
        if not (isinstance(backend, type) and issubclass(backend, Backend)):
            channels = frozenset({"content", "reasoning"})
            backend = scripted_backend(backend, **{"channels": channels, **(capabilities or {})})
        values = Settings(default_backend="scripted", **settings)
        app = create_app(
            values,
            Registry.of({"scripted": backend}, values),
            clock=FakeClock(time_s=1_700_000_000.75),
        )
        apps.append(app)
        return app.test_client()

    yield make
    for app in apps:
        app.extensions["caesar_server"].close()


class Changeable:
    """Events that a test exchanges between requests to one app."""

    events: Sequence[Any] = ()


@pytest.fixture
def shared_client(make_client: MakeClient) -> tuple[FlaskClient, Changeable]:
    """Return a client and the object whose ``events`` the next request plays."""
    changeable = Changeable()
    channels = frozenset({"content", "transformed", "reasoning"})
    client = make_client(lambda request: changeable.events, capabilities={"channels": channels})
    return client, changeable
