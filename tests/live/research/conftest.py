"""A server of two workers with keys and a database, whose workers can be asked one by one."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
import threading
import time
import urllib.parse
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from caesar_server.contract.sse import ServerSentEvent, SseDecoder
from caesar_server.web.access.key_file import edit_key_file
from caesar_server.web.access.keys import Key, KeyLimits, generate_key, hash_key

HERE = Path(__file__).parent
WITHIN_S = 60.0
#: Far shorter than the default: there are heartbeats in every stream that lasts.
HEARTBEAT_S = 0.2
#: Accounts with the limits that are usual, one for each test.
ORDINARY = 30


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


class Stream:
    """The response to a request for a stream, read event by event.

    ``raw`` is what has come so far.
    """

    def __init__(self, connection: http.client.HTTPConnection) -> None:
        self._connection = connection
        self._response = connection.getresponse()
        self.status = self._response.status
        self.headers = {name.lower(): value for name, value in self._response.getheaders()}
        self.raw = b""

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *raised: object) -> None:
        self._response.close()
        self._connection.close()

    def chunks(self, size: Callable[[], int] = lambda: 65536) -> Iterator[bytes]:
        """Yield the bytes as they come, to the end of the stream.

        :param size: returns how many the next chunk has at most.
        """
        until = time.monotonic() + WITHIN_S
        while chunk := self._response.read1(size()):
            # heartbeats keep the connection from timing out
            assert time.monotonic() < until, f"it does not end: {self.raw[-1000:]!r}"
            self.raw += chunk
            yield chunk

    def events(self) -> Iterator[ServerSentEvent]:
        """Yield the events as they come, to the end of the stream."""
        decoder = SseDecoder()
        for chunk in self.chunks():
            yield from decoder.feed(chunk)
        assert not decoder.pending

    def rest(self) -> list[str]:
        """Return the data of all further events."""
        return [event.data for event in self.events()]


class Pair:
    """The server.

    :param server: a ``Live``.
    :param keys: the secret of each account.
    """

    def __init__(self, server: Any, keys: Mapping[str, str]) -> None:
        self.server = server
        self.keys = keys
        # or both could be stopped at the same time
        self._stopping = threading.Lock()
        self._unused = iter(sorted(name for name in keys if name.startswith("ordinary")))

    @property
    def workers(self) -> tuple[int, int]:
        """The process ids of both workers."""
        first, second = sorted(self.server.workers())
        return first, second

    def other(self, worker: int) -> int:
        """Return the other worker."""
        (other,) = set(self.workers) - {worker}
        return other

    def account(self) -> str:
        """Return an account that no test has had yet."""
        return next(self._unused)

    def connection(self, worker: int | None = None) -> http.client.HTTPConnection:
        """Return a connection, to that worker if one is named.

        The other one is stopped for as long as it takes to be accepted.
        """
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=WITHIN_S)
        if worker is not None:
            other = self.other(worker)
            with self._stopping:
                os.kill(other, signal.SIGSTOP)
                try:
                    connection.request("GET", "/healthz")
                    connection.getresponse().read()
                finally:
                    os.kill(other, signal.SIGCONT)
            # a connection that was closed is an error, not a new one to whoever takes it
            connection.auto_open = 0
        return connection

    def send(
        self, account: str, method: str, path: str, body: Any = None, **options: Any
    ) -> Answer:
        """Send a request and return the answer; for options see ``open``."""
        with contextlib.closing(self._sent(account, method, path, body, **options)) as connection:
            response = connection.getresponse()
            named = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, named, response.read().decode())

    def open(
        self, account: str, method: str, path: str, body: Any = None, **options: Any
    ) -> Stream:
        """Send a request and return the stream of its response.

        :param account: whose key is sent; an empty one sends none.
        :param body: sent as JSON unless it is bytes; None sends none.
        :param headers: further headers.
        :param worker: which process shall answer.
        """
        return Stream(self._sent(account, method, path, body, **options))

    def _sent(
        self,
        account: str,
        method: str,
        path: str,
        body: Any,
        *,
        headers: Mapping[str, str] | None = None,
        worker: int | None = None,
    ) -> http.client.HTTPConnection:
        connection = self.connection(worker)
        sent = dict(headers or {})
        if account:
            sent["Authorization"] = f"Bearer {self.keys[account]}"
        if body is not None and not isinstance(body, bytes):
            sent["Content-Type"] = "application/json"
            body = json.dumps(body)
        try:
            connection.request(method, path, body, sent)
        except BaseException:
            connection.close()
            raise
        return connection

    def upload(self, account: str, name: str, content: bytes) -> Answer:
        """Upload a file."""
        head = f'Content-Disposition: form-data; name="file"; filename="{name}"'.encode()
        body = b"--b\r\n%b\r\n\r\n%b\r\n--b--\r\n" % (head, content)
        kind = {"Content-Type": "multipart/form-data; boundary=b"}
        return self.send(account, "POST", "/research/files", body, headers=kind)

    def events(
        self, account: str, job_id: str, *, after: str = "", worker: int | None = None
    ) -> Stream:
        """Follow a job's events.

        :param after: the id of the last event that the reader has.
        """
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": after} if after else {})
        path = f"/research/{job_id}/events"
        return self.open(account, "GET", path, headers=headers, worker=worker)

    def create(self, account: str, *, worker: int | None = None, **plan: Any) -> str:
        """Begin a job that does what the plan says, and return its id."""
        body = {"query": json.dumps(plan)}
        answer = self.send(account, "POST", "/research", body, worker=worker)
        assert answer.status == 200, answer
        return str(answer.body["id"])

    def job(self, account: str, job_id: str, **options: Any) -> Any:
        """Return a job's object."""
        answer = self.send(account, "GET", f"/research/{job_id}", **options)
        assert answer.status == 200, answer
        return answer.body

    def ended(self, account: str, job_id: str) -> Any:
        """Return a job's object once it has ended."""

        def look() -> Any:
            job = self.job(account, job_id)
            return job if job["status"] in ("completed", "failed") else None

        return self.server.wait(look)

    def noted(self, job_id: str, what: str) -> int:
        """Return which process noted this of a job, once one has."""

        def look() -> list[int]:
            lines = map(str.split, self.server.journal)
            return [int(pid) for pid, *rest in lines if rest == [job_id, what]]

        (pid,) = self.server.wait(look)
        return int(pid)

    def release(self, hold: str) -> None:
        """Let those go on who wait for the file."""
        (self.server.folder / hold).touch()


