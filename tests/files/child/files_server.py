"""``caesar-server`` that dies at a named point of an upload; called with the command's arguments.

A point is armed by a file of its name in ``CRASH_FOLDER``, which whoever reaches it takes.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from caesar_server.cli import main
from caesar_server.store.blobs import directory
from caesar_server.store.blobs.directory import DirectoryBlobs
from caesar_server.store.sql.store import SqlStore

FOLDER = Path(os.environ["CRASH_FOLDER"])


def reach(point: str) -> None:
    """Be at a point: perhaps for the last time."""
    armed = FOLDER / point
    if point and armed.exists():
        armed.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


def surround(place: Any, name: str, *, before: str = "", after: str = "") -> None:
    """Let a function's call come between two points."""
    original: Callable[..., Any] = getattr(place, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        reach(before)
        result = original(*args, **kwargs)
        reach(after)
        return result

    setattr(place, name, call)


class Owned:
    """What the database does, between points."""

    def __init__(self, owned: Any) -> None:
        self._owned = owned

    def __getattr__(self, name: str) -> Any:
        return getattr(self._owned, name)

    def add_file(self, *args: Any) -> Any:
        reach("before-the-row")
        added = self._owned.add_file(*args)
        reach("after-the-row")
        return added

    def delete_file(self, *args: Any) -> Any:
        key = self._owned.delete_file(*args)
        reach("after-the-row-is-gone")
        return key


plain_owned = SqlStore.owned.fget  # type: ignore[attr-defined]
SqlStore.owned = property(lambda store: Owned(plain_owned(store)))  # type: ignore[assignment]
surround(DirectoryBlobs, "stage", after="after-the-beginning")
surround(DirectoryBlobs, "delete", before="before-the-bytes-go")
surround(directory._StagedFile, "write", after="inside-the-bytes")
surround(directory._StagedFile, "keep", before="after-the-bytes", after="after-the-rename")
surround(directory, "_make_lasting", before="before-the-rename")
surround(directory, "_flush_folder", before="before-the-folder-is-flushed")

if __name__ == "__main__":
    main()
