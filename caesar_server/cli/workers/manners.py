"""What this server's workers have in common, whatever gunicorn's own worker below them is."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, ClassVar

from gunicorn import util  # type: ignore[import-untyped]
from gunicorn.http import errors as http_errors  # type: ignore[import-untyped]

from caesar_server.contract.errors import ErrorInfo
from caesar_server.errors import BadRequestError
from caesar_server.settings import Settings
from caesar_server.web.errors import error_object


class Manners:
    """Errors that clients can read, an end to patience, and an end of streams.

    To be inherited before one of gunicorn's workers.  What gunicorn cannot read as HTTP never
    reaches the app.  gunicorn itself answers such requests with HTML, which no client of this
    server can read; these workers answer with OpenAI's error object, whatever the path, since there
    may be none.
    """

    #: How long answers may go on when the worker is to end; they then have some time for a last
    #: frame before gunicorn cuts them off.
    grace_s: ClassVar[float] = 25.0
    #: A client that neither sends nor takes a byte for so many seconds while it is its turn is cut
    #: off.  gunicorn waits for ever, so a few dozen such clients would hold all threads.
    patience_s: ClassVar[float] = 60.0

    #: gunicorn's logger; the worker below sets it.
    log: Any

    @property
    def alive(self) -> bool:
        """Whether the worker goes on; gunicorn sets it when it is to end, for whatever reason."""
        return self._alive

    @alive.setter
    def alive(self, value: bool) -> None:
        ends, self._alive = getattr(self, "_alive", False) and not value, value
        if ends:
            self.begin_to_end()

    def begin_to_end(self) -> None:
        """Give what runs ``grace_s`` seconds.  May be called in a signal handler."""
        services = services_of(self)
        if services is not None:
            self.in_background(services.runner.drain, self.grace_s)

    def in_background(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function soon, outside of a signal handler: a lock there could be its own."""
        raise NotImplementedError

    def give_up(self) -> StopIteration:
        """Note that a client let the worker wait too long; return gunicorn's word for: close."""
        self.log.info("gave up on a client that took nothing for %g s", self.patience_s)
        return StopIteration()

    def handle_error(self, req: Any, client: Any, addr: Any, exc: BaseException) -> None:
        """Answer what is no HTTP request, or not one that gunicorn takes."""
        if not isinstance(exc, http_errors.ParseException) or req is not None:
            super().handle_error(req, client, addr, exc)  # type: ignore[misc]
            return
        self.log.warning("refused what is no request: %s", _complaint(exc))
        try:
            util.write_nonblock(client, _refusal(exc))
        except OSError as error:
            self.log.debug("the client did not wait for the refusal: %s", error)


def grace_s(settings: Settings) -> float:
    """Return how long answers may go on so that the last frames of streams still find time."""
    return settings.graceful_timeout_s - min(2.0, settings.graceful_timeout_s / 4)


def services_of(worker: Any) -> Any:
    """Return the parts of the worker's app; None before there is one, or if it is wrapped."""
    app = getattr(worker, "wsgi", None)
    return getattr(app, "extensions", {}).get("caesar_server")


def _refusal(error: BaseException) -> bytes:
    """Return the whole response to a request that gunicorn refuses."""
    status = next(
        (status for kind, status in _REFUSALS.items() if isinstance(error, kind)),
        HTTPStatus.BAD_REQUEST,
    )
    info = ErrorInfo(
        message=f"{status.phrase}: {_complaint(error)}",
        code=BadRequestError.code,
        type=BadRequestError.type,
        status=status,
    )
    body = json.dumps(error_object(info)).encode()
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\n"
        "Connection: close\r\n"
        "Content-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n"
        f"x-request-id: {uuid.uuid4().hex}\r\n\r\n"
    )
    return head.encode("ascii") + body


def _complaint(error: BaseException) -> str:
    """Return what gunicorn has to say, but not the line that it quotes: a key may stand in it."""
    return str(error).partition(": ")[0][:200]


#: What is more than a plain 400.
_REFUSALS = {
    http_errors.LimitRequestLine: HTTPStatus.REQUEST_URI_TOO_LONG,
    http_errors.LimitRequestHeaders: HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
    http_errors.ExpectationFailed: HTTPStatus.EXPECTATION_FAILED,
}
