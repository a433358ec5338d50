"""Every error that a client can be told, read from the classes: for the manual and the API."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from caesar_server import errors
from caesar_server.contract import errors as contract_errors
from caesar_server.contract.errors import BackendError, ErrorInfo, RequestRejectedError
from caesar_server.errors import (
    ATTEMPTS,
    BACKEND_GONE,
    CANCELLED,
    DEADLINE,
    FOLLOWED_AWAY,
    SHUTDOWN,
    STORE_AWAY,
    UNEXPECTED,
    WORKER_LOST,
    ServerError,
)

ErrorClass = type[ServerError] | type[BackendError]

#: The errors that no class stands for.
VALUES = (
    *(UNEXPECTED, CANCELLED, SHUTDOWN, DEADLINE),
    *(STORE_AWAY, FOLLOWED_AWAY, WORKER_LOST, BACKEND_GONE, ATTEMPTS),
)

#: Statuses below 500 that openai-python 3.57 and openai-node 6.49 repeat unless told not to.
_REPEATED_STATUSES = (408, 409, 429)

#: What a compat path answers: OpenAI's object, always with its four keys.
ERROR_OBJECT: Mapping[str, Any] = {
    "type": "object",
    "description": "An error, as OpenAI's clients expect it.",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {
                    "type": "string",
                    "description": "For a person: what was wrong, what was expected.",
                },
                "type": {"type": "string", "description": "The kind of error, in OpenAI's words."},
                "param": {
                    "type": ["string", "null"],
                    "description": "Path of the field that is to blame.",
                },
                "code": {
                    "type": ["string", "null"],
                    "description": "A stable word for programs; the responses list them.",
                },
            },
        }
    },
    "examples": [
        {
            "error": {
                "message": "n: expected an integer from 1 to 128, got 0",
                "type": "invalid_request_error",
                "param": "n",
                "code": "invalid_value",
            }
        }
    ],
}
#: What every other path answers.
ERROR_STRING: Mapping[str, Any] = {
    "type": "object",
    "description": "An error, in Caesar's own form.",
    "required": ["error"],
    "properties": {"error": {"type": "string", "description": "What was wrong, for a person."}},
    "examples": [{"error": "Resource not found"}],
}


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """One code with one status.

    :param status: such as ``429``, or a range such as ``400 to 499``.
    :param when: sentences in reStructuredText, from the docstrings.
    :param repeated: whether OpenAI's clients repeat the request by themselves.
    :param names: the classes that are told so.
    """

    code: str
    status: str
    type: str
    when: str
    repeated: bool
    names: tuple[str, ...]

    def has_status(self, status: str) -> bool:
        """Return whether ``status``, or a status of the range ``4XX``, can be this error's."""
        if status.endswith("XX"):
            return " to " in self.status and self.status[0] == status[0]
        return self.status == status


def error_classes() -> list[ErrorClass]:
    """Return the classes whose errors are rendered, in the order of their definition."""
    found = [*vars(contract_errors).values(), *vars(errors).values()]
    return list(
        dict.fromkeys(
            item
            for item in found
            if inspect.isclass(item) and issubclass(item, (ServerError, BackendError))
        )
    )


def error_rows() -> list[ErrorRow]:
    """Return every error by status and code; classes that are told alike share a row."""
    rows: dict[tuple[str, str], ErrorRow] = {}
    for row in (*map(_class_row, error_classes()), *map(_value_row, VALUES)):
        key = row.status, row.code
        rows[key] = _merged(rows[key], row) if key in rows else row
    return [rows[key] for key in sorted(rows)]


def is_repeated(info: ErrorInfo) -> bool:
    """Return whether OpenAI's clients repeat a request that failed so before work on it began."""
    return info.transient or info.status in _REPEATED_STATUSES or info.status >= 500


def errors_reference() -> str:
    """Return the table of all errors, as reStructuredText."""
    lines = [".. list-table::", "   :header-rows: 1", "   :widths: 24 10 22 34 10", ""]
    lines += _table_row("code", "status", "type", "when", "repeated")
    for row in error_rows():
        repeated = "yes" if row.repeated else "no"
        lines += _table_row(f"``{row.code}``", row.status, f"``{row.type}``", row.when, repeated)
    return "\n".join(lines) + "\n"


def _table_row(first: str, *others: str) -> Iterator[str]:
    yield f"   * - {first}"
    yield from (f"     - {text}" for text in others)


def _class_row(cls: ErrorClass) -> ErrorRow:
    when = _first_paragraph(cls)
    if issubclass(cls, RequestRejectedError):
        # The one class whose status is the instance's own.
        low, high = cls("", status=400).info(), cls("", status=499).info()
        return ErrorRow(
            low.code, f"{low.status} to {high.status}", low.type, when, False, (cls.__name__,)
        )
    info = ErrorInfo("", cls.code, cls.type, None, cls.status, None, cls.transient)
    return ErrorRow(
        info.code, str(info.status), info.type, when, is_repeated(info), (cls.__name__,)
    )


def _first_paragraph(cls: type) -> str:
    """Return what a docstring begins with, less the status, which has a column of its own."""
    text = " ".join((inspect.getdoc(cls) or "").partition("\n\n")[0].split())
    return re.sub(r" \(HTTP \d+\)", "", text)


def _value_row(info: ErrorInfo) -> ErrorRow:
    when = f"{info.message}."
    return ErrorRow(info.code, str(info.status), info.type, when, is_repeated(info), ())


def _merged(first: ErrorRow, second: ErrorRow) -> ErrorRow:
    when = _sentences((first.when, second.when))
    return ErrorRow(
        first.code,
        first.status,
        first.type,
        when,
        first.repeated or second.repeated,
        first.names + second.names,
    )


def _sentences(texts: Iterable[str]) -> str:
    return "  ".join(dict.fromkeys(texts))
