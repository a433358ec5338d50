"""Apps for tests of the native surface."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from caesar_server.app import create_app
from caesar_server.contract import (
    ChoiceFinished,
    Completed,
    ContentDelta,
    Event,
    LoopFinished,
    ProgressNoted,
    RequestLogged,
    ResultFound,
    SourceStored,
    StatusChanged,
)
from caesar_server.registry import Registry
from caesar_server.settings import Settings
from caesar_server.testing import scripted_backend
from caesar_server.web.access.key_file import edit_key_file
from caesar_server.web.access.keys import Key, KeyLimits, generate_id, generate_key, hash_key
from caesar_server.web.services import services_of

TERMINAL = ("completed", "failed")
#: A whole piece of research, with everything that a backend can tell.
RESEARCH: tuple[Event, ...] = (
    StatusChanged("searching", "Looking around"),
    ProgressNoted("Two sources"),
    ResultFound("r2", "Second", "https://example.org/2", 0.4, 2),
    ResultFound("r1", "First", "https://example.org/1", 0.9, 1),
    ResultFound("r3", "Not cited", "https://example.org/3"),
    SourceStored("r1", raw="<p>One</p>", markdown="One"),
    SourceStored("r2", markdown="Two"),
    RequestLogged("https://search.example", response_status=503, provider="search"),
    RequestLogged("https://search.example", response_status=200, duration_ms=12, provider="search"),
    RequestLogged("https://example.org/1", response_status=200, result_id="r1"),
    LoopFinished(1),
    StatusChanged("researching"),
    LoopFinished(2),
    StatusChanged("summarizing"),
    ContentDelta("It works [1]"),
    ContentDelta(" and [2]."),
    ChoiceFinished(),
    Completed(),
)


@dataclass
class Served:
    """An app and its client, with what a test often does."""

    app: Flask
    client: FlaskClient

    def create(self, headers: Any = None, **body: Any) -> str:
        """Begin a job and return its id."""
        response = self.client.post("/research", json={"query": "Why?", **body}, headers=headers)
        assert response.status_code == 200, response.text
        assert response.json["status"] == "queued"
        return str(response.json["id"])

    def get(self, path: str, headers: Any = None) -> Any:
        """Return the JSON at a path."""
        response = self.client.get(path, headers=headers)
        assert response.status_code == 200, response.text
        return response.json

    def ended(self, job_id: str, headers: Any = None) -> Any:
        """Return the object of a job once it has ended."""
        return self.until(
            lambda: self.get(f"/research/{job_id}", headers),
            lambda found: found["status"] in TERMINAL,
        )

    def until(self, look: Callable[[], Any], is_so: Callable[[Any], bool]) -> Any:
        """Return what is seen once it is so."""
        deadline = time.monotonic() + 60
        while not is_so(found := look()):
            assert time.monotonic() < deadline, found
            time.sleep(0.005)
        return found

    @property
    def store(self) -> Any:
        """The app's store."""
        return services_of(self.app).store


@pytest.fixture
def serve() -> Iterator[Callable[..., Served]]:
    """Return a function from a script, or a backend class, and settings to an app."""
    apps = []

    def make(backend: Any = RESEARCH, *, able: Any = None, clock: Any = None, **settings: Any):
        if not isinstance(backend, type):
            backend = scripted_backend(backend, **(able or {}))
        values = Settings(default_backend="scripted", **settings)
        app = create_app(values, Registry.of({"scripted": backend}, values), clock=clock)
        apps.append(app)
        return Served(app, app.test_client())

    yield make
    for app in apps:
        services_of(app).close()


@pytest.fixture
def make_key(tmp_path: Path) -> Callable[..., dict[str, str]]:
    """Return a function that puts a key into ``keys.json`` and returns the headers to send."""

    def make(account: str = "acme", *, limits: KeyLimits | None = None, **fields: Any):
        secret = generate_key()
        key = Key(
            id=generate_id(),
            sha256=hash_key(secret),
            account=account,
            limits=limits or KeyLimits(),
            **fields,
        )
        edit_key_file(tmp_path / "keys.json", lambda keys: (*keys, key))
        return {"Authorization": f"Bearer {secret}"}

    return make
