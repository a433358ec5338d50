"""What SQLite and PostgreSQL each do in their own way."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from typing import Any, ClassVar, Literal

from sqlalchemy import ColumnElement, Connection, Engine

from caesar_server.store.base import StoreError
from caesar_server.store.changes import Changes

#: What an error means: the connection is gone (the step may have been done), somebody else has the
#: database now, or it is no use to try again.
Kind = Literal["lost", "busy", "final"]


#: Connections of a :meth:`Database.reading_engine` at most.
READERS = 5


class UnreachableError(StoreError):
    """There is no connection now; later there may be."""


class Database(ABC):
    """One database, described; it holds nothing open.

    :cvar insert: the dialect's ``insert``, which knows ``on_conflict_do_nothing``.
    :cvar skips_locked: several may write at once, so a claim passes over rows that others hold.
    """

    insert: ClassVar[Callable[..., Any]]
    skips_locked: ClassVar[bool]

    #: Where it is, for people: without a password.
    name: str
    #: Which clock :meth:`now` is.
    boot_id: str

    @abstractmethod
    def exists(self) -> bool:
        """Return whether there may be something to connect to."""

    @abstractmethod
    def make(self) -> None:
        """Make what can be connected to, if that is for us to do.

        :raises StoreError: if it cannot be made.
        """

    @abstractmethod
    def writing_engine(self) -> Engine:
        """Return a new engine whose transactions may write from their first statement on.

        It keeps no pool: whoever writes holds one connection.
        """

    @abstractmethod
    def reading_engine(self) -> Engine:
        """Return a new engine for single statements that read; it keeps :data:`READERS`."""

    @abstractmethod
    def now(self) -> ColumnElement[float]:
        """Return the time of the leases in seconds, for use in one statement at once."""

    @abstractmethod
    def allow_pauses(self, connection: Connection) -> None:
        """Let a transaction that holds no job lie idle for longer than others may."""

    @abstractmethod
    def lock_schema(self, connection: Connection) -> None:
        """Keep others from migrating until the transaction is over."""

    @abstractmethod
    def lock_accounts(self, connection: Connection, accounts: Collection[str]) -> None:
        """Let other processes count or add to what these accounts have only after the transaction.

        Once in a transaction, before anything else.
        """

    @abstractmethod
    def give_room_back(self, connection: Connection) -> None:
        """Give back some of the disk that removed jobs took, if that is for us to do."""

    @abstractmethod
    def announce(self, connection: Connection, token: str) -> None:
        """Make the commit of this transaction known to the ``changes`` of other processes.

        :param token: by which its own process knows it.
        """

    @abstractmethod
    def changes(self, token: str, forget: Callable[[Changes], None]) -> Changes:
        """Return what tells of changes, those announced with ``token`` excepted if need be.

        :param forget: told when it is closed.
        """

    @abstractmethod
    def kind_of(self, error: Exception) -> Kind:
        """Return what an error of the driver, or of SQLAlchemy, means."""

    @abstractmethod
    def sentence(self, error: Exception) -> str:
        """Return what is wrong, and the cure, for the operator."""
