"""The download of a file's bytes."""

from __future__ import annotations

import re
from urllib.parse import quote

from flask import Response, request
from werkzeug.datastructures import Range
from werkzeug.http import dump_options_header, parse_range_header

from caesar_server.blueprints.files.files import own_file
from caesar_server.errors import PreconditionFailedError, RangeNotSatisfiableError
from caesar_server.store.blobs.base import BlobError, Pieces, UnknownBlobError
from caesar_server.store.owned.base import OwnedFile
from caesar_server.web.errors import printable, render_error
from caesar_server.web.services import services

_LAST_NONE = re.compile(r"(?<![0-9])-0+(?![0-9])")


def retrieve_research_file_content(file_id: str) -> Response:
    """``GET /research/files/{id}/content``: a file's bytes; an extension."""
    file, pieces = _opened(file_id)
    if _is_another(file):
        pieces.close()
        raise PreconditionFailedError(
            "If-Match: the file has other bytes by now; ask without it for those it has"
        )
    if _asks_beyond(file) and not _is_known(file):
        pieces.close()
        return _beyond(file)
    start, stop = _range(file)
    # not mimetype=, which would add a charset that nobody has checked
    response = Response(content_type=file.content_type)
    # Whatever it is, no browser shall show it as a page of this server.
    response.headers["Content-Disposition"] = _attachment(file.name)
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Content-Security-Policy"] = "sandbox; default-src 'none'"
    response.headers["Cache-Control"] = "private, no-cache"
    response.headers["Accept-Ranges"] = "bytes"
    response.set_etag(file.sha256)
    if _is_known(file):
        pieces.close()
        response.status_code = 304
        return response
    if (start, stop) != (0, file.size):
        response.status_code = 206
        response.headers["Content-Range"] = f"bytes {start}-{stop - 1}/{file.size}"
    if request.method == "HEAD":
        pieces.close()
    else:
        response.response = pieces
    response.content_length = stop - start
    return response


def _opened(file_id: str) -> tuple[OwnedFile, Pieces]:
    """Return a file and those of its bytes that are asked for."""
    key = None
    while True:
        file = own_file(file_id)
        try:
            return file, services().blobs.read(file.key, *_range(file))
        except UnknownBlobError as error:
            # deleted between the two looks, or uploaded anew: otherwise its bytes are lost
            if file.key == key:
                raise BlobError(f"files: the bytes of file {file.id} are gone: {error}") from error
            key = file.key


def _range(file: OwnedFile) -> tuple[int, int]:
    """Return which bytes are asked for: all, where it is not one range that the file has."""
    asked = _asked(file)
    found = None if asked is None else asked.range_for_length(file.size)
    return (0, file.size) if found is None else found


def _asked(file: OwnedFile) -> Range | None:
    """Return the ranges of bytes that the client wants of the file as it is, or None for all."""
    # of a HEAD request the header means nothing (RFC 9110, 14.2)
    if request.method != "GET":
        return None
    # the last 0 bytes begin at the end; werkzeug takes -0 for byte 0
    header = _LAST_NONE.sub(f"{file.size}-", request.headers.get("Range", ""))
    asked = parse_range_header(header)
    if asked is None or asked.units != "bytes":
        return None
    # whoever has but a weak mark cannot put pieces together (RFC 9110, 13.1.5)
    is_weak = request.headers.get("If-Range", "").strip().startswith("W/")
    if is_weak or request.if_range.date is not None:
        return None
    return asked if request.if_range.etag in (None, file.sha256) else None


def _is_known(file: OwnedFile) -> bool:
    """Return whether the client has all bytes already, and needs none."""
    # a proxy that compresses makes the mark a weak one (RFC 9110, 13.1.2)
    return request.if_none_match.contains_weak(file.sha256)


def _is_another(file: OwnedFile) -> bool:
    """Return whether the client wants a file that this one is not (RFC 9110, 13.1.1)."""
    return "If-Match" in request.headers and not request.if_match.contains(file.sha256)


def _asks_beyond(file: OwnedFile) -> bool:
    """Return whether each of the ranges that are asked for begins behind the end of the file."""
    asked = _asked(file)
    return asked is not None and all(start >= file.size for start, _ in asked.ranges)


def _beyond(file: OwnedFile) -> Response:
    response = render_error(
        RangeNotSatisfiableError(
            f"Range: expected bytes of the {file.size} that the file has, got "
            f"'{printable(request.headers['Range'])}'"
        ).info()
    )
    response.headers["Content-Range"] = f"bytes */{file.size}"
    response.headers["Accept-Ranges"] = "bytes"
    return response


def _attachment(name: str) -> str:
    """Return the header that makes a browser save the file under its name (RFC 6266)."""
    plain = name.encode("ascii", "replace").decode().replace("?", "_")
    options = {"filename": plain}
    if plain != name:
        options["filename*"] = f"UTF-8''{quote(name, safe='')}"
    return dump_options_header("attachment", options)
