"""Apps with files, in memory and in a database, and forms written by hand."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from caesar_server.app import create_app
from caesar_server.contract import (
    Backend,
    Capabilities,
    ChoiceFinished,
    Completed,
    ContentDelta,
    Context,
    Event,
    Request,
)
from caesar_server.registry import Registry
from caesar_server.settings import Settings
from caesar_server.store.opening import prepare_store
from caesar_server.web.access.key_file import edit_key_file
from caesar_server.web.access.keys import Key, generate_id, generate_key, hash_key

FILES = "/research/files"
COLLECTIONS = "/research/collections"
BOUNDARY = b"boundary-1"
FORM = "multipart/form-data; boundary=boundary-1"


class ReadingBackend(Backend):
    """Answers with what is in the request's files and collections."""

    capabilities = Capabilities(accepts=frozenset({"completion", "chat", "research"}), files=True)

    def run(self, request: Request, context: Context) -> Iterator[Event]:
        for file in context.files.values():
            yield ContentDelta(f"{file.name} ({file.content_type}): {file.path.read_text()}\n")
        for name, files in context.collections.items():
            read = sorted(file.path.read_text() for file in files)
            yield ContentDelta(f"collection {name}: {', '.join(read)}\n")
        yield ContentDelta("end")
        yield ChoiceFinished()
        yield Completed()


class BlindBackend(Backend):
    """Reads no files."""

    capabilities = Capabilities(accepts=frozenset({"completion", "chat", "research"}))

    def run(self, request: Request, context: Context) -> Iterator[Event]:
        yield ContentDelta("blind")
        yield ChoiceFinished()
        yield Completed()


@dataclass
class Served:
    """An app, a client of it, where its files are, and the headers that each account sends."""

    app: Flask
    client: FlaskClient
    folder: Path
    headers: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def services(self) -> Any:
        return self.app.extensions["caesar_server"]

    def upload(self, data: bytes = b"hello", name: str = "a.txt", **fields: Any) -> Any:
        """Upload a file, which must be well, and return what the answer says of it."""
        headers = fields.pop("headers", None)
        reply = self.client.post(
            FILES, data={"file": (io.BytesIO(data), name), **fields}, headers=headers
        )
        assert reply.status_code == 200, reply.text
        return reply.json

    def collection(self, name: str = "set", **more: Any) -> str:
        """Make a collection and return its id."""
        headers = more.pop("headers", None)
        reply = self.client.post(COLLECTIONS, json={"name": name, **more}, headers=headers)
        assert reply.status_code == 200, reply.text
        return str(reply.json["id"])

    def post_form(self, body: bytes, content_type: str | None = FORM, **more: Any) -> Any:
        """Send a body as it is."""
        return self.client.post(FILES, data=body, content_type=content_type, **more)

    def kept(self) -> list[Path]:
        """Return all files that are kept, staged or lent; without the locks of folders."""
        return [path for path in self.folder.rglob("*") if path.is_file() and path.name != ".lock"]


def _make_key(path: Path, account: str) -> dict[str, str]:
    secret = generate_key()
    key = Key(id=generate_id(), sha256=hash_key(secret), account=account)
    edit_key_file(path, lambda keys: (*keys, key))
    return {"Authorization": f"Bearer {secret}"}


def part(name: str, data: bytes, filename: str | None = None, *headers: bytes) -> bytes:
    """Return one part of a form."""
    shown = b"" if filename is None else b'; filename="%b"' % filename.encode()
    return b'--%b\r\nContent-Disposition: form-data; name="%b"%b\r\n%b\r\n%b\r\n' % (
        BOUNDARY,
        name.encode(),
        shown,
        b"".join(header + b"\r\n" for header in headers),
        data,
    )


END = b"--%b--\r\n" % BOUNDARY


@dataclass(frozen=True)
class Forms:
    """What forms are written with."""

    part: Callable[..., bytes] = part
    end: bytes = END
    boundary: bytes = BOUNDARY
    content_type: str = FORM


@pytest.fixture(scope="session")
def forms() -> Forms:
    return Forms()


MakeServed = Callable[..., Served]


@pytest.fixture
def serve_files(tmp_path: Path) -> Iterator[MakeServed]:
    """Make apps; ``backend`` is the class that answers."""
    apps: list[Flask] = []

    def make(
        backend: type[Backend] = ReadingBackend, *, accounts: tuple[str, ...] = (), **settings: Any
    ) -> Served:
        folder, keys = tmp_path / "files", tmp_path / "keys.json"
        headers = {account: _make_key(keys, account) for account in accounts}
        values = Settings(
            **{
                "default_backend": "reading",
                "files": str(folder),
                "keys_file": str(keys),
                **settings,
            }
        )
        prepare_store(values)
        registry = Registry.of({"reading": backend, "blind": BlindBackend}, values)
        app = create_app(values, registry)
        apps.append(app)
        return Served(app, app.test_client(), folder, headers)

    yield make
    for app in apps:
        app.extensions["caesar_server"].close()


@pytest.fixture(params=["memory", "sqlite"])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where jobs are: in memory, or in a database."""
    return "memory" if request.param == "memory" else f"sqlite:///{tmp_path}/jobs.sqlite3"


@pytest.fixture
def served(stored: str, serve_files: MakeServed) -> Served:
    """An app whose jobs are in one of them."""
    return serve_files(store=stored)


@pytest.fixture
def plain(serve_files: MakeServed) -> Served:
    """An app whose jobs are in memory."""
    return serve_files()
