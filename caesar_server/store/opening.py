"""From the settings to a store.

SQLAlchemy, Alembic and drivers are imported only where a database is used.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from caesar_server.errors import SettingsError
from caesar_server.settings import Settings
from caesar_server.store.base import Store, StoreError
from caesar_server.store.memory import MemoryStore

if TYPE_CHECKING:
    from caesar_server.store.sql.database import Database

logger = logging.getLogger(__name__)

#: Finished jobs that are kept where ``stored_jobs`` is not set.
IN_MEMORY = 1000
IN_A_DATABASE = 100_000

_SQLITE = "sqlite:///"
_POSTGRES = ("postgresql://", "postgres://", "postgresql+psycopg://")
_EXPECTED = "store: expected memory, sqlite, sqlite:////PATH or postgresql://USER@HOST/DATABASE"


def open_store(settings: Settings, *, at_once: bool = False) -> Store:
    """Return the store that the settings name; it opens connections when it needs them.

    Without a ``store`` jobs are kept in memory: only ``load_settings`` knows the user's folders.

    :param at_once: whether it must be there now: a server waits for a database to come back, who
        typed a command does not.
    :raises SettingsError: if they name none; if the database has another revision than this version
        of the server works with, with the command that helps.
    :raises StoreError: if the database cannot be reached, with ``at_once`` alone.
    """
    database = database_of(settings)
    if database is None:
        return MemoryStore(kept_jobs(settings), settings.stored_bytes)
    from caesar_server.store.sql.database import UnreachableError
    from caesar_server.store.sql.revisions import check_revision
    from caesar_server.store.sql.store import SqlStore

    try:
        check_revision(database)
    except UnreachableError as error:
        if at_once:
            raise
        logger.error("%s", error)
    except StoreError as error:
        raise SettingsError([str(error)]) from error
    return SqlStore(database)


def prepare_store(settings: Settings) -> None:
    """Bring the database to this server's revision, before any process works with it.

    For the process that starts the others, before it forks: leaves nothing open.

    :raises SettingsError: if there is no such database, or it cannot be written.
    """
    database = database_of(settings)
    if database is None:
        return
    from caesar_server.store.sql.revisions import upgrade

    try:
        upgrade(database)
    except StoreError as error:
        raise SettingsError([str(error)]) from error


def kept_jobs(settings: Settings) -> int:
    """Return how many finished jobs are kept."""
    if settings.stored_jobs is not None:
        return settings.stored_jobs
    return IN_MEMORY if settings.store in (None, "memory") else IN_A_DATABASE


def database_of(settings: Settings) -> Database | None:
    """Return the database that the settings name, or None for memory.

    :raises SettingsError: if ``store`` is none of the forms that it may have, or what it takes is
        not installed.
    """
    url = settings.store
    if url is None or url == "memory":
        return None
    if url == f"{_SQLITE}:memory:":
        raise SettingsError(["store: SQLite in memory is lost with its connection; say memory"])
    if url.startswith(_SQLITE) and "?" not in url and len(url) > len(_SQLITE):
        from caesar_server.store.sql.sqlite import SqliteDatabase

        return SqliteDatabase(Path(url.removeprefix(_SQLITE)), settings.store_synchronous)
    if url.startswith(_POSTGRES):
        return _postgres(url)
    raise SettingsError([_EXPECTED])


def _postgres(url: str) -> Database:
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        from caesar_server.store.sql.postgres import PostgresDatabase
    except ImportError as error:
        raise SettingsError(
            [f"store: PostgreSQL takes more ({error}): pip install 'caesar-server[postgres]'"]
        ) from error
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        # its message would quote the password; the cause is not kept for the same reason
        raise SettingsError([_EXPECTED]) from None
    if "@" in f"{parsed.host}{parsed.database}":
        # the rest of the password would be taken for a host, and told of with it
        raise SettingsError(["store: an @ in a user's name or password is written as %40"])
    return PostgresDatabase(parsed)
