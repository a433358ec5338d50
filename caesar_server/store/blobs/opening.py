"""From the settings to a store of bytes; boto3 is imported only where a bucket is named."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlsplit

from caesar_server.errors import SettingsError
from caesar_server.settings import Settings
from caesar_server.store.blobs.base import BlobError, BlobStore, Staged
from caesar_server.store.blobs.directory import DirectoryBlobs
from caesar_server.store.blobs.temporary import TemporaryBlobs

_S3 = "s3://"
_SQLITE = "sqlite:///"
_EXPECTED = "files: expected a directory, or s3://BUCKET or s3://BUCKET/PREFIX"


def open_blobs(settings: Settings) -> BlobStore:
    """Return the store of bytes that the settings name; nothing is made before it is used.

    Without ``files`` it is a temporary directory, removed at the end, where jobs are in memory, and
    a directory beside the database file with ``-files`` behind its name where it is SQLite's.  With
    PostgreSQL, which several machines may share, every upload is refused until it is set.

    :raises SettingsError: if they name none, or what it takes is not installed.
    """
    if settings.files is not None:
        return _named(settings.files, settings.s3_endpoint_url)
    store = settings.store
    if store is not None and store.startswith(_SQLITE) and len(store) > len(_SQLITE):
        return DirectoryBlobs(Path(f"{store.removeprefix(_SQLITE)}-files").absolute())
    if store in (None, "memory"):
        return TemporaryBlobs(Path(tempfile.gettempdir()))
    return NowhereBlobs(Path(os.devnull, "none"))


def check_files(settings: Settings) -> None:
    """Refuse what :func:`open_blobs` would refuse.

    :raises SettingsError: likewise.
    """
    open_blobs(settings).close()


def _named(files: str, endpoint_url: str | None) -> BlobStore:
    if not files.startswith(_S3):
        if not files.strip() or "://" in files:
            raise SettingsError([_EXPECTED])
        return DirectoryBlobs(Path(files).absolute())
    if endpoint_url is not None and urlsplit(endpoint_url).scheme not in ("http", "https"):
        raise SettingsError(["s3_endpoint_url: expected http://HOST or https://HOST"])
    bucket, _, prefix = files.removeprefix(_S3).partition("/")
    if not bucket:
        raise SettingsError([_EXPECTED])
    try:
        from caesar_server.store.blobs.s3 import S3Blobs
    except ImportError as error:
        raise SettingsError(
            [f"files: S3 takes more ({error}): pip install 'caesar-server[s3]'"]
        ) from error
    return S3Blobs(bucket, prefix, endpoint_url=endpoint_url)


class NowhereBlobs(DirectoryBlobs):
    """Keeps nothing: nobody said where, and a place that is lost with the process would not do."""

    def stage(self) -> Staged:
        """Refuse.

        :raises BlobError: always.
        """
        _refuse()

    def check(self) -> None:
        """Refuse likewise."""
        _refuse()


def _refuse() -> NoReturn:
    raise BlobError("files: name a directory that all servers and workers see, or s3://BUCKET")
