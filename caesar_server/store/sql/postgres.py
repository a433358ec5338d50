"""PostgreSQL: one database for several machines."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import selectors
import socket
import threading
import time
from collections.abc import Callable, Collection
from typing import Any

import psycopg
from sqlalchemy import (
    URL,
    ColumnElement,
    Connection,
    Double,
    Engine,
    cast,
    create_engine,
    event,
    func,
    select,
    text,
)
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool, QueuePool

from caesar_server.store.changes import Changes
from caesar_server.store.sql.connecting.answered import STATEMENT_S, AnsweredConnection
from caesar_server.store.sql.database import READERS, Database, Kind

logger = logging.getLogger(__name__)

#: On which commits are announced, to whoever listens in the same database.
CHANNEL = "caesar_server"
#: A process that is stopped within a transaction holds rows locked; the server ends it after so
#: long, and the process finds its connection gone if it ever goes on.
IDLE_IN_TRANSACTION_S = 2
#: The same of what looks at the tables or makes them: code is loaded between its statements, and a
#: busy machine takes its time for that.
IDLE_IN_SCHEMA_S = 60
CONNECT_S = 5
#: Between two tries to listen again.
PAUSE_S = 0.5
#: Of an advisory lock that only migrations take.
_SCHEMA_LOCK = 7_289_114_650_213
#: A network that swallows everything is noticed within about 15 s.
_KEEPALIVE = {
    "keepalives_idle": 5,
    "keepalives_interval": 5,
    "keepalives_count": 2,
    "tcp_user_timeout": 15_000,
}


class PostgresDatabase(Database):
    """A database of a PostgreSQL server, 12 or newer.

    Connections are sessions with settings of their own and one of them listens, so a pooler in
    between must keep sessions; one that does not is refused.

    :param url: as libpq knows it; parameters that it leaves open come from libpq's own variables
        and files, the password too.
    """

    insert = staticmethod(postgresql_insert)
    skips_locked = True
    boot_id = "database"

    def __init__(self, url: URL) -> None:
        self._url = url.set(drivername="postgresql+psycopg")
        self.name = f"the database {url.set(drivername='postgresql', query={}).render_as_string()}"

    def exists(self) -> bool:
        """Return True: only a connection can tell."""
        return True

    def make(self) -> None:
        """Do nothing: the database is made by whoever runs the server."""

    def writing_engine(self) -> Engine:
        """Return a new engine without a pool."""
        return self._engine(
            poolclass=NullPool,
            isolation_level="READ COMMITTED",
            # Prepared at once. Otherwise text and values go out as one order, in pieces if they are
            # large, and from the first to the last one no time-out of the server counts: a process
            # that is stopped in between would hold its locks for as long as it lies still.
            connect_args=self._arguments() | {"prepare_threshold": 0},
        )

    def reading_engine(self) -> Engine:
        """Return a new engine for single statements."""
        return self._engine(
            poolclass=QueuePool,
            pool_size=READERS,
            max_overflow=0,
            isolation_level="AUTOCOMMIT",
            pool_reset_on_return=None,
            connect_args=self._arguments(),
        )

    def now(self) -> ColumnElement[float]:
        """Return the database's time of day at the moment when it is asked."""
        return cast(func.extract("epoch", func.clock_timestamp()), Double)

    def allow_pauses(self, connection: Connection) -> None:
        """Give the transaction a minute between statements."""
        connection.execute(
            text(f"SET LOCAL idle_in_transaction_session_timeout = '{IDLE_IN_SCHEMA_S}s'")
        )

    def lock_schema(self, connection: Connection) -> None:
        """Wait for an advisory lock that ends with the transaction."""
        connection.execute(select(func.pg_advisory_xact_lock(_SCHEMA_LOCK)))

    def lock_accounts(self, connection: Connection, accounts: Collection[str]) -> None:
        """Wait for an advisory lock of each, in an order that is the same everywhere."""
        for key in sorted(map(_account_key, accounts)):
            connection.execute(select(func.pg_advisory_xact_lock(key)))

    def give_room_back(self, connection: Connection) -> None:
        """Do nothing: the server vacuums by itself."""

    def announce(self, connection: Connection, token: str) -> None:
        """Notify whoever listens, at the commit."""
        connection.execute(select(func.pg_notify(CHANNEL, token)))

    def changes(self, token: str, forget: Callable[[Changes], None]) -> PostgresChanges:
        """Return what listens on a connection of its own."""
        return PostgresChanges(self._listen, token, forget)

    def kind_of(self, error: Exception) -> Kind:
        """Return ``lost`` if there is no connection any more, ``busy`` after a deadlock."""
        if isinstance(error, DBAPIError):
            if error.connection_invalidated:
                return "lost"
            error = error.orig if isinstance(error.orig, Exception) else error
        state = getattr(error, "sqlstate", None)
        if state in _LOST or (state is None and isinstance(error, psycopg.OperationalError)):
            return "lost"
        return "busy" if state in _BUSY else "final"

    def sentence(self, error: Exception) -> str:
        """Return what the server or the driver says, without statements and values."""
        cause = error.orig if isinstance(error, DBAPIError) else error
        if isinstance(cause, psycopg.Error):
            reason = cause.diag.message_primary or str(cause).strip().replace("\n", " ")
            hint = _HINTS.get(cause.sqlstate or "", "see that it runs and that the URL is right")
            return f"store: {self.name}: {reason}; {hint}"
        return f"store: {self.name}: {type(cause).__name__}; see the log"

    def _engine(self, **options: Any) -> Engine:
        engine = create_engine(self._url, hide_parameters=True, **options)

        def connect(dialect: Any, record: Any, args: Any, named: Any) -> psycopg.Connection[Any]:
            return self._connect(*args, **named)

        event.listen(engine, "do_connect", connect)
        return engine

    def _connect(self, *args: Any, **named: Any) -> psycopg.Connection[Any]:
        if "options" in self._url.query:
            # statements may take as long as these say
            return psycopg.Connection.connect(*args, **named)
        connection = AnsweredConnection.connect(*args, **named)
        try:
            _begin_session(connection)
        except psycopg.Error:
            connection.close()
            raise
        return connection

    def _listen(self) -> psycopg.Connection[Any]:
        url = self._url.set(drivername="postgresql").render_as_string(hide_password=False)
        connection = self._connect(url, autocommit=True, **self._arguments())
        try:
            connection.execute(f"LISTEN {CHANNEL}")
        except psycopg.Error:
            connection.close()
            raise
        return connection

    def _arguments(self) -> dict[str, Any]:
        """Return what libpq is told besides the URL, unless that says something else."""
        given = self._url.query
        ours = {
            "connect_timeout": CONNECT_S,
            "application_name": "caesar-server",
            # of a database whose own is SQL_ASCII, text would be bytes to the driver
            "client_encoding": "utf8",
            **_KEEPALIVE,
        }
        return {name: value for name, value in ours.items() if name not in given}


