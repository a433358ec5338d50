"""Conditions from data: the ``when`` of a fixture file or of the control API."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias, TypeVar

from caesar_server.mock.matching.asked import (
    FIELDS,
    NAMED_FIELDS,
    ConditionError,
    Path,
    conditions,
)
from caesar_server.mock.matching.matchers import (
    Matcher,
    absent,
    anything,
    contains,
    exact,
    glob,
    regex,
)
from caesar_server.mock.model.rule import Condition

__all__ = ["IGNORE_CASE", "OPERATORS", "ConditionError", "Problem", "conditions_of"]

T = TypeVar("T")

#: Where something is wrong, and what.
Problem: TypeAlias = tuple[Path, str]

#: What an object may say of a value; all that it says must hold.
OPERATORS = ("exact", "contains", "regex", "glob", "anything", "absent")
#: Goes with ``exact``, ``contains`` and ``regex``.
IGNORE_CASE = "ignore_case"
_WORDS = frozenset((*OPERATORS, IGNORE_CASE))


def conditions_of(when: Mapping[str, Any]) -> tuple[Condition, ...]:
    """Return the conditions that data asks for.

    A field has a plain value, as for :func:`~caesar_server.mock.matching.conditions`, or
    an object of :data:`OPERATORS`: ``{"contains": "quantum", "ignore_case": true}``; ``contains``
    takes a list of texts, too.  Inside of ``headers``, ``metadata`` and ``body`` an object of other
    names is a plain value, in which objects of operators may stand for values.

    :raises ConditionError: naming all that is wrong.
    """
    found: list[Condition] = []
    problems: list[Problem] = []
    for name, value in when.items():
        try:
            found += _of_field(name, value)
        except ConditionError as error:
            problems += error.problems
        except RecursionError:
            problems.append(((name,), "nested too deeply"))
    if problems:
        raise ConditionError(tuple(problems))
    return tuple(found)


def _of_field(name: str, value: Any) -> Iterable[Condition]:
    if name not in FIELDS:
        near = difflib.get_close_matches(str(name), FIELDS, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ConditionError((((str(name),), f"unknown condition{hint}"),))
    if name == "jmespath":
        return conditions(jmespath=value)
    if name in NAMED_FIELDS and isinstance(value, Mapping):
        if name != "headers" and _has_operators(value):
            return _all_of((name,), value, lambda one: conditions(**{name: one}))
        return [one for key, item in value.items() for one in _of_name(name, key, item)]
    if isinstance(value, Mapping):
        return _all_of((name,), value, lambda one: conditions(**{name: one}))
    return conditions(**{name: _with_matchers((name,), value)})


def _of_name(field: str, key: str, value: Any) -> Iterable[Condition]:
    def on_key(matcher: Any) -> tuple[Condition, ...]:
        return conditions(**{field: {key: matcher}})

    if _has_operators(value):
        return _all_of((field, key), value, on_key)
    return on_key(_with_matchers((field, key), value))


def _with_matchers(path: Path, value: Any) -> Any:
    """Return a plain value with matchers in place of the objects of operators inside."""
    if isinstance(value, list):
        return [_inside((*path, i), item) for i, item in enumerate(value)]
    if isinstance(value, Mapping):
        return {name: _inside((*path, name), member) for name, member in value.items()}
    return value


def _inside(path: Path, value: Any) -> Any:
    return _joined(path, value) if _has_operators(value) else _with_matchers(path, value)


def _joined(path: Path, said: Mapping[str, Any]) -> Matcher:
    """Return one matcher for all that an object of operators says."""
    found = _all_of(path, said, lambda one: (one,))
    if len(found) == 1:
        return found[0]
    wanted = " and ".join(one.wanted for one in found)
    return Matcher(wanted, lambda seen: all(one.test(seen) for one in found))


def _has_operators(value: object) -> bool:
    return isinstance(value, Mapping) and bool(value) and value.keys() <= _WORDS


def _all_of(
    path: Path,
    said: Mapping[str, Any],
    make: Callable[[Matcher], Iterable[T]],
) -> list[T]:
    """Return what ``make`` makes of the matcher for each operator."""
    unknown = [str(name) for name in said if name not in _WORDS]
    if unknown:
        near = difflib.get_close_matches(unknown[0], _WORDS, 1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(OPERATORS)}"
        raise ConditionError((((*path, unknown[0]), f"unknown operator{hint}"),))
    ignore_case = said.get(IGNORE_CASE, False)
    if not isinstance(ignore_case, bool):
        problem = f"expected true or false, got {ignore_case!r}"
        raise ConditionError((((*path, IGNORE_CASE), problem),))
    names = [name for name in OPERATORS if name in said]
    if not names:
        raise ConditionError(((path, f"expected one of {', '.join(OPERATORS)}"),))
    found: list[T] = []
    for name in names:
        try:
            found += make(_matcher(path, name, said[name], ignore_case=ignore_case))
        except (TypeError, ValueError) as error:
            if isinstance(error, ConditionError):
                raise
            raise ConditionError((((*path, name), str(error)),)) from None
    return found


def _matcher(path: Path, name: str, value: Any, *, ignore_case: bool) -> Matcher:
    if name in ("anything", "absent"):
        if value is not True:
            raise ConditionError((((*path, name), f"expected true, got {value!r}"),))
        return anything() if name == "anything" else absent()
    if name == "glob":
        return glob(value)
    if name == "contains":
        texts = value if isinstance(value, list) else [value]
        return contains(*texts, ignore_case=ignore_case)
    if name == "regex":
        if not isinstance(value, str):
            raise TypeError(f"expected a regular expression, got {value!r}")
        return regex(value, ignore_case=ignore_case)
    if path == ("method",) and isinstance(value, str):
        value = value.upper()
    return exact(value, ignore_case=ignore_case)
