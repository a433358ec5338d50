"""A real server with API keys, a database and two gunicorn workers, for native clients."""

from __future__ import annotations

import http.client
import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from caesar_server.testing import mock_server
from caesar_server.testing.mock.caesar_mock import CaesarMock
from caesar_server.web.access.key_file import edit_key_file
from caesar_server.web.access.keys import Key, KeyLimits, generate_key, hash_key

HERE = Path(__file__).parent
DEADLINE_S = 60.0

#: Each account with what it may have in progress: room enough, but for the one that has to wait.
ACCOUNTS = {"acme": 1000, "lists": 1000, "lists-async": 1000, "waits": 1}

#: What the mock answers: one question for each thing that a client must cope with.
FIXTURES: dict[str, Any] = {
    "capital?": {"text": "The capital is Paris.", "loops": 1},
    "research": {
        "statuses": ["searching", "researching", "analyzing", "summarizing"],
        "progress": ["Reading two pages"],
        "results": [
            {
                "title": "News",
                "url": "https://a.example/",
                "citation_index": 1,
                "score": 0.75,
                "raw": "<h1>News</h1>",
                "markdown": "# News",
            },
            {"title": "Unscored", "url": "https://b.example/", "citation_index": 2},
            {"title": "Uncited", "url": "https://c.example/"},
        ],
        "requests": [
            {"url": "https://a.example/", "duration_ms": 12, "result": 0},
            {"url": "https://search.example/?q=1", "response_status": 503},
            {"url": "https://gone.example/", "response_status": None},
        ],
        "loops": 2,
        "text": "Much is new [1], and more [2].",
        "transformed": '{"summary": "Much is new", "confidence": 7}',
        # so long it is under way when its client asks first
        "pacing": {"first_chunk_s": 0.4},
    },
    "takes long": {"text": "At last.", "pacing": {"first_chunk_s": 3600}},
    "breaks": {"text": "Half", "error": {"status": 503, "code": "lost", "message": "It is gone"}},
}

SETTINGS = """
default_backend = "mock"
workers = 2
keys_file = "keys.json"

[backends]
mock = { fixtures = "fixtures.json" }
"""


@dataclass(frozen=True)
class Answer:
    """What came for a request: status, headers with names in lower case, body as text."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def body(self) -> Any:
        """The body as JSON."""
        return json.loads(self.text)


@dataclass(frozen=True)
class NativeServer:
    """A running server.

    :param url: ``http://127.0.0.1:PORT``.
    :param keys: an API key for each account.
    """

    url: str
    keys: Mapping[str, str]

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send a request with exactly these headers, a key (by default that of ``acme``) besides.

        :param body: sent as JSON unless it is bytes; None sends none.
        """
        connection = http.client.HTTPConnection(self.url.removeprefix("http://"), timeout=60)
        with closing(connection):
            sent = {"Authorization": f"Bearer {key or self.keys['acme']}", **(headers or {})}
            if body is not None and not isinstance(body, bytes):
                body = json.dumps(body).encode()
                sent.setdefault("Content-Type", "application/json")
            connection.request(method, path, body, sent)
            response = connection.getresponse()
            named = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, named, response.read().decode())

    def poll(self, job_id: str, **sending: Any) -> list[Answer]:
        """Ask for a job until it has ended; return all that was seen."""
        seen: list[Answer] = []

        def ended() -> bool:
            seen.append(self.send("GET", f"/research/{job_id}", **sending))
            return seen[-1].body["status"] in ("completed", "failed")

        wait_until(ended)
        return seen


def wait_until(look: Callable[[], Any]) -> Any:
    """Return what ``look`` returns once it is true."""
    deadline = time.monotonic() + DEADLINE_S
    while not (seen := look()):
        assert time.monotonic() < deadline, "it does not come to hold"
        time.sleep(0.02)
    return seen


@pytest.fixture(scope="session", name="wait_until")
def hand_out_wait_until() -> Callable[[Callable[[], Any]], Any]:
    """Wait for something: gives what the function returns once it is true."""
    return wait_until


@pytest.fixture(scope="session")
def native(serve: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NativeServer]:
    """A server with the mock as its backend, and ``reading`` for files."""
    folder: Path = tmp_path_factory.mktemp("native")
    keys = {account: generate_key() for account in ACCOUNTS}
    for account, secret in keys.items():
        key = Key(
            id=account,
            sha256=hash_key(secret),
            account=account,
            limits=KeyLimits(jobs_in_progress=ACCOUNTS[account], loops_per_month=100_000),
        )
        edit_key_file(folder / "keys.json", lambda others, key=key: (*others, key))
    (folder / "fixtures.json").write_text(json.dumps(FIXTURES))
    (folder / "caesar-server.toml").write_text(SETTINGS)
    shutil.copy(HERE / "reading_backend.py", folder)
    backend = "--backend=reading=reading_backend:ReadingBackend"
    # a flag, since the tests of this repository set the variable for it to memory
    flags = (backend, "--store", f"sqlite:///{folder / 'jobs.sqlite3'}")

    def command(port: int) -> list[str]:
        return [sys.executable, "-m", "caesar_server", "serve", "--port", str(port), *flags]

    with serve(command, folder) as port:
        yield NativeServer(f"http://127.0.0.1:{port}", keys)


@pytest.fixture
def caesar_mock() -> Iterator[CaesarMock]:
    """A mock that ends with its test, and its threads with it: later tests count threads."""
    with mock_server() as mock:
        yield mock
