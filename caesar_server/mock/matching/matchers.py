"""What a value of a call may be compared with: the matchers that tests write rules with."""

from __future__ import annotations

import fnmatch
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from numbers import Number
from typing import Any

from caesar_server.mock.calls import content_text


@dataclass(frozen=True, slots=True)
class Matcher:
    """A test of one value, with its words for people.

    :param wanted: such as ``contains 'quantum'``.
    :param test: whether a value passes; what it raises becomes a 500.
    :param exact: for :func:`exact`: the value; None for others, and for nothing.
    """

    wanted: str
    test: Callable[[Any], bool]
    exact: Any = field(default=None, compare=False)

    def __repr__(self) -> str:
        return self.wanted


def exact(value: Any, *, ignore_case: bool = False) -> Matcher:
    """Match what is equal to ``value``: text for text, JSON for JSON (``true`` is not ``1``).

    Inside of a list or an object a matcher may stand for a value; an object may lack the name of
    one that takes what is absent.

    :param ignore_case: of a text: take capital and small letters for the same.
    :raises TypeError: if ``ignore_case`` is given for something that is no text, or ``value`` is
        nothing that JSON has.
    """
    if not ignore_case:
        _check_json(value)
        if isinstance(value, str):
            return Matcher(repr(value), lambda seen: bool(value == seen), value)
        return Matcher(repr(value), lambda seen: same_json(value, seen), value)
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
    if isinstance(getattr(pattern, "pattern", pattern), bytes):
        raise ValueError(f"regex: expected a regular expression of text, got {pattern!r}")
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
    if is_async(function):
        # what it returns is true whatever it would say
        raise TypeError(
            f"predicate: {function!r} is asynchronous, and the server's threads have no event "
            "loop; write a plain function"
        )
    shown = name or getattr(function, "__name__", repr(function))
    return Matcher(f"predicate {shown}", lambda seen: bool(function(seen)))


def cure(value: Any) -> str:
    """Return how to ask for what is no plain value, as the end of a sentence; ``""`` if at all."""
    if isinstance(value, re.Pattern):
        return "; write regex(...)"
    if value is absent or value is anything:
        return f"; write {value.__name__}()"
    return "; write predicate(...)" if callable(value) else ""


def is_async(function: Any) -> bool:
    """Return whether a call of it gives what has to be awaited."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - of an object: its method, to look at
    )


def same_json(wanted: Any, seen: Any) -> bool:
    """Return whether two JSON values are equal; tuples count as lists, ``True`` is not ``1``.

    :param wanted: may have matchers in it.
    """
    if isinstance(wanted, Matcher):
        return wanted.test(seen)
    if isinstance(wanted, bool) or isinstance(seen, bool):
        return wanted is seen
    if isinstance(wanted, Mapping):
        return (
            isinstance(seen, Mapping)
            and seen.keys() <= wanted.keys()
            and all(_has(seen, name, value) for name, value in wanted.items())
        )
    if isinstance(wanted, (list, tuple)):
        return (
            isinstance(seen, (list, tuple))
            and len(wanted) == len(seen)
            and all(map(same_json, wanted, seen))
        )
    return bool(wanted == seen)


def _has(seen: Mapping[str, Any], name: str, wanted: Any) -> bool:
    if name not in seen:
        return isinstance(wanted, Matcher) and wanted.test(None)
    return same_json(wanted, seen[name])


def _check_json(value: Any) -> None:
    """Refuse what no JSON is equal to, or a slip would only be a rule that never matches."""
    if value is None or isinstance(value, (str, Number, Matcher)):
        return
    if isinstance(value, Mapping):
        for name, member in value.items():
            if not isinstance(name, str):
                raise TypeError(f"exact: expected names that are texts, got {name!r}")
            _check_json(member)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _check_json(item)
    else:
        raise TypeError(f"exact: expected what JSON has, or a matcher, got {value!r}{cure(value)}")


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
