"""Folders that are lent for a while, and that others can tell from those of dead processes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from caesar_server.store.blobs.base import BlobError

#: Held locked while the folder is in use; the system lets go of it when the process dies.
_LOCK = ".lock"


@contextmanager
def lent_folder(root: Path) -> Iterator[Path]:
    """Make a new folder in ``root`` and remove it at the end of the block.

    :raises BlobError: if it cannot be made.
    """
    folder = root / uuid.uuid4().hex
    try:
        make_folder(root)
        folder.mkdir(mode=0o700)
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
    except OSError as error:
        raise BlobError(sentence("cannot make a folder for a run", folder, error)) from error
    try:
        yield folder
    finally:
        # a folder that cannot be removed now is swept later
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def sweep_folders(root: Path, older_than_s: float) -> int:
    """Remove the folders in ``root`` whose processes are gone; return how many."""
    try:
        folders = [entry for entry in os.scandir(root) if entry.is_dir(follow_symlinks=False)]
    except (FileNotFoundError, NotADirectoryError):
        return 0
    except OSError as error:
        raise BlobError(sentence("cannot list", root, error)) from error
    until = time.time() - older_than_s
    return sum(_sweep_folder(Path(entry.path), until) for entry in folders)


def _sweep_folder(folder: Path, until: float) -> bool:
    try:
        if folder.stat().st_mtime > until:
            return False
        with unlocked(folder / _LOCK) as free:
            if free:
                shutil.rmtree(folder, ignore_errors=True)
            return free
    except FileNotFoundError:
        # its process has just removed it, or was killed between folder and lock
        with contextlib.suppress(OSError):
            folder.rmdir()
        return False
    except OSError as error:
        raise BlobError(sentence("cannot remove", folder, error)) from error


@contextmanager
def unlocked(path: Path) -> Iterator[bool]:
    """Say whether nobody holds the lock of a file; if so, it is held during the block.

    :raises FileNotFoundError: if there is no such file.
    """
    # writable: over NFS a lock asks for that
    handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        free = True
    except BlockingIOError:
        free = False
    except BaseException:
        os.close(handle)
        raise
    try:
        yield free
    finally:
        os.close(handle)


def make_folder(folder: Path) -> None:
    """Make a folder for its owner alone, with those above it."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)


def sentence(what: str, path: Path, error: OSError) -> str:
    """Return what went wrong with a path."""
    return f"files: {what} {path}: {error.strerror or error}"
