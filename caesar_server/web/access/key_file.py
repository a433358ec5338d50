"""The file of keys: read by servers, written by ``caesar-server keys``, never seen half written."""

from __future__ import annotations

import codecs
import fcntl
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from caesar_server.errors import SettingsError
from caesar_server.web.access.keys import Key

#: What tells one content of the file from the next.
Stamp: TypeAlias = tuple[int, int, int, int]
Keys: TypeAlias = tuple[Key, ...]

_MAX_BYTES = 16 * 1024 * 1024
#: Of a file of root's its group may read it.
_FORBIDDEN_OF_ROOT = stat.S_IWGRP | stat.S_IXGRP | stat.S_IRWXO
_FORBIDDEN = stat.S_IRWXG | stat.S_IRWXO


class _Document(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file.  Unknown fields are refused: no mistyped ``expires_at`` goes unnoticed."""

    version: Literal[1]
    keys: Keys


def stamp_of(path: Path) -> Stamp | None:
    """Return what changes when the file does, or None if there is no file.

    :raises OSError: if that cannot be found out.
    """
    try:
        return _stamp(path.stat())
    except (FileNotFoundError, NotADirectoryError):
        return None


def read_key_file(path: Path) -> tuple[Keys, Stamp] | None:
    """Return the keys of a file and its stamp, or None if there is no file.

    Others must not be able to read it, but for the group of a file of root's: what a volume of
    secrets holds belongs to root, and whoever is to read it can change nothing about that.

    :raises SettingsError: if it cannot be read or understood, or if others can read it.  No part of
        its content is quoted.
    """
    return _read(path, _check)


def _read(path: Path, check: Callable[[Path, os.stat_result], None]) -> tuple[Keys, Stamp] | None:
    try:
        # not blocking: somebody may have put a pipe there
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            status = os.fstat(descriptor)
            check(path, status)
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                content = file.read()
        finally:
            os.close(descriptor)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _problem(path, f"cannot be read: {error.strerror}") from error
    return decode_keys(path, content), _stamp(status)


def edit_key_file(path: Path, change: Callable[[Keys], Keys]) -> None:
    """Replace the keys of a file by what ``change`` makes of them.

    A second writer waits until the first is done.  Readers see the old file or the new one.  The
    file and its folder are made if they are not there, for their owner alone.

    :raises SettingsError: if it cannot be read or written, or if anybody but its owner can read it.
    """
    try:
        # through a link to the file itself: or the link would be replaced
        path = path.resolve()
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(path):
            found = _read(path, _check_edited)
            _replace(path, encode_keys(change(found[0] if found else ())))
    except OSError as error:
        raise _problem(path, f"cannot be written: {error.strerror or error}") from error


def encode_keys(keys: Keys) -> bytes:
    """Return the content of a file with these keys."""
    document = msgspec.json.encode(_Document(version=1, keys=keys))
    return msgspec.json.format(document, indent=2) + b"\n"


def decode_keys(path: Path, content: bytes) -> Keys:
    """Return the keys in a file's content.

    :param path: for the message.
    :raises SettingsError: if it is not as :func:`encode_keys` writes it, or names a key twice.
    """
    try:
        # some editors begin each file with a byte order mark
        keys = msgspec.json.decode(content.removeprefix(codecs.BOM_UTF8), type=_Document).keys
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        # its messages name the place and what is expected there, not what stands there
        raise _problem(path, f"is no file of keys: {error}") from None
    for name in ("id", "sha256"):
        seen = {getattr(key, name) for key in keys}
        if len(seen) != len(keys):
            raise _problem(path, f"has two keys with the same {name}")
    return keys


def _check(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise _problem(path, "is no regular file")
    of_root = status.st_uid == 0
    if status.st_mode & (_FORBIDDEN_OF_ROOT if of_root else _FORBIDDEN):
        more = ", or 640 for its group too (in Kubernetes: defaultMode: 0440)" if of_root else ""
        raise _problem(
            path,
            f"is open to other users (mode {_mode(status)}); close it with: chmod 600 {path}{more}",
        )
    if status.st_size > _MAX_BYTES:
        raise _problem(path, f"is larger than {_MAX_BYTES} bytes")


def _check_edited(path: Path, status: os.stat_result) -> None:
    _check(path, status)
    if status.st_mode & _FORBIDDEN:
        # the new file would be closed to a server that reads this one, and a revoked key stay valid
        raise _problem(
            path,
            f"is open to its group (mode {_mode(status)}), which a file that is written here never "
            "is; write to another one and put that in its place",
        )


def _mode(status: os.stat_result) -> str:
    return f"{stat.S_IMODE(status.st_mode):04o}"


def _stamp(status: os.stat_result) -> Stamp:
    # ctime too: it alone tells of a chmod
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _problem(path: Path, what: str) -> SettingsError:
    return SettingsError([f"keys_file: {path} {what}"])


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the right to write ``path``.

    The lock is on a file beside it, since the file itself is replaced by another one.
    """
    lock = path.with_name(f".{path.name}.lock")
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _replace(path: Path, content: bytes) -> None:
    """Put a new file in the place of ``path`` in one step that outlives a power cut."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # mode 0600
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            _keep_owner(path, descriptor)
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _keep_owner(path: Path, descriptor: int) -> None:
    """Give the new file to whom the old one belongs, or root's would lock the server out."""
    try:
        old = path.stat()
    except FileNotFoundError:
        return
    if (old.st_uid, old.st_gid) != (os.geteuid(), os.getegid()) and os.geteuid() == 0:
        os.fchown(descriptor, old.st_uid, old.st_gid)
