"""Bytes in a folder that goes with the process, and with the next one if it was killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import threading
import time
import uuid
from pathlib import Path
from typing import ClassVar

from caesar_server.store.blobs.base import BlobError, Staged
from caesar_server.store.blobs.directory import DirectoryBlobs
from caesar_server.store.blobs.folders import make_folder, sentence, unlocked

_PREFIX = "caesar-server-files-"
#: Held locked, and shared with forked processes, while the folder is in use.
_LOCK = ".lock"
#: A folder's lock is made in two steps; whoever looks in between must not take it for a leftover.
_NEW_S = 60.0


class TemporaryBlobs(DirectoryBlobs):
    """A new folder in ``parent``, made with the first upload and removed at the end.

    The first upload also removes those that killed processes of the same user have left there.
    """

    is_temporary: ClassVar[bool] = True

    def __init__(self, parent: Path) -> None:
        super().__init__(parent / f"{_PREFIX}{uuid.uuid4().hex}")
        self._opening = threading.Lock()
        self._lock: int | None = None

    def stage(self) -> Staged:
        """Begin to take bytes in; see :class:`BlobStore`."""
        with self._opening:
            if self._lock is None:
                try:
                    self._lock = _locked(self.root)
                except OSError as error:
                    raise BlobError(sentence("cannot make", self.root, error)) from error
                _remove_leftovers(self.root)
        return super().stage()

    def close(self) -> None:
        """Remove the folder."""
        with self._opening:
            lock, self._lock = self._lock, None
            shutil.rmtree(self.root, ignore_errors=True)
            if lock is not None:
                os.close(lock)


def _locked(folder: Path) -> int:
    make_folder(folder)
    lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_SH)
    return lock


def _remove_leftovers(own: Path) -> None:
    """Remove the folders beside ``own`` whose processes are gone; what cannot be told stays."""
    for folder in own.parent.glob(f"{_PREFIX}*"):
        # somebody else's, or one that is removed just now
        with contextlib.suppress(OSError):
            if folder != own and not folder.is_symlink() and folder.stat().st_uid == os.getuid():
                _remove_leftover(folder)


def _remove_leftover(folder: Path) -> None:
    if time.time() - (folder / _LOCK).stat().st_mtime < _NEW_S:
        return
    with unlocked(folder / _LOCK) as free:
        if free:
            shutil.rmtree(folder, ignore_errors=True)
