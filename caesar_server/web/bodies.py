"""Reading a JSON body, and saying exactly why it cannot be read."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NoReturn

from flask import Request
from werkzeug.exceptions import RequestEntityTooLarge
from werkzeug.http import parse_options_header
from werkzeug.sansio.utils import get_content_length
from werkzeug.wsgi import get_input_stream

from caesar_server.errors import BodyTooLargeError, MalformedBodyError, UnsupportedMediaTypeError
from caesar_server.web.incoming import answering

logger = logging.getLogger(__name__)

#: Of the WSGI environ: the body, left there by whoever reads it before the view does.
BODY_KEY = "caesar_server.body"
#: So many good Content-Type headers are remembered.
_REMEMBERED = 64

#: The charsets that JSON may come in, written without hyphens.  ``codecs.lookup`` is no help: it
#: keeps every name that it was ever asked for.
_CHARSETS = frozenset(
    {"utf8", "utf16", "utf16le", "utf16be", "utf32", "utf32le", "utf32be", "usascii"}
)


def read_json_object(request: Request) -> dict[str, Any]:
    """Return the body of ``request``, which must be one JSON object.

    Of members with equal names the last one counts, at any depth, as OpenAI's API has it.

    :raises UnsupportedMediaTypeError: if it is not declared as JSON in UTF-8, UTF-16 or UTF-32, or
        is compressed.
    :raises BodyTooLargeError: if it is larger than the app's limit.  It is not read then, or, if
        its length was not announced, only until the limit is passed.
    :raises MalformedBodyError: if it is cut off, empty, no JSON or no object.
    """
    _check_headers(request.environ)
    body = _parse(_decode(read_body(request)))
    if not isinstance(body, dict):
        raise MalformedBodyError(f"The body must be a JSON object, got {_json_type(body)}")
    return body


def _check_headers(environ: Mapping[str, Any]) -> None:
    # Requiring JSON is a defence too: a web page cannot send it to another origin unasked.
    _check_content_type(environ.get("CONTENT_TYPE", ""))
    encoding = environ.get("HTTP_CONTENT_ENCODING", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise UnsupportedMediaTypeError(
            f"Content-Encoding {encoding[:40]!r} is not supported: send the body uncompressed"
        )


@lru_cache(_REMEMBERED)
def _check_content_type(header: str) -> None:
    """Refuse what is not declared as JSON; a good header is looked at once, for few are sent."""
    kind, options = parse_options_header(header)
    kind = kind.lower()
    if kind != "application/json" and not (
        kind.startswith("application/") and kind.endswith("+json")
    ):
        got = f"got {kind[:40]!r}" if kind else "got none"
        raise UnsupportedMediaTypeError(f"Expected Content-Type: application/json, {got}")
    charset = options.get("charset")
    if charset is not None and not _is_unicode(charset):
        raise UnsupportedMediaTypeError(
            f"charset {charset[:40]!r} is not supported: JSON is sent as UTF-8"
        )


def _is_unicode(charset: str) -> bool:
    return charset.lower().replace("-", "").replace("_", "") in _CHARSETS


def read_body(request: Request) -> bytes:
    """Return the body of ``request`` as it came.  It can be read only once.

    Whoever reads it before the view does leaves it under :data:`BODY_KEY`.

    :raises BodyTooLargeError: if it is larger than the app's limit.  It is not read then, or, if
        its length was not announced, only until the limit is passed.
    :raises MalformedBodyError: if it is cut off.
    """
    already: bytes | None = request.environ.get(BODY_KEY)
    if already is not None:
        return already
    environ = request.environ
    # what the request itself says of it, too, but that looks for the app twice
    limit: int | None = answering().config["MAX_CONTENT_LENGTH"]
    announced = get_content_length(
        environ.get("CONTENT_LENGTH"), environ.get("HTTP_TRANSFER_ENCODING")
    )
    if limit is not None and announced is not None and announced > limit:
        raise _too_large(limit)
    try:
        if announced is None:
            # One byte more than allowed, or a body that is too long would be cut and pass.
            most = None if limit is None else limit + 1
            raw = get_input_stream(environ, max_content_length=most).read()
        else:
            raw = _read_all(environ["wsgi.input"], announced)
    except RequestEntityTooLarge:
        raise _too_large(limit) from None
    except Exception as error:  # noqa: BLE001 - logged
        # Each WSGI server has its own classes for chunks that are none, a client that left or one
        # that stopped sending: they are the client's doing in any case.
        logger.info("a request's body could not be read: %r", error)
        raise MalformedBodyError("The body broke off or came in malformed chunks") from None
    if limit is not None and len(raw) > limit:
        raise _too_large(limit)
    if announced is not None and len(raw) < announced:
        raise MalformedBodyError("The body is shorter than its Content-Length")
    return raw


def _read_all(stream: Any, length: int) -> bytes:
    """Return so many bytes of a WSGI input, or what there is of them."""
    raw: bytes = stream.read(length)
    if not raw or len(raw) == length:
        return raw  # as with nearly every host
    parts = [raw]
    left = length - len(raw)
    while left > 0 and (part := stream.read(left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _too_large(limit: int | None) -> BodyTooLargeError:
    return BodyTooLargeError(f"The body is larger than {limit} bytes")


def _decode(raw: bytes) -> str:
    if raw[:1] == b"{" and raw[1:2] != b"\0":
        encoding = "utf-8"  # as json's own rule has it, with fewer looks
    elif not raw or raw.isspace():
        raise MalformedBodyError("The body is empty: expected a JSON object")
    else:
        # UTF-8, -16 or -32, told by the first bytes, with or without a BOM
        encoding = json.detect_encoding(raw)
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError as error:
        raise MalformedBodyError(f"The body is not valid UTF-8 at byte {error.start}") from None


def _parse(text: str) -> Any:
    try:
        return _JSON.decode(text)
    except json.JSONDecodeError as error:
        raise MalformedBodyError(
            f"The body is not valid JSON: {error.msg.removesuffix(' at')} at line {error.lineno}, "
            f"column {error.colno}"
        ) from None
    except RecursionError:
        raise MalformedBodyError("The body is nested too deeply") from None
    except ValueError as error:
        # a number of over 4300 digits or beyond all floats, or a constant that JSON does not have;
        # what Python says after a colon is advice for programmers
        reason = str(error).partition(":")[0]
        raise MalformedBodyError(f"The body is not valid JSON: {reason}") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")


def _finite(digits: str) -> float:
    """Return a number that every program can read and write again, which infinity is not."""
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"the number {digits[:40]} is too large")
    return number


#: Made once; it keeps nothing of what it reads.
_JSON = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite)


def _json_type(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    return {str: "a string", int: "a number", float: "a number", list: "an array"}[type(value)]
