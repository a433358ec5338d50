"""What a value of a call may be compared with: the matchers that tests write rules with."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from caesar_server.mock.calls import content_text


@dataclass(frozen=True, slots=True)
class Matcher:
    """A test of one value, with its words for people.

    :param wanted: such as ``contains 'quantum'``.
    :param test: whether a value passes; what it raises becomes a 500.
    :param exact: for :func:`exact` of a text: that text.
    """

    wanted: str
    test: Callable[[Any], bool]
    exact: str | None = None

    def __repr__(self) -> str:
        return self.wanted


def exact(value: Any, *, ignore_case: bool = False) -> Matcher:
    """Match what is equal to ``value``: text for text, JSON for JSON (``true`` is not ``1``).

    :param ignore_case: of a text: take capital and small letters for the same.
    :raises TypeError: if ``ignore_case`` is given for something that is no text.
    """
    if not ignore_case:
        if isinstance(value, str):
            return Matcher(repr(value), lambda seen: bool(value == seen), value)
        return Matcher(repr(value), lambda seen: same_json(value, seen))
    if not isinstance(value, str):
        raise TypeError(f"exact: ignore_case is for a text, got {value!r}")
    folded = value.casefold()
    return Matcher(
        f"{value!r} in any case",
        lambda seen: isinstance(seen, str) and seen.casefold() == folded,
    )


def contains(*texts: str, ignore_case: bool = False) -> Matcher:
    """Match a text that has all of ``texts`` in it.

    In a list it is enough if one of its items matches, in an object one of its values; a chat
    message counts by its text.

    :param ignore_case: take capital and small letters for the same.
    :raises TypeError: if there is no text, or something else is given.
    """
    if not texts or not all(isinstance(text, str) for text in texts):
        raise TypeError(f"contains: expected one text or more, got {_listed(texts)}")
    wanted = f"contains {_listed(texts)}" + (" in any case" if ignore_case else "")
    if not ignore_case:
        return Matcher(wanted, _in_texts(lambda seen: all(text in seen for text in texts)))
    folded = [text.casefold() for text in texts]

    def found(seen: str) -> bool:
        seen = seen.casefold()
        return all(text in seen for text in folded)

    return Matcher(wanted, _in_texts(found))


def regex(pattern: str | re.Pattern[str], *, ignore_case: bool = False) -> Matcher:
    r"""Match a text in which ``pattern`` is found anywhere; ``\A`` and ``\Z`` tie it to its ends.

    Lists and objects are searched as by :func:`contains`.

    :raises ValueError: if it is no regular expression of Python.
    """
    try:
        compiled = re.compile(pattern, re.IGNORECASE if ignore_case else 0)
    # a warning, where somebody makes errors of them: `[[` will mean something else one day
    except (re.error, ValueError, OverflowError, RecursionError, FutureWarning) as error:
        raise ValueError(
            f"regex: expected a regular expression, got {pattern!r}: {error}"
        ) from None
    wanted = f"regex {compiled.pattern!r}" + (" in any case" if ignore_case else "")
    return Matcher(wanted, _in_texts(lambda seen: compiled.search(seen) is not None))


def glob(pattern: str) -> Matcher:
    """Match a text as file names are matched: ``*`` any characters, ``?`` one, ``[ab]`` either.

    A text without those matches exactly itself.

    :raises TypeError: if it is no text.
    """
    if not isinstance(pattern, str):
        raise TypeError(f"glob: expected a text, got {pattern!r}")
    if not any(mark in pattern for mark in "*?["):
        return exact(pattern)
    compiled = re.compile(fnmatch.translate(pattern))
    return Matcher(
        f"glob {pattern!r}",
        lambda seen: isinstance(seen, str) and compiled.match(seen) is not None,
    )


def anything() -> Matcher:
    """Match whatever is there: a field that the call has."""
    return Matcher("anything", lambda seen: seen is not None)


def absent() -> Matcher:
    """Match what is not there: a field that the call does not have, or has as null."""
    return Matcher("absent", lambda seen: seen is None)


def predicate(function: Callable[[Any], object], name: str = "") -> Matcher:
    """Match what ``function`` finds true; None where the call does not have the field.

    :param function: called from many threads at once, perhaps more than once for a call.
    :param name: for people; ``""`` takes the function's.
    :raises TypeError: if it is not callable.
    """
    if not callable(function):
        raise TypeError(f"predicate: expected a function, got {function!r}")
    shown = name or getattr(function, "__name__", repr(function))
    return Matcher(f"predicate {shown}", lambda seen: bool(function(seen)))


def same_json(one: Any, other: Any) -> bool:
    """Return whether two JSON values are equal; tuples count as lists, ``True`` is not ``1``."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, Mapping):
        return (
            isinstance(other, Mapping)
            and one.keys() == other.keys()
            and all(same_json(value, other[key]) for key, value in one.items())
        )
    if isinstance(one, (list, tuple)):
        return (
            isinstance(other, (list, tuple))
            and len(one) == len(other)
            and all(map(same_json, one, other))
        )
    return bool(one == other)


def _in_texts(found: Callable[[str], bool]) -> Callable[[Any], bool]:
    """Return a test that looks at a text, or for one in what holds texts."""

    def test(seen: Any) -> bool:
        if isinstance(seen, str):
            return found(seen)
        if isinstance(seen, Mapping):
            if "role" in seen and found(content_text(seen)):
                return True
            return any(map(test, seen.values()))
        if isinstance(seen, (list, tuple)):
            return any(map(test, seen))
        return False

    return test


def _listed(values: tuple[object, ...]) -> str:
    return " and ".join(map(repr, values)) or "none"
