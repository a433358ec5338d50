"""Apps that ask for keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from caesar_server.app import create_app
from caesar_server.contract import ChoiceFinished, Completed, ContentDelta
from caesar_server.registry import Registry
from caesar_server.settings import Settings
from caesar_server.testing import FakeClock, ScriptedBackend, scripted_backend
from caesar_server.web.access.key_file import edit_key_file
from caesar_server.web.access.keys import Key, KeyLimits, generate_id, generate_key, hash_key

HELLO = (ContentDelta("hello"), ChoiceFinished(), Completed())


class KeyMaker:
    """Puts keys into a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def make(self, account: str = "acme", *, limits: KeyLimits | None = None, **fields: Any) -> str:
        """Add a key and return it."""
        secret = generate_key()
        key = Key(
            id=generate_id(),
            sha256=hash_key(secret),
            account=account,
            limits=limits or KeyLimits(),
            **fields,
        )
        edit_key_file(self.path, lambda keys: (*keys, key))
        return secret

    def empty(self) -> None:
        """Leave a file without keys."""
        edit_key_file(self.path, lambda _: ())


@dataclass
class Served:
    """An app, its client and what a test looks at."""

    app: Flask
    client: FlaskClient
    clock: FakeClock
    backend: type[ScriptedBackend]
    keys: KeyMaker

    def complete(
        self, key: str | None = None, path: str = "/compat/completions", **body: Any
    ) -> Any:
        """Send a completion request."""
        return self.client.post(
            path, json={"model": "m", "prompt": "p", **body}, headers=bearer(key)
        )


def bearer(key: str | None) -> dict[str, str]:
    """Return the headers that show a key."""
    return {} if key is None else {"Authorization": f"Bearer {key}"}


MakeServed = Callable[..., Served]


@pytest.fixture
def serve_app(tmp_path: Path) -> Iterator[MakeServed]:
    """Make apps with a file of keys, which is not there yet."""
    apps = []

    def make(script: Any = HELLO, *, clock: Any = None, **settings: Any) -> Served:
        keys = KeyMaker(tmp_path / "keys.json")
        backend = scripted_backend(script)
        values = Settings(
            **{"default_backend": "scripted", "keys_file": str(keys.path), **settings}
        )
        clock = clock or FakeClock()
        app = create_app(values, Registry.of({"scripted": backend}, values), clock=clock)
        apps.append(app)
        return Served(app, app.test_client(), clock, backend, keys)

    yield make
    for app in apps:
        app.extensions["caesar_server"].close()


@pytest.fixture
def key_maker(tmp_path: Path) -> KeyMaker:
    """Fill the file of keys before there is an app."""
    return KeyMaker(tmp_path / "keys.json")
