"""The server's own errors; with :mod:`caesar_server.contract.errors` all that a client can be told.

Domain code raises these, ``web/errors.py`` renders them.  Each class has one status and one machine
word; the message says what was wrong, what was expected and how to cure it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from caesar_server.contract.errors import ErrorInfo


class ServerError(Exception):
    """Something went wrong in the server itself; the log has the details.

    Base of the errors below.

    :param message: shown to the client as it stands.
    :param param: path of the request's field that is to blame, or None.
    """

    status: ClassVar[int] = 500
    type: ClassVar[str] = "server_error"
    code: ClassVar[str] = "internal_error"
    transient: ClassVar[bool] = False

    def __init__(
        self, message: str, *, param: str | None = None, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s

    def info(self) -> ErrorInfo:
        """Return the error as a value."""
        return ErrorInfo(
            message=self.message,
            code=self.code,
            type=self.type,
            param=self.param,
            status=self.status,
            retry_after_s=self.retry_after_s,
            transient=self.transient,
        )


class BadRequestError(ServerError):
    """The HTTP request itself is at fault: it cannot be read as the endpoint expects."""

    status = 400
    type = "invalid_request_error"
    code = "bad_request"


class MalformedBodyError(BadRequestError):
    """The body is no JSON object."""

    code = "malformed_body"


class ValidationFailedError(BadRequestError):
    """A field of the body, the query or a header has a wrong type or value."""

    code = "invalid_value"


class MissingFieldError(BadRequestError):
    """A required field is absent."""

    code = "missing_required_parameter"


class UnknownFieldError(BadRequestError):
    """A field is not known, and the server was told to refuse such fields."""

    code = "unknown_parameter"


class UnsupportedParameterError(BadRequestError):
    """The parameter is valid, but the chosen backend cannot honour it."""

    code = "unsupported_parameter"


class InvalidKeyError(ServerError):
    """The API key is unknown, expired or revoked; which of these is not told."""

    status = 401
    type = "authentication_error"
    code = "invalid_api_key"

    def __init__(self, message: str = "Invalid API key") -> None:
        super().__init__(message)


class MissingKeyError(InvalidKeyError):
    """The server asks for an API key, and the request has none in ``Authorization: Bearer``."""

    code = "missing_api_key"

    def __init__(self) -> None:
        super().__init__("Missing API key")


class TooManyRequestsError(ServerError):
    """The API key has used up what it may do in a minute, or has too many streams open."""

    status = 429
    type = "rate_limit_error"
    code = "rate_limit_exceeded"
    transient = True

    def __init__(self, *, retry_after_s: float) -> None:
        super().__init__("Too many requests - rate limit exceeded.", retry_after_s=retry_after_s)


class TooManyJobsError(TooManyRequestsError):
    """The account has as many jobs in progress as it may."""

    code = "too_many_jobs"


class LoopsUsedUpError(TooManyRequestsError):
    """The account has consumed its reasoning loops of this month."""

    code = "loops_used_up"
    # before the month is over the same request fails again
    transient = False


class ForbiddenHostError(BadRequestError):
    """The ``Host`` header is not one that this server answers to."""

    status = 403
    code = "host_not_allowed"


class ForbiddenOriginError(BadRequestError):
    """A web page that is not in ``cors_origins`` sent a form, which browsers allow to any page."""

    status = 403
    code = "origin_not_allowed"


class NotFoundError(ServerError):
    """Nothing is at this path, or it belongs to somebody else."""

    status = 404
    type = "invalid_request_error"
    code = "not_found"


class ModelNotFoundError(NotFoundError):
    """No backend answers to this model name."""

    code = "model_not_found"


class NoFixtureMatchError(NotFoundError):
    """No rule of the mock matches the request, and its scope is strict; names the nearest rules."""

    code = "no_fixture_match"


class MethodNotAllowedError(ServerError):
    """The path exists, but not for this HTTP method."""

    status = 405
    type = "invalid_request_error"
    code = "method_not_allowed"


class CheckFailedError(ServerError):
    """The mock did not see what a check of its journal asks for; only under ``/_mock``."""

    status = 409
    type = "invalid_request_error"
    code = "check_failed"


class BodyTooLargeError(ServerError):
    """The body is larger than ``max_body_bytes``."""

    status = 413
    type = "invalid_request_error"
    code = "body_too_large"


class UnsupportedMediaTypeError(ServerError):
    """The body is not ``application/json`` in a charset and encoding that the server reads."""

    status = 415
    type = "invalid_request_error"
    code = "unsupported_media_type"


class PreconditionFailedError(ServerError):
    """An ``If-Match`` header names other bytes than the file has."""

    status = 412
    type = "invalid_request_error"
    code = "precondition_failed"


class RangeNotSatisfiableError(ServerError):
    """A ``Range`` header asks for bytes behind the last; ``Content-Range`` tells their number."""

    status = 416
    type = "invalid_request_error"
    code = "range_not_satisfiable"


class AnswerTooLongError(ServerError):
    """The answer grew beyond ``max_answer_chars``, over all its choices, and was given up."""

    # not 500: with the same request it would grow as long again
    status = 422
    type = "invalid_request_error"
    code = "answer_too_long"


class FaultNotPossibleError(ServerError):
    """The mock was asked for a fault that the host, or the kind of answer, does not allow."""

    # not 501, which OpenAI's clients would try again
    status = 422
    type = "invalid_request_error"
    code = "fault_not_possible"


class BackendLoadError(ServerError):
    """The backend that should answer could not be loaded; the operator can see why."""

    status = 503
    code = "backend_failed_to_load"


class OverloadedError(ServerError):
    """The server has no room for another request now."""

    status = 503
    code = "overloaded"
    transient = True


class QueueFullError(ServerError):
    """As many jobs wait for a process to run them as may."""

    status = 429
    type = "rate_limit_error"
    code = "queue_full"
    transient = True


class StoreUnavailableError(ServerError):
    """The store of jobs or files cannot be read or written now; the server's log tells why."""

    status = 503
    code = "store_unavailable"
    transient = True


