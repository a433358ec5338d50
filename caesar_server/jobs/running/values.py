"""What the fields of an event may hold: types and ranges.

Python checks neither when a backend makes an event.  Whoever reads it later does: the store gives
back typed events only, and typed clients fail on a wrong number.  So they are checked before an
event is stored.
"""

from __future__ import annotations

import json
import re
import reprlib
import sys
import typing
from collections.abc import Callable, Mapping
from enum import Enum
from typing import NamedTuple, TypeAlias

from caesar_server.contract import codec
from caesar_server.contract.errors import ErrorInfo
from caesar_server.contract.events import (
    Channel,
    ChoiceFinished,
    Completed,
    ContentDelta,
    Event,
    Failed,
    FinishReason,
    LogprobToken,
    LoopFinished,
    ProgressNoted,
    RequestLogged,
    ResultFound,
    SourceStored,
    Started,
    Status,
    StatusChanged,
    TopLogprob,
    UsageCounted,
)

#: The largest whole number that every client's and every database's ``int`` can hold.
MOST = 2**31 - 1
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
#: Beyond it a number is no float: infinity, or a whole number of hundreds of digits.
_MOST_FLOAT = sys.float_info.max


class Misfit(NamedTuple):
    """A field that holds what it must not.

    :param field: its path within the event, such as ``logprobs[0].token``.
    :param value: what it holds.
    :param expected: what it may hold, such as ``a str``.
    """

    field: str
    value: object
    expected: str

    def __str__(self) -> str:
        kind = type(self.value).__name__
        return f"the {self.field} {shown(self.value)} ({kind}); give it {self.expected}"


#: The name of a field, whether a value fits it, and what would.
_Check: TypeAlias = tuple[str, Callable[[object], bool], str]


def misfit_of(event: Event) -> Misfit | None:
    """Return the first field of ``event`` whose type or range is wrong, or None.

    Whether ``details`` are JSON throughout is for :func:`details_misfit`.
    """
    for field, fits, expected in CHECKS[type(event)]:
        value = getattr(event, field)
        if not fits(value):
            return Misfit(field, value, expected)
    if isinstance(event, ContentDelta) and event.logprobs is not None:
        return tokens_misfit(event.logprobs)
    if isinstance(event, Failed) and (misfit := error_misfit(event.error)) is not None:
        return misfit._replace(field=f"error.{misfit.field}")
    return None


def tokens_misfit(tokens: object) -> Misfit | None:
    """Return what is wrong with the ``logprobs`` of a delta, or None."""
    if type(tokens) is not tuple:
        return Misfit("logprobs", tokens, "a tuple of LogprobToken, or None")
    for n, token in enumerate(tokens):
        if type(token) is not LogprobToken:
            return Misfit(f"logprobs[{n}]", token, "a LogprobToken")
        if type(token.token) is not str:
            return Misfit(f"logprobs[{n}].token", token.token, "a str")
        if token.logprob is not None and not _is_finite(token.logprob):
            return Misfit(f"logprobs[{n}].logprob", token.logprob, "a finite float, or None")
        if type(token.top) is not tuple:
            return Misfit(f"logprobs[{n}].top", token.top, "a tuple of TopLogprob")
        for k, other in enumerate(token.top):
            if type(other) is not TopLogprob:
                return Misfit(f"logprobs[{n}].top[{k}]", other, "a TopLogprob")
            if type(other.token) is not str:
                return Misfit(f"logprobs[{n}].top[{k}].token", other.token, "a str")
            if not _is_finite(other.logprob):
                return Misfit(f"logprobs[{n}].top[{k}].logprob", other.logprob, "a finite float")
    return None


def error_misfit(error: ErrorInfo) -> Misfit | None:
    """Return what is wrong with an error that a client is to be told, or None."""
    for field, fits, expected in _ERROR_CHECKS:
        value = getattr(error, field)
        if not fits(value):
            return Misfit(field, value, expected)
    return None


def details_misfit(event: Started | Completed) -> Misfit | None:
    """Return why the details of an event are no JSON, or None."""
    if type(event.details) is dict and not event.details:
        return None  # most have none
    try:
        json.dumps(event.details, allow_nan=False)
        codec.to_json(event)  # stricter: what is a number to Python only has no stored form
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        return Misfit("details", event.details, f"a dict of JSON values: {error}")
    return None


