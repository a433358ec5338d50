"""What a backend raises, and how an error travels as data.

Errors are recognised by class, never by their text.  Anything else that a backend raises is
answered with a 500 whose details stay in the log.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class ErrorInfo:
    """An error as a value: what surfaces render and jobs store.

    :param message: a sentence for a person: what was wrong, what was expected.
    :param code: a stable machine word, such as ``rate_limit_exceeded``; without NUL.
    :param type: OpenAI's error type, such as ``invalid_request_error`` or ``server_error``.
    :param param: path of the field that is to blame (``metadata.reasoning_loops``), or None.
    :param status: HTTP status, 400 to 599.
    :param retry_after_s: seconds after which to try again, or None.
    :param transient: whether the same request may succeed later.
    """

    message: str
    code: str
    type: str = "server_error"
    param: str | None = None
    status: int = 500
    retry_after_s: float | None = None
    transient: bool = False


class BackendError(Exception):
    """A run failed for a reason that the caller may be told.

    :param message: shown to the caller as it stands: no secrets, no stack traces.
    :param code: overrides the class's machine word.
    """

    status: ClassVar[int] = 500
    type: ClassVar[str] = "server_error"
    code: ClassVar[str] = "backend_error"
    transient: ClassVar[bool] = False

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.own_code = code

    def info(self) -> ErrorInfo:
        """Return the error as a value."""
        return ErrorInfo(
            message=self.message,
            code=self.own_code or self.code,
            type=self.type,
            status=self.status,
            transient=self.transient,
        )


class InvalidRequestError(BackendError):
    """The request asks for something that this backend cannot do (HTTP 400).

    :param param: the request's field that is to blame, such as ``suffix``.
    """

    status = 400
    type = "invalid_request_error"
    code = "invalid_value"

    def __init__(self, message: str, *, param: str | None, code: str | None = None) -> None:
        super().__init__(message, code=code)
        self.param = param

    def info(self) -> ErrorInfo:
        return ErrorInfo(
            message=self.message,
            code=self.own_code or self.code,
            type=self.type,
            param=self.param,
            status=self.status,
        )


class RequestRejectedError(BackendError):
    """The service behind the backend refused the request; its words are passed on.

    :param status: its HTTP status, 400 to 499.
    :param code: its machine word, or None.
    :param type: its error type, or None for ``invalid_request_error``.
    :raises ValueError: if ``status`` is out of range.
    """

    code = "request_rejected"

    def __init__(
        self,
        message: str,
        *,
        status: int,
        code: str | None = None,
        type: str | None = None,
        param: str | None = None,
    ) -> None:
        if not 400 <= status <= 499:
            raise ValueError(f"status: expected 400 to 499, got {status}")
        super().__init__(message, code=code)
        self.own_status = status
        self.own_type = type
        self.param = param

    def info(self) -> ErrorInfo:
        return ErrorInfo(
            message=self.message,
            code=self.own_code or self.code,
            type=self.own_type or "invalid_request_error",
            param=self.param,
            status=self.own_status,
        )


class RateLimitedError(BackendError):
    """Too much at once; the caller should wait (HTTP 429).

    :param retry_after_s: seconds, 0 or more; None where it is not known.
    """

    status = 429
    type = "rate_limit_error"
    code = "rate_limit_exceeded"
    transient = True

    def __init__(
        self, message: str, *, retry_after_s: float | None = None, code: str | None = None
    ) -> None:
        super().__init__(message, code=code)
        self.retry_after_s = retry_after_s

    def info(self) -> ErrorInfo:
        return ErrorInfo(
            message=self.message,
            code=self.own_code or self.code,
            type=self.type,
            status=self.status,
            retry_after_s=self.retry_after_s,
            transient=True,
        )


class BackendUnavailableError(BackendError):
    """What the backend needs cannot be reached now (HTTP 503)."""

    status = 503
    code = "backend_unavailable"
    transient = True


class BadUpstreamError(BackendError):
    """The service behind the backend answered, but not with anything usable (HTTP 502)."""

    status = 502
    code = "bad_upstream"
    transient = True


class BackendTimeoutError(BackendError):
    """What the backend waited for took too long (HTTP 504)."""

    status = 504
    code = "backend_timeout"
    transient = True


class Cancelled(Exception):
    """Raised by ``context.raise_if_cancelled()`` and ``context.sleep()``: let it pass through.

    ``reason`` is ``cancelled`` (the client left, somebody cancelled the job, the server stops) or
    ``deadline``.
    """

    def __init__(self, reason: str = "cancelled") -> None:
        super().__init__(reason)
        self.reason = reason
