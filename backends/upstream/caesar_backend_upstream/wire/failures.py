"""Errors of others as errors of this backend: what the caller may be told, and what to do next."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

from caesar_backend_upstream.http.problems import Problem, ProblemKind
from caesar_backend_upstream.keys import Scrubber
from caesar_server.contract import BackendError, ErrorInfo

_LONGEST_MESSAGE = 2000
_LONGEST_WORD = 100
_DATA_URL = re.compile(r"data:[^\s\"'<>]{30,}", re.IGNORECASE)


class UpstreamFailure(BackendError):
    """An upstream server did not answer, or not with an answer.

    :ivar error: what the caller is told.
    :ivar elsewhere: whether another server, or the same a little later, may answer.
    :ivar unwell: whether it says something about the server's health.
    """

    def __init__(self, error: ErrorInfo, *, elsewhere: bool = False, unwell: bool = False) -> None:
        super().__init__(error.message, code=error.code)
        self.error = error
        self.elsewhere = elsewhere
        self.unwell = unwell

    def info(self) -> ErrorInfo:
        """Return the error as a value."""
        return self.error


@dataclass(frozen=True, slots=True)
class Teller:
    """Words errors of one server.

    :param server: its name.
    :param own_key: whether the operator's key was sent, and not the caller's.
    """

    server: str
    scrubber: Scrubber
    own_key: bool = True

    def problem(self, problem: Problem) -> UpstreamFailure:
        """Return the failure for what happened below HTTP."""
        status, code, text = _PROBLEMS[problem.kind]
        message = f"The upstream server {self.server} {text}"
        if problem.detail:
            message += f": {problem.detail}"
        final = problem.kind == "unsendable"
        info = ErrorInfo(message, code, status=status, transient=not final)
        return UpstreamFailure(info, elsewhere=not final, unwell=not final)

    def bad(self, text: str, *, transient: bool = True) -> UpstreamFailure:
        """Return the failure for an answer that is none; ``text`` is a clause about the server."""
        message = self.scrubber.scrub(f"The upstream server {self.server} {text}")
        info = ErrorInfo(message, "bad_upstream", status=502, transient=transient)
        return UpstreamFailure(info, elsewhere=True, unwell=True)

    def refusal(self, status: int, headers: Mapping[str, str], body: object) -> UpstreamFailure:
        """Return the failure for an answer with an HTTP status other than 200.

        :param body: its JSON, or None if it is none.
        """
        said = said_by(body, self.scrubber)
        delay_s = retry_delay_s(headers)
        if status in (401, 403, 407) and (self.own_key or status == 407):
            return self._key_refused(status)
        if status == 429:
            return self._too_much(said, headers, delay_s)
        if 400 <= status <= 499:
            return self._rejected(status, said)
        if status < 400:
            what = "a redirect, which is not followed" if status >= 300 else "which is no answer"
            return self.bad(f"answered with status {status}, {what}", transient=False)
        text = f"The upstream server {self.server} answered with status {status}"
        info = ErrorInfo(
            f"{text}: {said.message}" if said.message else text,
            said.code or _CODES.get(status, "bad_upstream"),
            said.type or "server_error",
            status=_STATUSES.get(status, 502),
            retry_after_s=delay_s,
            transient=headers.get("x-should-retry") != "false",
        )
        return UpstreamFailure(info, elsewhere=True, unwell=True)

    def frame(self, body: object) -> UpstreamFailure:
        """Return the failure for an error inside of an answer with status 200."""
        said = said_by(body, self.scrubber)
        status = said.status or _STATUS_OF_TYPE.get(said.type or "", 0)
        if status in (401, 403) and self.own_key:
            return self._key_refused(status)
        if status == 429:
            return self._too_much(said, {}, None)
        if 400 <= status <= 499:
            return self._rejected(status, said)
        info = ErrorInfo(
            said.message or f"The upstream server {self.server} reported an error",
            said.code or "bad_upstream",
            said.type or "server_error",
            said.param,
            status=_STATUSES.get(status, 502),
            transient=True,
        )
        return UpstreamFailure(info, elsewhere=True, unwell=True)

    def _key_refused(self, status: int) -> UpstreamFailure:
        text = (
            f"The upstream server {self.server} refused this server's own credentials "
            f"(HTTP {status}); its operator must see to it"
        )
        return UpstreamFailure(
            ErrorInfo(text, "upstream_auth", status=502), elsewhere=True, unwell=True
        )

    def _too_much(
        self, said: Said, headers: Mapping[str, str], delay_s: float | None
    ) -> UpstreamFailure:
        info = ErrorInfo(
            said.message or f"The upstream server {self.server} has too many requests",
            said.code or "rate_limit_exceeded",
            said.type or "rate_limit_error",
            said.param,
            status=429,
            retry_after_s=delay_s,
            transient=headers.get("x-should-retry") != "false",
        )
        return UpstreamFailure(info, elsewhere=True)

    def _rejected(self, status: int, said: Said) -> UpstreamFailure:
        if not said.message:
            # No API says no without a word: this is a wrong URL, or something in between.
            return self.bad(f"answered with status {status} and no error object; is its url right?")
        info = ErrorInfo(
            said.message,
            said.code or "request_rejected",
            said.type or "invalid_request_error",
            said.param,
            status=status,
            transient=status in (408, 409, 425),
        )
        return UpstreamFailure(info, elsewhere=status in (408, 425))


@dataclass(frozen=True, slots=True)
class Said:
    """What an error object says, without secrets; None where it says nothing usable.

    :param status: HTTP status that stands in the object, as vLLM writes it; 0 for none.
    """

    message: str | None = None
    code: str | None = None
    type: str | None = None
    param: str | None = None
    status: int = 0


def said_by(body: object, scrubber: Scrubber) -> Said:
    """Read an error object in any of the forms that servers have for it.

    ``{"error": {...}}`` of OpenAI, the same in a list of Gemini, ``{"error": "text"}`` of Ollama
    and Caesar, ``{"error": ["text"]}`` of TGI, the bare ``{"object": "error", "message": ...}`` of
    older vLLMs and of Mistral, ``{"detail": ...}`` of FastAPI and ``{"errors": [...]}`` of
    Cloudflare.
    """
    if isinstance(body, list) and body:
        body = body[0]
    if not isinstance(body, dict):
        return Said()
    error = body.get("error")
    if isinstance(error, (str, list)):
        return Said(message=_words(_clause(error), scrubber))
    if not isinstance(error, dict):
        error = body
    code = error.get("code")
    status = code if type(code) is int else error.get("status_code", 0)
    message = error.get("message")
    if message is None and error is body:
        message = next((body[name] for name in ("detail", "errors") if body.get(name)), None)
    return Said(
        message=_words(_clause(message), scrubber),
        code=_word(code, scrubber),
        type=_word(error.get("type"), scrubber),
        param=_word(error.get("param"), scrubber),
        status=status if type(status) is int and 400 <= status <= 599 else 0,
    )


def _clause(said: object, depth: int = 4) -> str | None:
    """Return as one text what an error says, be it in words or a list of what is wrong with fields.

    FastAPI has such lists, with what was sent in them, which is not repeated; Mistral has them in
    an object of their own.
    """
    if said is None or isinstance(said, str):
        return said
    if depth == 0:
        return None
    if isinstance(said, list):
        return "; ".join(filter(None, (_clause(item, depth - 1) for item in said)))
    if not isinstance(said, dict):
        return str(said)
    words = next((said[name] for name in ("msg", "message", "detail") if said.get(name)), None)
    place = said.get("loc")
    where = ".".join(map(str, place)) if isinstance(place, list) else ""
    return ": ".join(filter(None, (where, _clause(words, depth - 1))))


def is_error(body: Mapping[str, Any]) -> bool:
    """Return whether an object that came with status 200 is an error all the same."""
    if body.get("error") is not None or body.get("object") == "error":
        return True
    return not body.get("choices") and any(
        isinstance(body.get(key), (str, list)) for key in ("detail", "message")
    )


def retry_delay_s(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """Return how many seconds to wait, from ``retry-after-ms`` or ``Retry-After``; None: unsaid.

    :param headers: names in any case, or in lower case.
    :param now: Unix seconds, for delays that are given as a date.
    """
    exact = _number(headers.get("retry-after-ms"))
    if exact is not None:
        return exact / 1000
    text = headers.get("retry-after")
    delay_s = _number(text)
    if delay_s is not None or text is None:
        return delay_s
    try:
        at = parsedate_to_datetime(text).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None
    return max(0.0, at - (time.time() if now is None else now))


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def _words(text: object, scrubber: Scrubber) -> str | None:
    if not isinstance(text, str) or not text.strip():
        return None
    # some servers repeat what they could not read, and the message may be logged
    return _DATA_URL.sub("data:...", scrubber.scrub(text))[:_LONGEST_MESSAGE]


def _word(text: object, scrubber: Scrubber) -> str | None:
    """Return a machine word; numbers, which stand for a status, are none."""
    if not isinstance(text, str) or not text.strip() or not text.isprintable():
        return None
    return scrubber.scrub(text)[:_LONGEST_WORD]


_UNAVAILABLE, _TIMEOUT, _BAD = "backend_unavailable", "backend_timeout", "bad_upstream"
_PROBLEMS: Mapping[ProblemKind, tuple[int, str, str]] = {
    "cancelled": (503, _UNAVAILABLE, "was left"),
    "dns": (503, _UNAVAILABLE, "has a host name that cannot be resolved"),
    "proxy": (502, _BAD, "cannot be reached through its proxy"),
    "tls": (502, _BAD, "speaks no TLS, or has no trusted certificate for its name"),
    "refused": (503, _UNAVAILABLE, "cannot be connected to"),
    "connect_timeout": (504, _TIMEOUT, "took too long to connect to"),
    "first_byte_timeout": (504, _TIMEOUT, "took too long to begin its answer"),
    "gap_timeout": (504, _TIMEOUT, "was silent for too long within its answer"),
    "total_timeout": (504, _TIMEOUT, "took too long for its answer"),
    "unsendable": (502, _BAD, "cannot be sent the request"),
    "no_answer": (502, _BAD, "closed the connection without an answer"),
    "cut": (502, _BAD, "cut its answer off"),
    "too_long": (502, _BAD, "sent an answer that is too long"),
}
_STATUSES: Mapping[int, int] = {429: 429, 503: 503, 504: 504, 529: 503}
_CODES: Mapping[int, str] = {503: _UNAVAILABLE, 529: _UNAVAILABLE, 504: _TIMEOUT}
#: For errors inside of an answer, which have no status of their own.
_STATUS_OF_TYPE: Mapping[str, int] = {
    "invalid_request_error": 400,
    "BadRequestError": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "NotFoundError": 404,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
}