def shown(value: object) -> str:
    """Return ``value`` as it can stand in a message: short, whatever it is."""
    try:
        return reprlib.repr(value)
    except Exception as error:  # noqa: BLE001 - such as a number of too many digits
        return f"<{type(error).__name__} in repr()>"


def _is_text(value: object) -> bool:
    # other subclasses of str have no stored form
    return type(value) is str or (isinstance(value, str) and isinstance(value, Enum))


def _is_storable(value: object) -> bool:
    # a column of text takes neither NUL nor half a character
    return _is_text(value) and _UNSTORABLE.search(typing.cast(str, value)) is None


def _is_plain_text(value: object) -> bool:
    return type(value) is str


def _is_text_or_none(value: object) -> bool:
    return value is None or _is_text(value)


def _is_one_of(words: tuple[str, ...]) -> Callable[[object], bool]:
    return lambda value: _is_text(value) and value in words


def _is_whole(low: int, high: int = MOST) -> Callable[[object], bool]:
    def fits(value: object) -> bool:
        if type(value) is int:
            return low <= value <= high
        # True is an int to Python; other subclasses of int have no stored form
        return isinstance(value, int) and isinstance(value, Enum) and low <= value <= high

    return fits


def _is_finite(value: object) -> bool:
    # NaN compares as False
    return (type(value) is float or type(value) is int) and -_MOST_FLOAT <= value <= _MOST_FLOAT


def _is_share(value: object) -> bool:
    return (type(value) is float or type(value) is int) and 0 <= value <= 1


def _is_wait(value: object) -> bool:
    return _is_finite(value) and typing.cast(float, value) >= 0


def _or_none(fits: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: value is None or fits(value)


def _text(*fields: str) -> tuple[_Check, ...]:
    return tuple((field, _is_text, "a str") for field in fields)


def _text_or_none(*fields: str) -> tuple[_Check, ...]:
    return tuple((field, _is_text_or_none, "a str, or None") for field in fields)


def _word(field: str, literal: object) -> _Check:
    words: tuple[str, ...] = typing.get_args(literal)
    return field, _is_one_of(words), f"one of {', '.join(words)}"


def _whole(field: str, low: int) -> _Check:
    return field, _is_whole(low), f"a whole number (int) from {low} to {MOST}"


_DETAILS: _Check = ("details", lambda value: isinstance(value, Mapping), "a dict of JSON values")

#: What each field of each event may hold; tokens and errors are looked at by themselves.
CHECKS: Mapping[type[Event], tuple[_Check, ...]] = {
    Started: (_DETAILS,),
    StatusChanged: (_word("status", Status), *_text("message")),
    ProgressNoted: _text("message"),
    ResultFound: (
        *_text("id", "title", "url"),
        ("score", _or_none(_is_share), "a number (float) from 0 to 1, or None"),
        (
            "citation_index",
            _or_none(_is_whole(1)),
            f"a whole number (int) from 1 to {MOST}, or None",
        ),
    ),
    SourceStored: (*_text("result_id"), *_text_or_none("raw", "markdown")),
    RequestLogged: (
        *_text("url", "method"),
        ("response_status", _or_none(_is_whole(100, 599)), "an int from 100 to 599, or None"),
        _whole("duration_ms", 0),
        *_text("request_headers", "request_body", "response_headers", "response_body"),
        *_text("provider", "provider_display_name", "provider_icon"),
        *_text_or_none("result_id"),
    ),
    LoopFinished: (_whole("loop", 1),),
    ContentDelta: (
        ("text", _is_plain_text, "a str (IncrementalUtf8 makes it of bytes)"),
        _whole("choice", 0),
        _word("channel", Channel),
    ),
    UsageCounted: (_whole("prompt_tokens", 0), _whole("completion_tokens", 0)),
    ChoiceFinished: (_whole("choice", 0), _word("reason", FinishReason)),
    Completed: (_DETAILS,),
    Failed: (("error", lambda value: isinstance(value, ErrorInfo), "an ErrorInfo"),),
}

_ERROR_CHECKS: tuple[_Check, ...] = (
    ("status", _is_whole(400, 599), "one from 400 to 599"),
    *_text("message", "type"),
    ("code", _is_storable, "a str without NUL and half characters"),
    *_text_or_none("param"),
    ("retry_after_s", _or_none(_is_wait), "seconds from 0 on, or None"),
    ("transient", lambda value: type(value) is bool, "a bool"),
)
