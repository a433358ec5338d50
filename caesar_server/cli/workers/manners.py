"""What this server's workers have in common, whatever gunicorn's own worker below them is."""

from __future__ import annotations

import gc
import json
import sys
import time
import uuid
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, ClassVar

from gunicorn import util  # type: ignore[import-untyped]
from gunicorn.http import errors as http_errors  # type: ignore[import-untyped]

from caesar_server.contract.errors import ErrorInfo
from caesar_server.errors import BadRequestError
from caesar_server.settings import Settings
from caesar_server.web.access.keyring import Latch
from caesar_server.web.errors import error_object
from caesar_server.web.services import Services

#: How often a worker that is to end looks whether its last run has ended, in seconds.
_LOOK_S = 0.1


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
    #: How long runs may go on for which no client holds a connection.
    ends_after_s: ClassVar[float] = 30.0
    #: A client that neither sends nor takes a byte for so many seconds while it is its turn is cut
    #: off.  gunicorn waits for ever, so a few dozen such clients would hold all threads.
    patience_s: ClassVar[float] = 60.0
    #: Whether the master puts a successor in the worker's place before it tells it to end.
    is_relieved: ClassVar[bool] = False

    #: gunicorn's logger, and the number of requests so far; the worker below sets them.
    log: Any
    nr: int
    notify: Callable[[], None]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # made in the master, which looks at them
        self.serves = Latch()
        self.asks_to_go = Latch()
        super().__init__(*args, **kwargs)

    @property
    def alive(self) -> bool:
        """Whether the worker goes on; gunicorn sets it when it is to end, for whatever reason."""
        return self._alive

    @alive.setter
    def alive(self, value: bool) -> None:
        ends = getattr(self, "_alive", False) and not value
        if ends:
            # first, for another thread may look right after
            self._ended_at = time.monotonic()
        self._alive = value
        if ends:
            self.begin_to_end()

    @property
    def max_requests(self) -> int:
        """After how many requests the worker is replaced; up to twice as many while it runs.

        A worker that ends gives its runs some time, and what takes longer is lost or handed on.
        With gunicorn's own master there is more to it: a worker that ends takes no requests, and
        its successor begins only once it is gone.
        """
        most = self._max_requests
        if self.nr < most or self.nr >= 2 * most:
            return most
        services = services_of(self)
        return sys.maxsize if services is not None and services.runner.running else most

    @max_requests.setter
    def max_requests(self, value: int) -> None:
        self._max_requests = value

    def run(self) -> None:
        """Serve until told to end; then let runs end for which no client holds a connection."""
        self.serves.set()
        super().run()  # type: ignore[misc]
        services = services_of(self)
        # else the master is gone, and nothing was told to end
        if services is not None and not self.alive:
            let_runs_end(services, self._ended_at + self.ends_after_s, self.notify)

    def retire(self) -> None:
        """Ask for a successor and go on until it is there; without such a master, end."""
        if not self.is_relieved:
            super().retire()  # type: ignore[misc]
        elif not self.asks_to_go.is_set():
            self.log.info("This worker has answered %d requests and waits for another.", self.nr)
            self.asks_to_go.set()

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


def let_runs_end(services: Services, until: float, while_waiting: Callable[[], object]) -> None:
    """Return when nothing runs any more, or at the time ``until`` of the monotonic clock.

    :param while_waiting: called again and again meanwhile.
    """
    while services.runner.running and time.monotonic() < until:
        while_waiting()
        time.sleep(_LOOK_S)


def keep_what_is_loaded() -> None:
    """Leave modules and app out of the looks for garbage: they stay as long as the process.

    A full look at them holds all threads up, for some ten milliseconds.  :func:`close_parts` takes
    it back, or Python could not take the process down in its order.
    """
    gc.collect()
    gc.freeze()


def close_parts(services: Services) -> None:
    """Close what the app has at the end of the process."""
    services.close()
    gc.unfreeze()


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
