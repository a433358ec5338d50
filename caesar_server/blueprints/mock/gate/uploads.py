"""Uploads are read to their end before the rules decide, and read again by the view."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from tempfile import SpooledTemporaryFile
from typing import Any

from flask import Request
from werkzeug.wsgi import get_input_stream

from caesar_server.errors import MalformedBodyError
from caesar_server.mock import native
from caesar_server.mock.calls import documented_path
from caesar_server.mock.content import Content
from caesar_server.web.incoming import incoming
from caesar_server.web.uploads.form import PIECE_BYTES
from caesar_server.web.uploads.receiving import FORM_BYTES

logger = logging.getLogger(__name__)

#: Of the WSGI environ: what the view reads in place of the connection.
_SPOOL_KEY = "caesar_server.mock.spool"
#: What is larger goes to a file.
_IN_MEMORY_BYTES = 1024 * 1024


def is_upload(request: Request) -> bool:
    """Return whether a request brings a file, whatever its body is."""
    return (
        request.method == "POST"
        and "files" in request.path  # which is known at once
        and native.kind_made(documented_path(request.path)) == "file"
    )


def take_upload(request: Request, max_file_bytes: int) -> Content:
    """Read the body of an upload, which may be larger than ``max_body_bytes``, and keep it for the
    view; :func:`forget_upload` must be called in the end.

    One that the view refuses since it is too large is read no further than the view would.

    :raises MalformedBodyError: if it is cut off.
    """
    content = Content(request.headers.get("Content-Type", ""))
    limit, announced = max_file_bytes + FORM_BYTES, request.content_length
    if announced is not None and announced > limit:
        content.leave(announced)
        return content
    spool = SpooledTemporaryFile(_IN_MEMORY_BYTES)  # noqa: SIM115 - closed by forget_upload
    request.environ[_SPOOL_KEY] = spool
    for piece in _pieces(request, limit):
        spool.write(piece)
        content.add(piece)
    if announced is not None and content.size < announced:
        raise MalformedBodyError("The body is shorter than its Content-Length")
    spool.seek(0)
    request.environ["wsgi.input"] = spool
    return content


def forget_upload(_: BaseException | None = None) -> None:
    """Let go of what was kept of the current request's body."""
    spool: SpooledTemporaryFile[bytes] | None = incoming().environ.pop(_SPOOL_KEY, None)
    if spool is not None:
        spool.close()


def _pieces(request: Request, limit: int) -> Iterator[bytes]:
    """Yield the body, or a little more than ``limit`` bytes of it."""
    stream: Any = get_input_stream(request.environ)
    size = 0
    while size <= limit:
        try:
            piece = stream.read(PIECE_BYTES)
        except Exception as error:  # noqa: BLE001 - logged
            # each WSGI server has its own classes for what clients do; see web.bodies
            logger.info("an upload could not be read: %r", error)
            raise MalformedBodyError("The body broke off or came in malformed chunks") from None
        if not piece:
            return
        size += len(piece)
        yield piece