def _begin_session(connection: psycopg.Connection[Any]) -> None:
    """Set what holds for the session; not in ``options``, which PgBouncer refuses.

    :raises psycopg.Error: if it is not a new one: a pooler then gives one to several connections,
        whose settings, prepared statements and ``LISTEN`` would be lost or another's.
    """
    taken = connection.execute(f"SELECT current_setting('{_TAKEN}', true)", prepare=False)
    # empty after a pooler has cleaned up behind the last one
    if taken.fetchall() not in ([(None,)], [("",)]):
        raise psycopg.errors.FeatureNotSupported("a new connection is somebody else's session")
    connection.execute(
        f"SELECT set_config('{_TAKEN}', 'yes', false), "
        f"set_config('idle_in_transaction_session_timeout', '{IDLE_IN_TRANSACTION_S}s', false), "
        f"set_config('statement_timeout', '{STATEMENT_S}s', false)",
        prepare=False,
    )
    connection.commit()


#: A variable of the session, by which it is known to be somebody's.
_TAKEN = "caesar_server.taken"
#: The server ends or refuses the connection: for a restart, or since its client was stopped within
#: a transaction.  A connection that is cut has no code.  25006: a standby, to which the address
#: leads for a while after another server has become the primary.
_LOST = ("57P01", "57P02", "57P03", "57P05", "25P03", "08000", "08003", "08006", "25006")
#: Deadlock, serialization, a lock not to be had in time.
_BUSY = ("40P01", "40001", "55P03")
_OF_A_POOLER = (
    "let a pooler in between keep sessions (PgBouncer: pool_mode = session), or name the server"
)
_HINTS = {
    # raised by _begin_session; a prepared statement that is not there, or there already
    **dict.fromkeys(("0A000", "26000", "42P05"), _OF_A_POOLER),
    "25006": "name the primary, or add target_session_attrs=read-write to the URL",
    "42501": "give this user the right to, or name another one in the URL",
    "53100": "make room on the server's disk",
    "53300": "raise max_connections, or run fewer processes",
    "57014": "the server is overloaded, or somebody holds a lock",
    "3D000": "make it with createdb",
    "28P01": "see to the password in the URL or in ~/.pgpass",
}


