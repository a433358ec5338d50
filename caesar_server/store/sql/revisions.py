"""Which revision of the schema a database has, and how it gets another one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, column, inspect, select, table

from caesar_server.store import migrations
from caesar_server.store.base import StoreError
from caesar_server.store.sql.database import Database, UnreachableError
from caesar_server.store.sql.schema import REVISION, VERSION_TABLE

if TYPE_CHECKING:
    from alembic.config import Config

_FOLDER = str(Path(migrations.__file__).parent)
UPGRADE_COMMAND = "caesar-server store upgrade"


def revision_of(database: Database) -> str | None:
    """Return the revision of a database, or None if it has no tables of this server.

    :raises StoreError: if it cannot be read.
    """
    if not database.exists():
        return None
    with _connected(database) as connection:
        return _revision(connection)


def check_revision(database: Database) -> None:
    """Return if this version of the server can work with the database.

    :raises UnreachableError: if there is no connection now.
    :raises StoreError: otherwise, with the command that helps.
    """
    revision = revision_of(database)
    if revision == REVISION:
        return
    if revision is None:
        raise StoreError(f"store: {database.name} has no tables yet; run `{UPGRADE_COMMAND}`")
    if revision in revisions():
        raise StoreError(
            f"store: {database.name} is at revision {revision}, and this version of the server "
            f"needs {REVISION}; run `{UPGRADE_COMMAND}`"
        )
    raise StoreError(
        f"store: {database.name} is at revision {revision}, which a newer version of the server "
        f"made; use that one, or run `caesar-server store downgrade {REVISION}` with it"
    )


def upgrade(database: Database) -> str | None:
    """Bring a database to the revision of this server, making it if it is not there.

    Several processes may do so at once: one does it, the others wait and find it done.

    :return: the revision that it had before.
    :raises StoreError: if it cannot be written, or a newer version of the server made it.
    """
    database.make()
    with _connected(database) as connection:
        before = _revision(connection)
    if before == REVISION:
        return before

    def run(connection: Connection) -> str | None:
        from alembic import command

        before = _revision(connection)
        if before not in (None, *revisions()):
            raise StoreError(
                f"store: {database.name} is at revision {before}, which a newer version of the "
                "server made; use that one"
            )
        command.upgrade(_config(connection), REVISION)
        return before

    return _migrate(database, run)


def downgrade(database: Database, revision: str) -> str | None:
    """Bring a database back to an earlier revision; what only a later one can hold is lost.

    :param revision: one of :func:`revisions`, or ``base``: no tables at all.
    :return: the revision that it had before.
    :raises StoreError: if there is no such revision, or the database has an earlier one.
    """
    known = revisions()
    if revision not in ("base", *known):
        raise StoreError(f"store: no revision {revision}; there are: base, {', '.join(known)}")

    nothing = f"store: {database.name} has no tables: nothing to undo"
    if not database.exists():
        raise StoreError(nothing)

    def run(connection: Connection) -> str | None:
        from alembic import command

        before = _revision(connection)
        if before is None:
            raise StoreError(nothing)
        if before not in known:
            raise StoreError(
                f"store: {database.name} is at revision {before}, which a newer version of the "
                "server made; use that one"
            )
        if revision != "base" and known.index(revision) > known.index(before):
            raise StoreError(f"store: {database.name} is at revision {before}, before {revision}")
        command.downgrade(_config(connection), revision)
        return before

    return _migrate(database, run)


def revisions() -> list[str]:
    """Return the revisions that this version of the server knows, the first one first."""
    from alembic.script import ScriptDirectory

    script = ScriptDirectory(_FOLDER)
    return [one.revision for one in script.walk_revisions()][::-1]


def _config(connection: Connection) -> Config:
    from alembic.config import Config

    config = Config()
    # a percent sign in a folder's name is not to be taken for a variable
    config.set_main_option("script_location", _FOLDER.replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def _migrate(database: Database, run: Callable[[Connection], str | None]) -> str | None:
    """Do something to the schema while nobody else does."""
    with _connected(database) as connection:
        database.lock_schema(connection)
        return run(connection)


@contextmanager
def _connected(database: Database) -> Iterator[Connection]:
    engine = database.writing_engine()
    try:
        with engine.begin() as connection:
            database.allow_pauses(connection)
            yield connection
    except StoreError:
        raise
    except Exception as error:
        kind = StoreError if database.kind_of(error) == "final" else UnreachableError
        raise kind(database.sentence(error)) from error
    finally:
        engine.dispose()


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    version: str | None = connection.execute(
        select(column("version_num")).select_from(table(VERSION_TABLE))
    ).scalar()
    return version
