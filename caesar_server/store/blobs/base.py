"""What a store of bytes can do, and what of it happens in one step."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import ClassVar, NamedTuple, Protocol

from caesar_server.store.base import StoreError

#: As much as is read at once.
PIECE_BYTES = 64 * 1024


class BlobError(StoreError):
    """The bytes cannot be kept or read: no room, no right, no connection.

    The message is a sentence for the operator, without a password.
    """


class UnknownBlobError(LookupError):
    """There are no bytes under this key."""


class StoredKey(NamedTuple):
    """A key that has bytes.

    :param stored_at: when they were put there, in Unix seconds by the clock of whoever keeps them.
    """

    key: str
    stored_at: float


class _Source(Protocol):
    """What bytes are read from."""

    def read(self, amount: int, /) -> bytes:
        """Return at most so many bytes; none at the end."""

    def close(self) -> object:
        """Read no more."""


class Pieces(Iterator[bytes]):
    """Bytes in pieces; whoever does not read them to the end closes them.

    :param left: so many bytes are read, None: all.
    :param errors: what reading may raise.
    """

    def __init__(
        self, source: _Source, left: int | None, errors: tuple[type[Exception], ...]
    ) -> None:
        self._source = source
        self._left = left
        self._errors = errors

    def __next__(self) -> bytes:
        size = PIECE_BYTES if self._left is None else min(PIECE_BYTES, self._left)
        try:
            piece = self._source.read(size) if size > 0 else b""
        except self._errors as error:
            self.close()
            raise BlobError(f"files: bytes cannot be read: {error}") from error
        if not piece:
            self.close()
            raise StopIteration
        if self._left is not None:
            self._left -= len(piece)
        return piece

    def close(self) -> None:
        """Read no more; may be called more than once."""
        self._source.close()


class Staged(ABC):
    """Bytes on their way in: nobody sees them until :meth:`keep`.

    Leaving the ``with`` block without it removes them.  For one thread at a time.

    :ivar key: what they will be found under.
    """

    key: str

    @abstractmethod
    def write(self, data: bytes) -> None:
        """Add bytes at the end.

        :raises BlobError: if they cannot be kept.
        """

    @abstractmethod
    def keep(self) -> None:
        """Put all bytes under :attr:`key`, in one step: from then on a crash undoes nothing.

        :raises BlobError: if they cannot be kept; there is nothing under the key then, or, if the
            answer was lost, all of it.
        """

    @abstractmethod
    def discard(self) -> None:
        """Remove the bytes, unless they were kept; may be called more than once."""

    def __enter__(self) -> Staged:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.discard()


class BlobStore(ABC):
    """Bytes under keys.  Safe from any thread; opened with the first use in each process.

    :cvar is_temporary: whether the place was made for this server alone, and goes with it.

    A key is made with each upload and never used again, and what is under it never changes.  So
    whoever knows that nothing refers to a key may delete it at leisure.  A crash leaves at most
    staged bytes, or some under a key that nothing refers to: :meth:`sweep_staged` removes the
    former, and whoever knows which keys are in use the latter.
    """

    is_temporary: ClassVar[bool] = False

    @abstractmethod
    def stage(self) -> Staged:
        """Begin to take bytes in, under a new key.

        :raises BlobError: if nothing can be kept.
        """

    @abstractmethod
    def read(self, key: str, start: int = 0, stop: int | None = None) -> Pieces:
        """Return bytes to be read in pieces, which goes on even if they are deleted meanwhile.

        :param start: place of the first byte.
        :param stop: place behind the last byte, more than ``start``; None: the end.
        :raises UnknownBlobError: at once, if there are none.
        :raises BlobError: at once or later, if they cannot be read.
        """

    def has(self, key: str) -> bool:
        """Return whether there are bytes under a key.

        :raises BlobError: if that cannot be told.
        """
        try:
            self.read(key).close()
        except UnknownBlobError:
            return False
        return True

    @abstractmethod
    def lend(self, key: str, path: Path) -> None:
        """Make ``path`` a file of these bytes, for reading only, that stays whatever becomes of
        them.

        :param path: in the folder that :meth:`lending` has given.
        :raises UnknownBlobError: if there are none.
        :raises BlobError: if they cannot be read, or the file cannot be made.
        """

    @abstractmethod
    def lending(self) -> AbstractContextManager[Path]:
        """Give a new folder of this machine for a ``with`` block, whose end removes it.

        :raises BlobError: if it cannot be made.
        """

    @abstractmethod
    def delete(self, key: str) -> None:
        """Remove the bytes; no error if there are none.

        :raises BlobError: if they cannot be removed.
        """

    @abstractmethod
    def stored_keys(self) -> Iterator[StoredKey]:
        """Yield the keys that have bytes, in no order; those that come or go meanwhile may miss.

        :raises BlobError: if they cannot be listed.
        """

    @abstractmethod
    def sweep_staged(self, older_than_s: float) -> int:
        """Remove staged bytes of processes that are gone; return how many.

        :param older_than_s: only those to which nothing was added for so long.
        :raises BlobError: if they cannot be listed or removed.
        """

    @abstractmethod
    def sweep_lent(self, older_than_s: float) -> int:
        """Remove folders of :meth:`lending` that processes of this machine left behind when they
        were killed; return how many.

        :param older_than_s: only those that were made so long ago.
        :raises BlobError: if they cannot be listed or removed.
        """

    @abstractmethod
    def check(self) -> None:
        """Return if bytes can be kept and read.

        :raises BlobError: otherwise.
        """

    @abstractmethod
    def close(self) -> None:
        """Release what is held; may be called more than once."""


def new_key() -> str:
    """Return a key that was never used: 32 hexadecimal digits."""
    return uuid.uuid4().hex


def is_key(text: str) -> bool:
    """Return whether a text has the form of a key.

    >>> is_key(new_key()), is_key("../../etc/passwd")
    (True, False)
    """
    return len(text) == 32 and set(text) <= set("0123456789abcdef")
