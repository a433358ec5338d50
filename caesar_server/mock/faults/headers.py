"""Faults that a request asks for in its headers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from caesar_server.mock.faults.checking import FaultError, check_fault, nearest
from caesar_server.mock.model.fault import Fault

PREFIX = "x-caesar-mock-"
FAULT_HEADER = "X-Caesar-Mock-Fault"
STRICT_HEADER = "X-Caesar-Mock-Strict"
#: As a value of :data:`FAULT_HEADER`: whatever rules and defaults say, nothing goes wrong.
NONE = "none"

#: Header -> what it says; those of a fault's fields have the field's name.
HEADERS: Mapping[str, str] = {
    FAULT_HEADER: "the kind of fault, or ``none``",
    "X-Caesar-Mock-After-Chunks": "``after_chunks``",
    "X-Caesar-Mock-Status": "``status``",
    "X-Caesar-Mock-Body": "``body``: a JSON object or array, anything else is text",
    "X-Caesar-Mock-Message": "``message``",
    "X-Caesar-Mock-Code": "``code``",
    "X-Caesar-Mock-Retry-After": "``retry_after_s``",
    "X-Caesar-Mock-Delay": "``delay_s``",
    "X-Caesar-Mock-Content-Type": "``content_type``",
    "X-Caesar-Mock-Count": "``count``",
    "X-Caesar-Mock-Probability": "``probability``",
    STRICT_HEADER: "``true`` or ``false``: whether a call without a rule is refused",
    "X-Caesar-Mock-Scope": "the scope that answers",
}
_STRICT = STRICT_HEADER.lower()
#: Taken by others, or never the client's to set.
_ELSEWHERE = {"x-caesar-mock-scope", "x-caesar-mock-call", _STRICT}


def header_faults(headers: Mapping[str, str]) -> tuple[Fault, ...] | None:
    """Return the faults that a request asks for, or None if it says nothing about faults.

    :param headers: names in lower case.
    :raises FaultError: if a header that begins with ``X-Caesar-Mock-`` makes no sense; its fields
        are the headers' names.
    """
    if PREFIX not in "\n".join(headers):
        return None  # as nearly always, told without a look at each
    given = {
        name: value.strip()
        for name, value in headers.items()
        if name.startswith(PREFIX) and name not in _ELSEWHERE
    }
    if not given:
        return None
    known = {name.lower(): name for name in HEADERS}
    for name in given:
        if name not in known:
            raise FaultError([(name, f"unknown header{nearest(name, known)}")])
    kind = given.pop(FAULT_HEADER.lower(), None)
    if kind is None:
        raise FaultError([(known[next(iter(given))], f"needs {FAULT_HEADER} beside it")])
    if kind == NONE and not given:
        return ()
    return (_fault(kind, {known[name]: value for name, value in given.items()}),)


def header_strict(headers: Mapping[str, str]) -> bool | None:
    """Return what a request says about strictness, or None.

    :param headers: names in lower case.
    :raises FaultError: if it says neither ``true`` nor ``false``.
    """
    value = headers.get(_STRICT)
    if value is None:
        return None
    if value not in ("true", "false"):
        raise FaultError([(STRICT_HEADER, f"expected true or false, got {value[:100]!r}")])
    return value == "true"


def _fault(kind: str, given: Mapping[str, str]) -> Fault:
    """Return the fault that headers describe; ``given``: their full names and values."""
    fields: dict[str, Any] = {}
    for header, value in given.items():
        name, read = _FIELDS[header]
        try:
            fields[name] = read(value)
        except ValueError:
            raise FaultError([(header, f"expected a number, got {value[:100]!r}")]) from None
    try:
        return check_fault(Fault(kind=kind, **fields))  # type: ignore[arg-type]
    except FaultError as error:
        headers = {name: header for header, (name, _) in _FIELDS.items()} | {"kind": FAULT_HEADER}
        raise FaultError(
            [(headers.get(name, name), message) for name, message in error.problems]
        ) from None


def _body(text: str) -> Any:
    if not text.startswith(("{", "[")):
        return text
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise ValueError(text)
    return int(text)


def _seconds(text: str) -> float:
    # json and not float(): that takes "nan", "1_0" and more
    value = json.loads(text, parse_constant=lambda constant: None)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(text)
    return value


_FIELDS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "X-Caesar-Mock-After-Chunks": ("after_chunks", _whole),
    "X-Caesar-Mock-Status": ("status", _whole),
    "X-Caesar-Mock-Body": ("body", _body),
    "X-Caesar-Mock-Message": ("message", str),
    "X-Caesar-Mock-Code": ("code", str),
    "X-Caesar-Mock-Retry-After": ("retry_after_s", _seconds),
    "X-Caesar-Mock-Delay": ("delay_s", _seconds),
    "X-Caesar-Mock-Content-Type": ("content_type", str),
    "X-Caesar-Mock-Count": ("count", _whole),
    "X-Caesar-Mock-Probability": ("probability", _seconds),
}
