"""The commands on the database that the setting ``store`` names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from caesar_server.cli.startup import (
    config_option,
    json_option,
    print_json,
    read_settings,
    store_option,
)
from caesar_server.errors import SettingsError
from caesar_server.store.base import StoreError
from caesar_server.store.opening import database_of

if TYPE_CHECKING:
    from caesar_server.store.sql.database import Database


@click.group()
def store() -> None:
    """Make, look at or change the tables in which jobs are kept.

    caesar-server serve brings them up to date by itself when it starts.
    """


@store.command(short_help="Make the tables, or bring them up to date.")
@store_option
@config_option
def upgrade(store: str | None, config: Path | None) -> None:
    """Make the tables, or bring them to the revision of this version of the server.

    For those who start the server with a command of their own.  Harmless when there is nothing to
    do, and when several do it at once.
    """
    database = _database(config, store)
    from caesar_server.store.sql.revisions import upgrade
    from caesar_server.store.sql.schema import REVISION

    with _in_words():
        before = upgrade(database)
    if before == REVISION:
        click.echo(f"{database.name} is at revision {REVISION} already")
    else:
        click.echo(f"{database.name}: from revision {before or 'base'} to {REVISION}")


@store.command(short_help="Print the revision of the tables.")
@store_option
@config_option
@json_option
def current(store: str | None, config: Path | None, as_json: bool) -> None:
    """Print where jobs are kept, the revision of the tables there and the one that is needed.

    The exit status is 1 if these two differ.
    """
    database = _database(config, store)
    from caesar_server.store.sql.revisions import revision_of
    from caesar_server.store.sql.schema import REVISION

    with _in_words():
        found = revision_of(database)
    if as_json:
        print_json({"store": database.name, "revision": found, "needed": REVISION})
    else:
        click.echo(f"{database.name} is at revision {found or 'base'}; needed: {REVISION}")
    if found != REVISION:
        raise click.exceptions.Exit(1)


@store.command(short_help="Bring the tables back to an earlier revision.")
@click.argument("revision")
@click.option("--yes", is_flag=True, help="Do not ask.")
@store_option
@config_option
def downgrade(revision: str, yes: bool, store: str | None, config: Path | None) -> None:
    """Bring the tables back to an earlier REVISION, for an earlier version of the server.

    What only the later one can hold is lost; base removes all tables, with all jobs.  Stop the
    server before.
    """
    database = _database(config, store)
    if not yes:
        click.confirm(
            f"Take {database.name} back to {revision}, losing what it cannot hold?", abort=True
        )
    from caesar_server.store.sql.revisions import downgrade

    with _in_words():
        before = downgrade(database, revision)
    click.echo(f"{database.name}: from revision {before} to {revision}")


def _database(config: Path | None, store: str | None) -> Database:
    loaded = read_settings(config, {} if store is None else {"store": store})
    try:
        database = database_of(loaded.settings)
    except SettingsError as error:
        raise SettingsError(map(loaded.locate, error.problems)) from error
    if database is None:
        raise click.ClickException("store: jobs are kept in memory, which has no tables")
    return database


@contextmanager
def _in_words() -> Iterator[None]:
    try:
        yield
    except StoreError as error:
        raise click.ClickException(str(error)) from error
