"""A document that was read, and the places of its values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from caesar_server.mock.files.problems import FixturesError, Path, Problem
from caesar_server.mock.files.shapes import HALF_PAIR, is_broken

#: Line and column, both from 1.
Place: TypeAlias = tuple[int, int]

#: Values in one file, with what anchors repeat.
MAX_VALUES = 100_000
#: Lists and objects in each other.
MAX_DEPTH = 50


@dataclass(frozen=True, slots=True)
class Document:
    """The data of one file.

    :param name: of the file, for messages.
    :param data: what JSON has: None, booleans, numbers, strings, lists and dicts with string keys.
    :param places: where each value is, or, for a member of an object, its key.
    """

    name: str
    data: Any
    places: Mapping[Path, Place] = field(default_factory=dict)

    def located(self, problem: Problem) -> Problem:
        """Return ``problem`` with the file and the place of its value, or of what is around it."""
        path = problem.path
        while path not in self.places and path:
            path = path[:-1]
        line, column = self.places.get(path, (None, None))
        return Problem(problem.message, problem.path, self.name, line, column)

    def line(self, path: Path) -> int:
        """Return the line of a value, or of what is around it."""
        return self.located(Problem("", path)).line or 1


def check_values(document: Document) -> None:
    """Refuse what cannot be sent on later: half surrogate pairs, numbers without an end.

    :raises FixturesError: with all of them.
    """
    problems = [document.located(problem) for problem in _bad_values(document.data, ())]
    if problems:
        raise FixturesError(problems)


def _bad_values(value: Any, path: Path) -> Iterator[Problem]:
    if isinstance(value, dict):
        for key, member in value.items():
            if is_broken(key):
                yield Problem(f"the key {HALF_PAIR}", path)
            else:
                yield from _bad_values(member, (*path, key))
    elif isinstance(value, list):
        for position, item in enumerate(value):
            yield from _bad_values(item, (*path, position))
    elif isinstance(value, str) and is_broken(value):
        yield Problem(HALF_PAIR, path)
    elif isinstance(value, float) and value in (float("inf"), float("-inf")):
        yield Problem("the number is too large", path)


def failure(name: str, message: str, place: Place | None = None, path: Path = ()) -> FixturesError:
    """Return an error of a file's text."""
    line, column = place or (None, None)
    return FixturesError([Problem(message, path, name, line, column)])


def failures(name: str, found: Iterable[tuple[str, Path, Place]]) -> FixturesError:
    """Return an error of several problems."""
    return FixturesError(
        Problem(message, path, name, line, column) for message, path, (line, column) in found
    )