class ShuttingDownError(ServerError):
    """The server is about to end and takes nothing new."""

    status = 503
    code = "shutting_down"
    transient = True


class SettingsError(Exception):
    """Settings that the server cannot start with.

    :param problems: one sentence each, naming the setting and where its value came from.
    """

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


#: Told instead of anything that was not meant for the client.
UNEXPECTED = ErrorInfo(message="An unexpected error occurred", code="internal_error")
#: How a job ends that somebody cancelled.
CANCELLED = ErrorInfo(message="The job was cancelled", code="cancelled", status=499)
#: How a job ends that the end of the server cut off.
SHUTDOWN = ErrorInfo(
    message="The server is shutting down; try again in a moment",
    code="shutting_down",
    status=503,
    transient=True,
)
#: How a job ends whose time is up.
DEADLINE = ErrorInfo(
    message="The answer was not ready in time",
    code="deadline_exceeded",
    status=504,
    transient=True,
)
#: How a job ends whose events could not be stored.
STORE_AWAY = ErrorInfo(
    message="The server cannot store jobs now; try again in a moment",
    code=StoreUnavailableError.code,
    status=StoreUnavailableError.status,
    transient=True,
)
#: What the client of a job that outlives it is told while the store cannot be read.
FOLLOWED_AWAY = ErrorInfo(
    message="The server cannot read the job now, but it goes on; the same request sent again with "
    "the header x-stainless-retry-count, as OpenAI's clients do, gets its answer",
    code=StoreUnavailableError.code,
    status=StoreUnavailableError.status,
    transient=True,
)
#: How a job ends whose process was lost, and which no other one can go on with.
WORKER_LOST = ErrorInfo(
    message="The process that worked on the job is gone",
    code="worker_lost",
    status=503,
    transient=True,
)
#: How a job ends that has waited for long while no process could run it.
BACKEND_GONE = ErrorInfo(
    message="No process of the server has the backend that the job waits for",
    code="backend_gone",
    status=503,
)
#: How a job ends that was begun again and again and never came to its end.
ATTEMPTS = ErrorInfo(
    message="The job was begun several times, and each time its process was lost",
    code="attempts",
)