@contextmanager
def new_database(kind: str, folder: Path) -> Iterator[str]:
    """Make a database for a ``with`` block; gives its URL."""
    if kind == "sqlite":
        yield f"sqlite:///{folder / 'jobs.sqlite3'}"
        return
    given = os.environ.get("CAESAR_TEST_DATABASE_URL")
    if not given:
        pytest.skip("CAESAR_TEST_DATABASE_URL names no PostgreSQL server")
    name = f"caesar_test_{uuid.uuid4().hex}"
    with psycopg.connect(given, autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name}")
        try:
            yield urllib.parse.urlsplit(given)._replace(path=f"/{name}").geturl()
        finally:
            server.execute(f"DROP DATABASE {name} WITH (FORCE)")


def make_keys(path: Path) -> dict[str, str]:
    """Write a file of keys; return the secret of each account, whose name tells what it may."""
    made = {f"ordinary{number:02d}": {} for number in range(ORDINARY)}
    made |= {
        "frugal": {"limits": KeyLimits(loops_per_month=5)},
        "many": {"limits": KeyLimits(jobs_in_progress=1000)},
        "pinned": {"api_version": "2025-08-08"},
    }
    secrets = {account: generate_key() for account in made}
    keys = [
        Key(id=account, sha256=hash_key(secrets[account]), account=account, **fields)
        for account, fields in made.items()
    ]
    edit_key_file(path, lambda others: (*others, *keys))
    return secrets


Begin = Callable[..., Pair]


@pytest.fixture(scope="session")
def begin(live: Any) -> Begin:
    """Start the server: called with a folder, the URL of a database and further flags."""

    def start(folder: Path, url: str, *flags: str) -> Pair:
        shutil.copy(HERE / "research_backends.py", folder)
        keys = make_keys(folder / "keys.json")
        server = live(
            folder,
            *("--workers", "2", "--store", url, "--keys-file", str(folder / "keys.json")),
            *("--backend", "told=research_backends:ToldBackend", "--default-backend", "told"),
            *("--files", str(folder / "uploads"), "--heartbeat-s", str(HEARTBEAT_S), *flags),
        )
        return Pair(server, keys)

    return start


@pytest.fixture(scope="session", params=["sqlite", "postgres"])
def pair(
    begin: Begin, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    """A server of all tests here, on each kind of database in turn."""
    folder = tmp_path_factory.mktemp("pair")
    with new_database(request.param, folder) as url:
        one = begin(folder, url)
        try:
            yield one
        finally:
            one.server.end()


@pytest.fixture
def own_pair(begin: Begin, tmp_path: Path) -> Iterator[Pair]:
    """A server of this test alone, to be ended, on SQLite."""
    url = f"sqlite:///{tmp_path / 'jobs.sqlite3'}"
    one = begin(tmp_path, url, "--graceful-timeout-s", "1")
    yield one
    one.server.end()


@pytest.fixture
def account(pair: Pair) -> str:
    """An account of this test alone."""
    return pair.account()
