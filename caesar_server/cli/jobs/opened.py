"""The database of the settings, for commands that work on the jobs in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import click

from caesar_server.errors import SettingsError
from caesar_server.settings import LoadedSettings
from caesar_server.store.base import Store, StoreError
from caesar_server.store.opening import database_of, open_store
from caesar_server.store.unreadable import UnreadableRecordError


def check_database(loaded: LoadedSettings) -> None:
    """Refuse a store that other processes cannot see.

    :raises SettingsError: if the settings name no database, or one that cannot be used.
    """
    with located(loaded):
        if database_of(loaded.settings) is None:
            raise SettingsError(
                [
                    "store: jobs are kept in the memory of the server's own processes, where no "
                    "other program sees them; name a database (sqlite, sqlite:////PATH or "
                    "postgresql://USER@HOST/DATABASE)"
                ]
            )


@contextmanager
def opened_store(loaded: LoadedSettings) -> Iterator[Store]:
    """Open the database for a ``with`` block; a failure of it there becomes the command's.

    :raises SettingsError: if there is none.
    :raises click.ClickException: if it, or a job in it, cannot be read or written.
    """
    check_database(loaded)
    try:
        with located(loaded):
            store = open_store(loaded.settings, at_once=True)
        with closing(store):
            yield store
    except (StoreError, UnreadableRecordError) as error:
        raise click.ClickException(str(error)) from error


@contextmanager
def located(loaded: LoadedSettings) -> Iterator[None]:
    """Say of each problem of the block in which source the setting stands."""
    try:
        yield
    except SettingsError as error:
        raise SettingsError(map(loaded.locate, error.problems)) from error
