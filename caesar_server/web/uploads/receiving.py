"""One file out of a form, on its way to the store of bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass

from flask import Request

from caesar_server.errors import MissingFieldError, ValidationFailedError
from caesar_server.store.blobs.base import BlobStore, Staged
from caesar_server.web.errors import printable
from caesar_server.web.framework.ids import plain_id
from caesar_server.web.uploads.form import Begun, Ended, form_events
from caesar_server.web.uploads.names import display_name
from caesar_server.web.uploads.types import HEAD_BYTES, content_type_of

#: What a form may be larger than its file.
FORM_BYTES = 1024 * 1024
_MAX_ID_BYTES = 200
_MAX_FIELD_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """A file that has arrived.

    :param staged: its bytes; they are gone unless whoever gets this keeps them.
    :param name: for display.
    :param content_type: MIME type, from the bytes.
    :param size: bytes.
    :param sha256: in lower-case hexadecimal.
    :param collection_id: as the form has it, or None.
    """

    staged: Staged
    name: str
    content_type: str
    size: int
    sha256: str
    collection_id: str | None


@contextmanager
def received(
    request: Request,
    blobs: BlobStore,
    *,
    max_file_bytes: int,
    patience_s: float,
    check_collection: Callable[[str], None],
) -> Iterator[Upload]:
    """Read the form of ``request`` to its end and give its file for a ``with`` block.

    :param patience_s: seconds after which the body must have come at some pace.
    :param check_collection: called with the form's ``collection_id`` as soon as that is known;
        raises if it is unknown.
    :raises BadRequestError: with status 400 if the form is not as it should be: nothing is kept.
    :raises BlobError: if the bytes cannot be kept.
    """
    announced = request.content_length
    if announced is not None and announced > max_file_bytes + FORM_BYTES:
        raise _too_large(max_file_bytes)
    with ExitStack() as stack:
        reader = _Reader(stack, blobs, max_file_bytes, check_collection)
        most = max_file_bytes + FORM_BYTES
        with closing(form_events(request, max_bytes=most, patience_s=patience_s)) as events:
            for event in events:
                reader.take(event)
        yield reader.upload()


class _Reader:
    """Takes the events of a form in.

    :param stack: discards what was staged, whatever happens.
    """

    def __init__(
        self,
        stack: ExitStack,
        blobs: BlobStore,
        max_file_bytes: int,
        check_collection: Callable[[str], None],
    ) -> None:
        self._stack = stack
        self._blobs = blobs
        self._max_file_bytes = max_file_bytes
        self._check_collection = check_collection
        self._part: Begun | None = None
        self._field = bytearray()
        self._file: _File | None = None
        self._collection_id: str | None = None
        self._has_collection = False

    def take(self, event: Begun | bytes | Ended) -> None:
        """Take the next event."""
        if isinstance(event, Begun):
            self._begin(event)
        elif isinstance(event, bytes):
            self._add(event)
        else:
            self._end()

    def upload(self) -> Upload:
        """Return the file, after the last event.

        :raises BadRequestError: if there is none, or it is empty.
        """
        file = self._file
        if file is None:
            raise MissingFieldError(
                "file: required and missing; send the file as a part of this name", param="file"
            )
        if not file.size:
            raise ValidationFailedError("file: the file is empty", param="file")
        name = display_name(file.part.filename)
        return Upload(
            staged=file.staged,
            name=name,
            content_type=content_type_of(bytes(file.head), name, file.part.content_type),
            size=file.size,
            sha256=file.sha256.hexdigest(),
            collection_id=self._collection_id,
        )

    def _begin(self, part: Begun) -> None:
        self._part = part
        self._field.clear()
        if part.name == "file":
            if self._file is not None:
                raise ValidationFailedError(
                    "file: expected one part of this name, got a second; send each file with a "
                    "request of its own",
                    param="file",
                )
            self._file = _File(part, self._stack.enter_context(self._blobs.stage()))
        elif part.name == "collection_id":
            if self._has_collection:
                raise ValidationFailedError(
                    "collection_id: expected one part of this name, got a second",
                    param="collection_id",
                )
            self._has_collection = True
        elif part.filename is not None:
            name = printable(part.name[:60])
            raise ValidationFailedError(
                f"{name}: unexpected file; its part must have the name 'file'", param=name
            )

    def _add(self, data: bytes) -> None:
        if self._file is not None and self._part is self._file.part:
            self._file.add(data)
            if self._file.size > self._max_file_bytes:
                raise _too_large(self._max_file_bytes)
            return
        part = self._part
        name = "" if part is None else part.name
        self._field += data
        if len(self._field) > (_MAX_ID_BYTES if name == "collection_id" else _MAX_FIELD_BYTES):
            shown = printable(name[:60])
            raise ValidationFailedError(f"{shown}: the field is too long", param=shown)

    def _end(self) -> None:
        if self._part is None or self._part.name != "collection_id":
            return
        collection_id = plain_id(self._field.decode("utf-8", "replace").strip())
        # forms send fields that nobody filled in
        if collection_id:
            self._check_collection(collection_id)
            self._collection_id = collection_id


class _File:
    """The part that is the file."""

    def __init__(self, part: Begun, staged: Staged) -> None:
        self.part = part
        self.staged = staged
        self.size = 0
        self.sha256 = hashlib.sha256()
        self.head = bytearray()

    def add(self, data: bytes) -> None:
        self.size += len(data)
        self.sha256.update(data)
        if len(self.head) < HEAD_BYTES:
            self.head += data[: HEAD_BYTES - len(self.head)]
        self.staged.write(data)


def _too_large(max_file_bytes: int) -> ValidationFailedError:
    return ValidationFailedError(
        f"file: expected at most {max_file_bytes} bytes, got more", param="file"
    )