def _account_key(account: str) -> int:
    """Return the number of an account's advisory lock, the same in each process."""
    digest = hashlib.blake2b(account.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)


class PostgresChanges(Changes):
    """Listens; a commit of another process is heard of within milliseconds.

    Without a connection it tries to get one, twice a second, and then says that something may have
    changed.
    """

    def __init__(
        self,
        connect: Callable[[], psycopg.Connection[Any]],
        token: str,
        forget: Callable[[Changes], None],
    ) -> None:
        """:param token: of this process, whose own commits wake it without the database.

        :param forget: told at :meth:`close`.
        """
        self._connect = connect
        self._token = token.encode()
        self._forget = forget
        self._woken = False
        self._closed = False
        self._using = threading.Lock()
        self._bell, self._rope = socket.socketpair()
        self._bell.setblocking(False)
        self._rope.setblocking(False)
        self._connection: psycopg.Connection[Any] | None = None
        self._next_try = 0.0
        self._reconnect()

    def wait(self, timeout_s: float) -> bool:
        """Block until another process has committed, :meth:`wake` is called, or the time is up."""
        until = time.monotonic() + timeout_s
        while True:
            with self._using:
                if self._closed or self._look():
                    return True
                left_s = until - time.monotonic()
                if left_s <= 0:
                    return False
                self._sleep(left_s)

    def wake(self) -> None:
        """Make a :meth:`wait` that blocks return True."""
        if not self._woken:
            self._woken = True
            with contextlib.suppress(OSError):  # full, so it rings already; or closed
                self._rope.send(b"!")

    def close(self) -> None:
        """Close the connection, and make :meth:`wait` return."""
        if self._closed:
            return
        self._closed = True
        self.wake()
        with self._using:
            self._disconnect()
            self._rope.close()
            self._bell.close()
        self._forget(self)

    def _look(self) -> bool:
        """Return whether something was heard since the last look."""
        if self._connection is None and self._is_time() and self._reconnect():
            return True
        heard = self._heard()
        woken = self._woken
        if woken:
            with contextlib.suppress(BlockingIOError):
                self._bell.recv(64)
            self._woken = False
        return heard or woken

    def _heard(self) -> bool:
        """Take what the database has sent."""
        if self._connection is None:
            return False
        try:
            line = self._connection.pgconn
            line.consume_input()
            others = 0
            while (notice := line.notifies()) is not None:
                others += notice.extra != self._token
            return others > 0
        except psycopg.Error as error:
            logger.warning("the store's watcher has lost its connection: %s", error)
            self._disconnect()
            return False

    def _sleep(self, timeout_s: float) -> None:
        """Block until something is heard, or it is time to try again."""
        with selectors.DefaultSelector() as ears:
            ears.register(self._bell, selectors.EVENT_READ)
            if self._connection is not None:
                ears.register(self._connection.fileno(), selectors.EVENT_READ)
            else:
                timeout_s = min(timeout_s, max(0.0, self._next_try - time.monotonic()))
            ears.select(timeout_s)

    def _is_time(self) -> bool:
        return self._next_try <= time.monotonic()

    def _reconnect(self) -> bool:
        self._next_try = time.monotonic() + PAUSE_S
        try:
            self._connection = self._connect()
        except psycopg.Error as error:
            logger.debug("the store's watcher has no connection: %s", error)
            return False
        return True

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
