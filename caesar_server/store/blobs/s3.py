"""Bytes in a bucket of Amazon S3, or of a service that speaks its protocol.

Needs the extra ``s3``, which is boto3.  Credentials come from where boto3 looks for them:
https://boto3.amazonaws.com/v1/documentation/api/latest/guide/credentials.html
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]
from botocore.config import Config  # type: ignore[import-untyped]
from botocore.exceptions import (  # type: ignore[import-untyped]
    BotoCoreError,
    ClientError,
    HTTPClientError,
)

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
from caesar_server.store.blobs.folders import lent_folder, make_folder, sentence, sweep_folders

#: Bytes that an upload holds in memory.  S3 takes no parts below 5 MiB and no more than 10,000.
PART_BYTES = 8 * 1024 * 1024
#: A slow client may take long for a part, so pending ones are left alone for longer.
_PENDING_S = 24 * 60 * 60.0
_ERRORS = (BotoCoreError, ClientError, HTTPClientError)
_MISSING = ("404", "NoSuchKey", "NotFound")


class S3Blobs(BlobStore):
    """One object for each key.

    Up to one part of 8 MiB is sent with one request, and what is larger in parts that become an
    object in one step.  Runs get copies in the machine's folder for temporary files.

    :param prefix: what the names of all objects begin with; one prefix belongs to one store of
        jobs: what that one does not know is swept.
    :param endpoint_url: of another service than Amazon's.
    """

    def __init__(self, bucket: str, prefix: str = "", *, endpoint_url: str | None = None) -> None:
        self.bucket = bucket
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._endpoint_url = endpoint_url
        self._lock = threading.Lock()
        self._client: Any = None
        self._pid = 0
        self._lent = Path(tempfile.gettempdir()) / f"caesar-server-lent-{os.getuid()}"

    @property
    def client(self) -> Any:
        """The client of this process."""
        with self._lock:
            if self._client is None or self._pid != os.getpid():
                # not boto3.client: its shared session is not made for several threads
                self._client = boto3.session.Session().client(
                    "s3",
                    endpoint_url=self._endpoint_url,
                    config=Config(retries={"mode": "standard"}, max_pool_connections=64),
                )
                self._pid = os.getpid()
            return self._client

    def name(self, key: str) -> str:
        """Return the name of the object of a key."""
        if not is_key(key):
            raise UnknownBlobError(key)
        return f"{self._prefix}{key[:2]}/{key}"

    def stage(self) -> Staged:
        """Begin to take bytes in; see :class:`BlobStore`."""
        key = new_key()
        return _StagedObject(self, self.name(key), key)

    def read(self, key: str, start: int = 0, stop: int | None = None) -> Pieces:
        """Return the bytes; see :class:`BlobStore`."""
        name = self.name(key)
        wanted = f"bytes={start}-" if stop is None else f"bytes={start}-{stop - 1}"
        more = {"Range": wanted} if start or stop is not None else {}
        with self.failing(f"cannot read {name}", key):
            found = self.client.get_object(Bucket=self.bucket, Key=name, **more)
        return Pieces(found["Body"], None, _ERRORS)

    def lend(self, key: str, path: Path) -> None:
        """Download the object."""
        pieces = self.read(key)
        try:
            with contextlib.closing(pieces), path.open("xb") as target:
                target.writelines(pieces)
            path.chmod(0o400)
        except OSError as error:
            raise BlobError(sentence("cannot make", path, error)) from error

    def lending(self) -> AbstractContextManager[Path]:
        """Give a folder among the machine's temporary files.

        :raises BlobError: if somebody else has made the one around it.
        """
        try:
            make_folder(self._lent)
            found = self._lent.lstat()
        except OSError as error:
            raise BlobError(sentence("cannot make", self._lent, error)) from error
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            raise BlobError(f"files: {self._lent} is somebody else's; remove it")
        return lent_folder(self._lent)

    def delete(self, key: str) -> None:
        """Remove the object."""
        name = self.name(key)
        with self.failing(f"cannot remove {name}"):
            self.client.delete_object(Bucket=self.bucket, Key=name)

    def stored_keys(self) -> Iterator[StoredKey]:
        """Yield the keys; see :class:`BlobStore`."""
        for page in self._pages("list_objects_v2"):
            for found in page.get("Contents", ()):
                key = found["Key"].rpartition("/")[2]
                if is_key(key) and found["Key"] == self.name(key):
                    yield StoredKey(key, found["LastModified"].timestamp())

    def sweep_staged(self, older_than_s: float) -> int:
        """Abandon uploads to which no part was added for a day."""
        until = time.time() - max(older_than_s, _PENDING_S)
        removed = 0
        for page in self._pages("list_multipart_uploads"):
            for found in page.get("Uploads", ()):
                key = found["Key"].rpartition("/")[2]
                if is_key(key) and found["Key"] == self.name(key):
                    removed += self._sweep_upload(found, until)
        return removed

    def sweep_lent(self, older_than_s: float) -> int:
        """Remove folders of dead processes; see :class:`BlobStore`."""
        return sweep_folders(self._lent, older_than_s)

    def check(self) -> None:
        """Ask for the bucket."""
        with self.failing("cannot be reached"):
            self.client.head_bucket(Bucket=self.bucket)

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    @contextmanager
    def failing(self, what: str, key: str | None = None) -> Iterator[None]:
        """Turn what boto3 raises in the block into :class:`BlobError`.

        :param key: a missing object is an :class:`UnknownBlobError` of it.
        """
        try:
            yield
        except _ERRORS as error:
            code = error.response["Error"]["Code"] if isinstance(error, ClientError) else None
            if key is not None and code in _MISSING:
                raise UnknownBlobError(key) from None
            raise BlobError(f"files: bucket {self.bucket}: {what}: {error}") from error

    def _pages(self, operation: str) -> Iterator[Any]:
        with self.failing("cannot be listed"):
            paginator = self.client.get_paginator(operation)
            yield from paginator.paginate(Bucket=self.bucket, Prefix=self._prefix)

    def _sweep_upload(self, found: Any, until: float) -> bool:
        of_upload = {"Bucket": self.bucket, "Key": found["Key"], "UploadId": found["UploadId"]}
        if found["Initiated"].timestamp() > until:
            return False
        with self.failing(f"cannot abandon an upload of {found['Key']}", ""):
            try:
                for page in self.client.get_paginator("list_parts").paginate(**of_upload):
                    for part in page.get("Parts", ()):
                        if part["LastModified"].timestamp() > until:
                            return False
                self.client.abort_multipart_upload(**of_upload)
            except self.client.exceptions.NoSuchUpload:
                return False
        return True


class _StagedObject(Staged):
    """At most one part in memory; the upload in parts begins when that is full."""

    def __init__(self, blobs: S3Blobs, name: str, key: str) -> None:
        self.key = key
        self._blobs = blobs
        self._of_object = {"Bucket": blobs.bucket, "Key": name}
        self._buffer = bytearray()
        self._upload: dict[str, str] | None = None
        self._parts: list[dict[str, Any]] = []

    def write(self, data: bytes) -> None:
        """Add bytes; see :class:`Staged`."""
        self._buffer += data
        while len(self._buffer) > PART_BYTES:
            self._send(bytes(self._buffer[:PART_BYTES]))
            del self._buffer[:PART_BYTES]

    def keep(self) -> None:
        """Send what is left, and make an object of it."""
        with self._failing("cannot keep"):
            if self._upload is None:
                self._blobs.client.put_object(**self._of_object, Body=bytes(self._buffer))
                return
            self._send(bytes(self._buffer))
            self._blobs.client.complete_multipart_upload(
                **self._of_object, **self._upload, MultipartUpload={"Parts": self._parts}
            )
            self._upload = None

    def discard(self) -> None:
        """Abandon what was begun."""
        upload, self._upload = self._upload, None
        self._buffer.clear()
        if upload is not None:
            with self._failing("cannot abandon"):
                self._blobs.client.abort_multipart_upload(**self._of_object, **upload)

    def _send(self, data: bytes) -> None:
        with self._failing("cannot send"):
            if self._upload is None:
                begun = self._blobs.client.create_multipart_upload(**self._of_object)
                self._upload = {"UploadId": begun["UploadId"]}
            number = len(self._parts) + 1
            sent = self._blobs.client.upload_part(
                **self._of_object, **self._upload, PartNumber=number, Body=data
            )
            self._parts.append({"PartNumber": number, "ETag": sent["ETag"]})

    def _failing(self, what: str) -> AbstractContextManager[None]:
        return self._blobs.failing(f"{what} {self._of_object['Key']}")
