"""From errors to HTTP: one place renders everything that a client is told."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from flask import Flask, Response, current_app, jsonify, request
from werkzeug.exceptions import HTTPException, MethodNotAllowed
from werkzeug.routing import WebsocketMismatch

from caesar_server.contract.errors import BackendError, ErrorInfo
from caesar_server.errors import (
    STORE_AWAY,
    UNEXPECTED,
    BadRequestError,
    BodyTooLargeError,
    MethodNotAllowedError,
    NotFoundError,
    ServerError,
    UnsupportedMediaTypeError,
)
from caesar_server.store.base import StoreError
from caesar_server.store.blobs.base import BlobError
from caesar_server.web.incoming import incoming
from caesar_server.web.observing.exchange import note_code

logger = logging.getLogger(__name__)

#: The longest wait that clients are told of: JavaScript's timers count milliseconds in 32 bits, and
#: what is beyond that fires at once.
_MOST_WAIT_S = (2**31 - 1) // 1000
#: When to try again what a store refused: it is locked, full or not reached, and seldom for long.
_STORE_BACK_S = 5.0
_NO_FILES = "The server cannot store files now; try again in a moment"

#: Paths below these speak OpenAI's error object, all others Caesar's error string.
OPENAI_PREFIXES = ("/compat", "/v1")
_OPENAI_PREFIX = OPENAI_PREFIXES[0]
#: Paths below these know no 413 and no 415: Caesar's reference lists 400 for all that is wrong with
#: a request.
_CAESAR_PREFIXES = ("/research", "/agents")
_ONLY_OPENAI = frozenset({413, 415})


class AnswerError(Exception):
    """Ends a request with an error that is known as a value.

    :param started: whether a backend had begun: repeating the request then costs twice.
    """

    def __init__(self, info: ErrorInfo, *, started: bool = False) -> None:
        super().__init__(info.message)
        self.info = info
        self.started = started


def error_object(info: ErrorInfo) -> dict[str, Any]:
    """Return OpenAI's error envelope, always with its four keys."""
    return {
        "error": {
            "message": info.message,
            "type": info.type,
            "param": info.param,
            "code": info.code,
        }
    }


def printable(text: str) -> str:
    """Return what a client sent as it can stand in a message: short, without control characters."""
    return repr(text[:200])[1:-1]


def render_error(info: ErrorInfo, *, started: bool = False, to_openai: bool = False) -> Response:
    """Return the response for ``info`` in the envelope of the current path.

    :param to_openai: in OpenAI's, whatever the path.
    """
    if to_openai or _speaks_openai(request.path):
        body: dict[str, Any] = error_object(info)
    else:
        body = {"error": info.message}
    note_code(info.code)
    response = jsonify(body)
    response.status_code = info.status
    if info.status in _ONLY_OPENAI and _is_below(request.path, _CAESAR_PREFIXES):
        response.status_code = 400
    _add_retry_headers(response, info, started)
    return response


def register(app: Flask) -> None:
    """Make ``app`` answer every error in the right envelope."""
    app.register_error_handler(ServerError, lambda error: render_error(error.info()))
    app.register_error_handler(BackendError, lambda error: render_error(error.info()))
    app.register_error_handler(
        AnswerError, lambda error: render_error(error.info, started=error.started)
    )
    app.register_error_handler(StoreError, _render_store_error)
    app.register_error_handler(HTTPException, _render_http_exception)
    app.register_error_handler(Exception, _render_unexpected)


def _speaks_openai(path: str) -> bool:
    return _is_below(path, OPENAI_PREFIXES)


def _is_below(path: str, prefixes: Iterable[str]) -> bool:
    path = re.sub("/+", "/", path)
    return any(path == prefix or path.startswith(prefix + "/") for prefix in prefixes)


def _add_retry_headers(response: Response, info: ErrorInfo, started: bool) -> None:
    # openai-python and openai-node retry 408, 409, 429 and 5xx unless this header says otherwise
    if started:
        response.headers["x-should-retry"] = "false"
    elif info.transient:
        response.headers["x-should-retry"] = "true"
    if info.retry_after_s is not None:
        wait_s = min(max(0.0, info.retry_after_s), _MOST_WAIT_S)
        response.headers["Retry-After"] = str(math.ceil(wait_s))
        response.headers["retry-after-ms"] = str(math.ceil(wait_s * 1000))


def _render_http_exception(error: HTTPException) -> Response:
    """Translate what werkzeug and Flask raise by themselves: unknown paths, methods, sizes."""
    # OpenAI's clients show nothing of another object
    to_openai = error.code == 404 and _lacks_prefix()
    response = render_error(_translated(error).info(), to_openai=to_openai)
    if error.code is not None and error.code not in (404, 405, 413, 415):
        response.status_code = error.code
    if isinstance(error, MethodNotAllowed) and error.valid_methods:
        response.headers["Allow"] = ", ".join(sorted(error.valid_methods))
    return response


def _lacks_prefix() -> bool:
    """Return whether the path is one of OpenAI's but for what its clients' base URL ends with."""
    known = current_app.url_map.bind("")
    return known.test(_OPENAI_PREFIX + request.path, request.method)


def _translated(error: HTTPException) -> ServerError:
    where = f"{printable(request.method)} {printable(request.path)}"
    if error.code == 404:
        if _lacks_prefix():
            lacks = f"the base URL of an OpenAI client ends with {_OPENAI_PREFIX}"
            return NotFoundError(f"Unknown path: {where}; {lacks}")
        if _speaks_openai(request.path):
            return NotFoundError(f"Unknown path: {where}")
        return NotFoundError("Resource not found")
    if error.code == 405:
        allowed = sorted(getattr(error, "valid_methods", None) or ())
        return MethodNotAllowedError(f"{where} is not supported; use {', '.join(allowed)}")
    if error.code == 413:
        return BodyTooLargeError(f"The body is larger than {request.max_content_length} bytes")
    if error.code == 415:
        return UnsupportedMediaTypeError("Expected Content-Type: application/json")
    if isinstance(error, WebsocketMismatch):
        return BadRequestError("WebSockets are not spoken here; streams are server-sent events")
    if error.code is not None and error.code < 500:
        return BadRequestError(error.description or error.name)
    return ServerError(UNEXPECTED.message)


def _render_store_error(error: StoreError) -> Response:
    # its sentence names files and hosts, which are the operator's
    is_of_files = isinstance(error, BlobError)
    logger.error(
        "the store of the %s cannot be used, request %s: %s",
        "files" if is_of_files else "jobs",
        incoming().request_id,
        error,
    )
    info = replace(STORE_AWAY, retry_after_s=_STORE_BACK_S)
    return render_error(replace(info, message=_NO_FILES) if is_of_files else info)


def _render_unexpected(error: Exception) -> Response:
    logger.error("unexpected error, request %s", incoming().request_id, exc_info=error)
    return render_error(UNEXPECTED, started=incoming().begun)
