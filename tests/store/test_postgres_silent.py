"""A PostgreSQL server that is there and says nothing, as one that is stopped."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from sqlalchemy import URL, make_url, text

from caesar_server.store.base import Job, StoreError
from caesar_server.store.sql.connecting.answered import (
    STATEMENT_S,
    AnsweredConnection,
    while_answered,
)
from caesar_server.store.sql.postgres import PostgresDatabase

NewJob = Callable[..., Job]
Open = Callable[..., Any]


class Proxy:
    """Stands between a client and a server; takes all and passes nothing on while ``swallows``."""

    def __init__(self, host: str, port: int) -> None:
        self.swallows = False
        self._server = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._bell, self._rope = socket.socketpair()
        self._peers: dict[socket.socket, socket.socket] = {}
        self._selector = selectors.DefaultSelector()
        for sock in (self._listener, self._bell):
            self._selector.register(sock, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="test-proxy")
        self._thread.start()

    def close(self) -> None:
        self._rope.close()
        self._thread.join()
        for sock in (self._listener, self._bell, *self._peers):
            sock.close()
        self._selector.close()

    def _run(self) -> None:
        while True:
            for key, _ in self._selector.select():
                sock: Any = key.fileobj
                if sock is self._bell:
                    return
                if sock is self._listener:
                    self._accept()
                else:
                    self._pass_on(sock)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        server = socket.create_connection(self._server)
        for one, other in ((client, server), (server, client)):
            self._peers[one] = other
            self._selector.register(one, selectors.EVENT_READ)

    def _pass_on(self, sock: socket.socket) -> None:
        data = b""
        with contextlib.suppress(ConnectionError):
            data = sock.recv(65536)
        if data:
            if not self.swallows:
                self._peers[sock].sendall(data)
            return
        other = self._peers[sock]
        for one in (sock, other):
            del self._peers[one]
            self._selector.unregister(one)
            one.close()


@pytest.fixture
def proxy(postgres_url: str) -> Iterator[Proxy]:
    url = make_url(postgres_url)
    proxy = Proxy(url.host or "127.0.0.1", url.port or 5432)
    yield proxy
    proxy.close()


@pytest.fixture
def proxied(postgres: PostgresDatabase, postgres_url: str, proxy: Proxy) -> URL:
    """The URL of a database with empty tables, behind the proxy."""
    return make_url(postgres_url).set(host="127.0.0.1", port=proxy.port)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From now on give the server a moment."""

    def begin() -> None:
        monkeypatch.setattr(AnsweredConnection, "silence_s", 0.2)
        monkeypatch.setattr("caesar_server.store.sql.postgres.CONNECT_S", 1)

    return begin


def test_a_server_that_says_nothing_fails_what_waits_and_is_used_again_once_it_answers(
    proxied: URL,
    proxy: Proxy,
    open_store: Open,
    new_job: NewJob,
    impatient: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = open_store(PostgresDatabase(proxied), retry_s=0.1)
    store.create(new_job("before"))
    assert len(store.jobs()) == 1  # so that both kinds of connections are open
    impatient()
    proxy.swallows = True
    for call in (store.check, store.jobs, lambda: store.create(new_job("meanwhile"))):
        with pytest.raises(StoreError, match=f"127.0.0.1:{proxy.port}/"):
            call()
    monkeypatch.undo()
    proxy.swallows = False
    store.check()
    store.create(new_job("after"))
    assert {job.id for job in store.jobs()} >= {"before", "after"}


def test_what_is_said_of_it_names_the_silence(
    proxied: URL, proxy: Proxy, impatient: Callable[[], None]
) -> None:
    database = PostgresDatabase(proxied)
    engine = database.reading_engine()
    with engine.connect() as connection:
        connection.execute(text("SELECT 1"))
        impatient()
        proxy.swallows = True
        with pytest.raises(Exception, match="said nothing") as raised:
            connection.execute(text("SELECT 1"))
    engine.dispose()
    assert database.kind_of(raised.value) == "lost"
    assert "the server has said nothing for 0.2 s" in database.sentence(raised.value)


def test_statements_have_more_time_on_the_server_than_it_may_be_silent_for() -> None:
    assert AnsweredConnection.silence_s > STATEMENT_S


def test_with_options_of_ones_own_statements_take_as_long_as_these_say(
    postgres_with_tables: PostgresDatabase, postgres_url: str, impatient: Callable[[], None]
) -> None:
    impatient()
    url = make_url(postgres_url)
    query = text("SELECT pg_sleep(1)")
    bounded = PostgresDatabase(url).reading_engine()
    with pytest.raises(Exception, match="said nothing"), bounded.connect() as connection:
        connection.execute(query)
    bounded.dispose()
    own = url.update_query_dict({"options": "-c statement_timeout=0"})
    free = PostgresDatabase(own).reading_engine()
    with free.connect() as connection:
        connection.execute(query)
    free.dispose()


def test_each_byte_of_the_server_gives_it_its_time_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])

    def answer() -> Any:
        said = []
        for _ in range(3):
            said.append((yield "wanted"))
        return said

    steps = while_answered(answer(), 10.0)
    assert next(steps) == "wanted"
    now[0] = 9.0
    steps.send(1)
    now[0] = 18.0
    steps.send(0)
    with pytest.raises(StopIteration) as end:
        steps.send(2)
    assert end.value.value == [1, 0, 2]

    now[0] = 0.0
    steps = while_answered(answer(), 10.0)
    next(steps)
    now[0] = 9.0
    steps.send(0)
    now[0] = 11.0
    with pytest.raises(psycopg.OperationalError, match="nothing for 10 s"):
        steps.send(0)
