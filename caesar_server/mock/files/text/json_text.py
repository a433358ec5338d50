"""JSON, with the place of each value.

The library reads it; then its tokens are walked through once more for their places.
"""

from __future__ import annotations

import json
import re

from caesar_server.mock.files.problems import Path
from caesar_server.mock.files.text.document import (
    MAX_DEPTH,
    MAX_VALUES,
    Document,
    Place,
    check_values,
    failure,
    failures,
)

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')

#: The library reads them, JSON does not have them.
_CONSTANTS = ("NaN", "Infinity", "-Infinity")


def read_json(name: str, text: str) -> Document:
    """Return the document of a text.

    :raises FixturesError: if it is no JSON, or has a key twice, or is too large.
    """
    try:
        # what neither can read is told below, with its place
        data = json.loads(text, parse_int=_whole, parse_constant=lambda constant: None)
    except json.JSONDecodeError as error:
        place = (error.lineno, error.colno)
        raise failure(name, f"is not valid JSON: {_lower(error.msg)}", place) from None
    except RecursionError:
        raise failure(name, "is nested too deeply") from None
    places, wrong = _Walk(name, text).places()
    if wrong:
        raise failures(name, wrong)
    document = Document(name, data, places)
    check_values(document)
    return document


def _whole(digits: str) -> int | None:
    try:
        return int(digits)
    except ValueError:  # there are more than Python reads
        return None


def _unreadable(symbol: str) -> str | None:
    """Return what is wrong with a value that the library takes."""
    if symbol in _CONSTANTS:
        return f"JSON has no {symbol}"
    if symbol.removeprefix("-").isdigit() and _whole(symbol) is None:
        return f"the number has too many digits, {len(symbol)}"
    return None


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


class _Walk:
    """Goes through the tokens of a valid text."""

    def __init__(self, name: str, text: str) -> None:
        self._name = name
        self._text = text
        self._places: dict[Path, Place] = {}
        self._wrong: list[tuple[str, Path, Place]] = []
        #: Of each open list the position, of each open object the key; the path, but for that.
        self._path: list[str | int] = []
        self._keys: list[set[str] | None] = []
        self._expects_key = False

    def places(self) -> tuple[dict[Path, Place], list[tuple[str, Path, Place]]]:
        """Return the places, and what is wrong: keys that are there twice, and some values."""
        line, line_start, seen = 1, 0, 0
        for match in _TOKEN.finditer(self._text):
            start = match.start()
            if newlines := self._text.count("\n", seen, start):
                line += newlines
                line_start = self._text.rindex("\n", seen, start) + 1
            seen = start
            self._take(match.group(), (line, start - line_start + 1))
        return self._places, self._wrong

    def _take(self, symbol: str, place: Place) -> None:
        if symbol in "{[":
            self._value(place)
            if len(self._path) >= MAX_DEPTH:
                raise failure(self._name, "is nested too deeply", place)
            self._path.append(0 if symbol == "[" else "")
            self._keys.append(None if symbol == "[" else set())
            self._expects_key = symbol == "{"
        elif symbol in "}]":
            self._path.pop()
            self._keys.pop()
            self._expects_key = False
        elif symbol == ",":
            self._expects_key = self._keys[-1] is not None
            if isinstance(self._path[-1], int):
                self._path[-1] += 1
        elif self._expects_key:
            self._key(symbol, place)
            self._expects_key = False
        elif symbol != ":":
            self._value(place)
            if problem := _unreadable(symbol):
                self._wrong.append((problem, tuple(self._path), place))

    def _key(self, symbol: str, place: Place) -> None:
        key, keys = json.loads(symbol), self._keys[-1]
        self._path[-1] = key
        if keys is not None and key in keys:
            self._wrong.append(("is there twice", tuple(self._path), place))
        elif keys is not None:
            keys.add(key)
        self._places[tuple(self._path)] = place

    def _value(self, place: Place) -> None:
        self._places.setdefault(tuple(self._path), place)
        if len(self._places) > MAX_VALUES:
            raise failure(self._name, f"has more than {MAX_VALUES} values", place)
