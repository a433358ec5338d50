"""Bytes in the files of a directory, on this machine or on one that all machines share."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO

from caesar_server.store.blobs.base import (
    BlobError,
    BlobStore,
    Pieces,
    Staged,
    StoredKey,
    UnknownBlobError,
    is_key,
    new_key,
)
from caesar_server.store.blobs.folders import (
    lent_folder,
    make_folder,
    sentence,
    sweep_folders,
    unlocked,
)


class DirectoryBlobs(BlobStore):
    """One file for each key: ``blobs/ab/cd/KEY`` for a key that begins with ``abcd``.

    Uploads are written to ``staging/KEY``, flushed to the disk and then renamed, which is one step;
    ``lent`` holds the folders of runs.  All three must be in one file system.  Folders are readable
    for their owner alone; so are files, which nobody writes any more once they were renamed.

    One directory belongs to one store of jobs: what that one does not know is swept.

    :param root: the directory; made with the first upload.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._blobs, self._staging, self._lent = (
            root / name for name in ("blobs", "staging", "lent")
        )

    def stage(self) -> Staged:
        """Begin to take bytes in; see :class:`BlobStore`."""
        key = new_key()
        try:
            make_folder(self._staging)
            return _StagedFile(self._staging / key, self._path(key), key)
        except OSError as error:
            raise BlobError(sentence("cannot write in", self._staging, error)) from error

    def read(self, key: str, start: int = 0, stop: int | None = None) -> Pieces:
        """Return the bytes; see :class:`BlobStore`."""
        file = self._open(key)
        file.seek(start)
        return Pieces(file, None if stop is None else stop - start, (OSError,))

    def lend(self, key: str, path: Path) -> None:
        """Link the file, or copy it where its mode would keep nobody from writing to it.

        A link costs nothing, but it is the upload itself: a run that opened it for writing would
        change what all others read.  Its mode forbids that to everybody but root.
        """
        own = self._path(key)
        try:
            if os.access(own, os.W_OK, effective_ids=True) or not _linked(own, path):
                with self._open(key) as source, path.open("xb") as target:
                    _copy(source, target)
                path.chmod(0o400)
        except FileNotFoundError as error:
            if own.exists():
                raise BlobError(sentence("cannot make", path, error)) from error
            raise UnknownBlobError(key) from None
        except OSError as error:
            raise BlobError(sentence("cannot make", path, error)) from error

    def lending(self) -> AbstractContextManager[Path]:
        """Give a folder in the same file system."""
        return lent_folder(self._lent)

    def delete(self, key: str) -> None:
        """Remove the file; the folders above it stay for others."""
        path = self._path(key)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise BlobError(sentence("cannot remove", path, error)) from error

    def stored_keys(self) -> Iterator[StoredKey]:
        """Yield the keys; see :class:`BlobStore`."""
        for folder in _entries(self._blobs):
            for below in _entries(Path(folder.path)):
                for entry in _entries(Path(below.path)):
                    if is_key(entry.name):
                        with contextlib.suppress(FileNotFoundError):
                            yield StoredKey(entry.name, entry.stat().st_mtime)

    def sweep_staged(self, older_than_s: float) -> int:
        """Remove what no process has open any more; see :class:`BlobStore`."""
        until = time.time() - older_than_s
        removed = 0
        for entry in _entries(self._staging):
            path = Path(entry.path)
            try:
                if entry.stat().st_mtime > until:
                    continue
                with unlocked(path) as free:
                    if free:
                        path.unlink()
                        removed += 1
            except FileNotFoundError:
                continue  # kept or discarded meanwhile
            except OSError as error:
                raise BlobError(sentence("cannot remove", path, error)) from error
        return removed

    def sweep_lent(self, older_than_s: float) -> int:
        """Remove folders of dead processes; see :class:`BlobStore`."""
        return sweep_folders(self._lent, older_than_s)

    def check(self) -> None:
        """Write a file and remove it."""
        with self.stage() as staged:
            staged.write(b"check")

    def close(self) -> None:
        """Nothing is held."""

    def _path(self, key: str) -> Path:
        if not is_key(key):
            raise UnknownBlobError(key)
        return self._blobs / key[:2] / key[2:4] / key

    def _open(self, key: str) -> BinaryIO:
        path = self._path(key)
        try:
            return path.open("rb")
        except FileNotFoundError:
            raise UnknownBlobError(key) from None
        except OSError as error:
            raise BlobError(sentence("cannot read", path, error)) from error


class _StagedFile(Staged):
    """A file that is locked while somebody writes it, so that it can be told from a leftover."""

    def __init__(self, path: Path, final: Path, key: str) -> None:
        self.key = key
        self._path = path
        self._final = final
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._file: BinaryIO | None = os.fdopen(os.open(path, flags, 0o600), "wb", buffering=0)
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def write(self, data: bytes) -> None:
        """Add bytes; see :class:`Staged`."""
        assert self._file is not None, "written after its end"  # noqa: S101 - the caller's fault
        try:
            view = memoryview(data)
            while view:
                view = view[self._file.write(view) :]
        except OSError as error:
            raise BlobError(sentence("cannot write", self._path, error)) from error

    def keep(self) -> None:
        """Flush the bytes to the disk, then give them their name, and flush that too."""
        assert self._file is not None, "kept twice"  # noqa: S101 - the caller's fault
        try:
            os.fsync(self._file.fileno())
            # the age by which it is swept begins now, however long it took to arrive
            os.utime(self._file.fileno())
            _make_lasting(self._final.parent)
            self._path.rename(self._final)
            # what a run is lent is the same file
            os.fchmod(self._file.fileno(), 0o400)
            _flush_folder(self._final.parent)
        except OSError as error:
            raise BlobError(sentence("cannot keep", self._final, error)) from error
        self._file.close()
        self._file = None

    def discard(self) -> None:
        """Remove the file, unless it was kept."""
        if self._file is None:
            return
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            raise BlobError(sentence("cannot remove", self._path, error)) from error
        finally:
            self._file.close()
            self._file = None


def _linked(own: Path, path: Path) -> bool:
    """Link a file, if its file system has links, and not yet as many as it allows."""
    try:
        os.link(own, path)
    except FileNotFoundError:
        raise
    except OSError:
        return False
    return True


def _copy(source: BinaryIO, target: BinaryIO) -> None:
    # Btrfs, XFS and others then share the blocks until one of the two is changed; where the system
    # cannot do it at all, or no further, the rest is copied here.
    with contextlib.suppress(OSError, AttributeError):
        while os.copy_file_range(source.fileno(), target.fileno(), 1024**3):
            pass
    shutil.copyfileobj(source, target, 1024 * 1024)


def _make_lasting(folder: Path) -> None:
    """Make a folder and those above it, so that a crash of the machine keeps them."""
    if folder.is_dir():
        return
    _make_lasting(folder.parent)
    make_folder(folder)
    _flush_folder(folder.parent)


def _flush_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise BlobError(sentence("cannot list", folder, error)) from error
