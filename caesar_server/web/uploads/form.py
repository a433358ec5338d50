"""A body of ``multipart/form-data`` as a row of small events (RFC 7578), in constant memory."""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TypeAlias, cast

from flask import Request
from werkzeug.exceptions import RequestEntityTooLarge
from werkzeug.http import parse_options_header
from werkzeug.sansio.multipart import Data, Event, Field, File, MultipartDecoder, NeedData, State
from werkzeug.wsgi import get_input_stream

from caesar_server.errors import MalformedBodyError, ValidationFailedError
from caesar_server.web.bodies import BODY_KEY
from caesar_server.web.uploads.pace import MIN_BYTES_PER_S, Pace

logger = logging.getLogger(__name__)

#: Read at once.
PIECE_BYTES = 64 * 1024
MAX_PARTS = 20
#: Of the head of a part, and of what stands before the first and after the last one.
_MAX_HEAD_BYTES = 16 * 1024
_MAX_BOUNDARY_BYTES = 200
_BACKSLASH = re.compile(r"\\([\\\"])?")
_NO_BEGINNING = (
    "The form does not begin with the boundary that the Content-Type header names; HTTP clients "
    "make both if they are left to"
)
_UNENCODED = ("", "7bit", "8bit", "binary")


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A part begins; its bytes follow, up to :class:`Ended`.

    :param filename: as the client has it, or None.
    :param content_type: likewise.
    """

    name: str
    filename: str | None = None
    content_type: str | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """The part that began last is over."""


FormEvent: TypeAlias = Begun | bytes | Ended


def form_events(
    request: Request, *, max_bytes: int, patience_s: float
) -> Generator[FormEvent, None, None]:
    """Yield what the body of ``request`` consists of.

    :param max_bytes: of the whole body.
    :param patience_s: seconds after which it must have come at some pace; see :class:`Pace`.
    :raises BadRequestError: if it is no such form, is cut off, too large or too slow, or has too
        many parts; always status 400.
    """
    decoder = MultipartDecoder(
        _boundary(request),
        max_form_memory_size=PIECE_BYTES + _MAX_HEAD_BYTES,
        max_parts=MAX_PARTS,
    )
    # closed at once: the watch over its pace must not outlast it
    with closing(_pieces(request, max_bytes, patience_s)) as pieces:
        for piece in pieces:
            yield from _events(decoder, piece)
    if decoder.state is State.PREAMBLE:
        raise MalformedBodyError(_NO_BEGINNING)
    if decoder.state is not State.EPILOGUE:
        raise MalformedBodyError(
            "The form is cut off: its end, the boundary of the Content-Type header between two "
            "pairs of hyphens, did not come"
        )


def _boundary(request: Request) -> bytes:
    if request.mimetype != "multipart/form-data":
        got = f"got {request.mimetype[:40]!r}" if request.mimetype else "got none"
        raise MalformedBodyError(f"Expected Content-Type: multipart/form-data, {got}")
    encoding = request.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise MalformedBodyError(
            f"Content-Encoding {encoding[:40]!r} is not supported: send the body uncompressed"
        )
    boundary = request.mimetype_params.get("boundary", "").encode("utf-8", "replace")
    if not 0 < len(boundary) <= _MAX_BOUNDARY_BYTES:
        raise MalformedBodyError(
            "Content-Type: multipart/form-data needs a boundary of 1 to "
            f"{_MAX_BOUNDARY_BYTES} characters; HTTP clients add one if they are left to"
        )
    return boundary


def _pieces(request: Request, max_bytes: int, patience_s: float) -> Generator[bytes, None, None]:
    """Yield the body as it comes."""
    announced, too_large = request.content_length, MalformedBodyError("The body is too large")
    if announced is not None and announced > max_bytes:
        raise too_large
    already: bytes | None = request.environ.get(BODY_KEY)
    if already is not None:
        for start in range(0, len(already), PIECE_BYTES):
            yield already[start : start + PIECE_BYTES]
        return
    size = 0
    with Pace(request.environ, patience_s, slack_bytes=PIECE_BYTES) as pace:
        for piece in _paced(request, max_bytes, pace):
            size += len(piece)
            if size > max_bytes:
                raise too_large
            yield piece
            _give_way()
    if announced is not None and size < announced:
        raise MalformedBodyError("The body is shorter than its Content-Length")


def _give_way() -> None:
    """Let other greenlets run, which a fast client would leave no time; threads need no help."""
    monkey = sys.modules.get("gevent.monkey")
    # a test may have put something into its place, to count how often its own program waits
    if monkey is not None and monkey.is_module_patched("time"):
        time.sleep(0)


def _paced(request: Request, max_bytes: int, pace: Pace) -> Iterator[bytes]:
    """Yield pieces until the body ends or comes too slowly."""
    # one byte more than allowed, or a body in chunks that is too long would be cut and pass
    stream = get_input_stream(request.environ, max_content_length=max_bytes + 1)
    while True:
        try:
            with pace.waiting():
                piece = stream.read(PIECE_BYTES)
        except RequestEntityTooLarge:
            raise MalformedBodyError("The body is too large") from None
        except Exception as error:  # noqa: BLE001 - logged
            # each WSGI server has its own classes for what clients do; see web.bodies
            logger.info("an upload could not be read: %r", error)
            _check_pace(pace)
            raise MalformedBodyError("The body broke off or came in malformed chunks") from None
        pace.count(len(piece))
        _check_pace(pace)
        if not piece:
            return
        yield piece


def _check_pace(pace: Pace) -> None:
    if pace.too_slow:
        raise MalformedBodyError(
            f"The body comes too slowly: expected at least {MIN_BYTES_PER_S} bytes per second on "
            "average; send it again over a faster connection"
        )


def _events(decoder: MultipartDecoder, piece: bytes) -> Iterator[FormEvent]:
    try:
        decoder.receive_data(piece)
        while not isinstance(event := decoder.next_event(), NeedData):
            yield from _translated(event)
    except RequestEntityTooLarge:
        if decoder.state is State.DATA_START:
            raise ValidationFailedError(
                f"The form has too many parts: at most {MAX_PARTS} are read"
            ) from None
        raise MalformedBodyError(_too_much(decoder.state)) from None
    except ValueError as error:
        # what the decoder says of heads that are none, and of those that are no UTF-8
        logger.info("an upload has a malformed part: %s", error)
        raise MalformedBodyError(
            "The form has a part whose head is malformed: expected Content-Disposition: form-data "
            "with a name, in UTF-8"
        ) from None


def _too_much(state: State) -> str:
    if state is State.PREAMBLE:
        return _NO_BEGINNING
    where = "after the end of the form" if state is State.EPILOGUE else "in the head of a part"
    return f"There is too much {where}"


def _translated(event: Event) -> Iterator[FormEvent]:
    if isinstance(event, (Field, File)):
        head = sum(len(name) + len(value) for name, value in event.headers)
        if head > _MAX_HEAD_BYTES:
            raise MalformedBodyError("There is too much in the head of a part")
        # typed as text, but None where the client gave none
        if cast("str | None", event.name) is None:
            raise MalformedBodyError("The form has a part without a name")
        encoding = event.headers.get("content-transfer-encoding", "").strip().lower()
        if encoding not in _UNENCODED:
            raise MalformedBodyError(
                f"Content-Transfer-Encoding {encoding[:40]!r} is not supported: send the bytes as "
                "they are"
            )
        yield Begun(
            name=event.name,
            filename=_filename(event) if isinstance(event, File) else None,
            content_type=event.headers.get("content-type"),
        )
    elif isinstance(event, Data):
        if event.data:
            yield event.data
        if not event.more_data:
            yield Ended()


def _filename(event: File) -> str | None:
    """Return the name of a file as its client has it.

    Browsers and others leave backslashes as they are (HTML, "multipart/form-data encoding
    algorithm"), and Werkzeug takes each of them for the mark of a quoted character.
    """
    disposition = event.headers.get("content-disposition", "")
    if "\\" not in disposition:
        return event.filename
    # what is no mark before a quote or another backslash stands for itself
    marked = _BACKSLASH.sub(lambda found: found[0] if found[1] else r"\\", disposition)
    _, options = parse_options_header(marked)
    return options.get("filename", event.filename)
