"""What connections to PostgreSQL ask for, and what poolers and old databases make of it."""

from __future__ import annotations

import re
import socket
import struct
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg
import pytest
from sqlalchemy import make_url

from caesar_server.errors import SettingsError
from caesar_server.settings import Settings
from caesar_server.store.base import Job, StoreError
from caesar_server.store.opening import open_store as open_store_of
from caesar_server.store.opening import prepare_store
from caesar_server.store.sql.postgres import PostgresDatabase
from caesar_server.store.sql.revisions import revision_of, upgrade

NewJob = Callable[..., Job]
Open = Callable[..., Any]

#: What PgBouncer takes of a client; anything else it refuses unless it was told to pass it over.
POOLED = {
    *("user", "database", "client_encoding", "application_name"),
    *("datestyle", "timezone", "standard_conforming_strings"),
}


@contextmanager
def database_like(postgres_url: str, words: str) -> Iterator[str]:
    """Yield the URL of a new database, made with these words."""
    name = f"caesar_test_{uuid.uuid4().hex}"
    with psycopg.connect(postgres_url, autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name} {words}")
        try:
            yield make_url(postgres_url).set(database=name).render_as_string(hide_password=False)
        finally:
            server.execute(f"DROP DATABASE {name} WITH (FORCE)")


def test_a_connection_asks_for_nothing_that_poolers_refuse() -> None:
    asked: list[bytes] = []

    def take_one(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            while True:
                (length,) = struct.unpack("!i", connection.recv(4, socket.MSG_WAITALL))
                words = connection.recv(length - 4, socket.MSG_WAITALL)
                if words[:2] == b"\x00\x03":  # of version 3: the parameters
                    asked.extend(words[4:].split(b"\0")[:-2:2])
                    return
                connection.sendall(b"N")  # no TLS, no GSSAPI

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=take_one, args=(listener,))
        thread.start()
        port = listener.getsockname()[1]
        with pytest.raises(StoreError, match=f"127.0.0.1:{port}"):
            revision_of(PostgresDatabase(make_url(f"postgresql://me@127.0.0.1:{port}/jobs")))
        thread.join()
    assert {"user", "database"} <= {name.decode() for name in asked} <= POOLED


def test_sessions_have_their_timeouts(postgres_with_tables: PostgresDatabase) -> None:
    for engine in (postgres_with_tables.reading_engine(), postgres_with_tables.writing_engine()):
        with engine.connect() as connection:
            found = [
                connection.exec_driver_sql(f"SHOW {name}").scalar()
                for name in ("statement_timeout", "idle_in_transaction_session_timeout")
            ]
        engine.dispose()
        assert found == ["30s", "2s"]


def test_a_pooler_that_mixes_sessions_is_refused_with_the_cure(postgres_url: str) -> None:
    with database_like(postgres_url, "") as url:
        database = make_url(url).database
        prepare_store(Settings(store=url))
        with psycopg.connect(postgres_url, autocommit=True) as server:
            # a new connection finds what another one has set, as behind such a pooler
            server.execute(f"ALTER DATABASE {database} SET caesar_server.taken = 'yes'")
        with pytest.raises(SettingsError, match=re.escape("(PgBouncer: pool_mode = session)")):
            open_store_of(Settings(store=url))


def test_a_database_without_an_encoding_is_good_enough(
    postgres_url: str, open_store: Open, new_job: NewJob
) -> None:
    # the default of a server that was made with LC_ALL=C
    bare = "ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
    with database_like(postgres_url, bare) as url:
        database = PostgresDatabase(make_url(url))
        upgrade(database)
        store = open_store(database)
        with closing(store):
            store.create(new_job("job", model="Größe 漢字"))
            assert store.job("job").model == "Größe 漢字"
