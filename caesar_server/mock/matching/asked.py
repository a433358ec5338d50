"""From what somebody asks for, field by field, to the conditions of a rule."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from typing import Any, TypeAlias

from caesar_server.mock.calls import documented_path
from caesar_server.mock.journal.masking import MASK, is_secret
from caesar_server.mock.matching import expressions
from caesar_server.mock.matching.differences import difference, told
from caesar_server.mock.matching.matchers import Matcher, absent, cure, exact, glob, predicate
from caesar_server.mock.model.call import Call
from caesar_server.mock.model.rule import Condition
from caesar_server.mock.native import path_pattern

#: Fields of which each name inside is a condition of its own.
NAMED_FIELDS = ("headers", "metadata", "body")
#: A plain text is a glob there.
GLOB_FIELDS = ("model", "path")
#: Of a plain path: how one that a request can have begins, and that there is no query in it.
PATH_PATTERN = r"^(?![\s\S]*\?[^/?]*=)[/*?\[]"
#: All that can be asked for, with the types of plain values.
FIELDS: Mapping[str, tuple[type, ...]] = {
    "prompt": (str,),
    "messages": (list, tuple),
    "query": (str,),
    "model": (str,),
    "metadata": (Mapping,),
    "headers": (Mapping,),
    "path": (str,),
    "method": (str,),
    "stream": (bool,),
    "attempt": (int,),
    "turn": (int,),
    "body": (Mapping,),
    "jmespath": (str, list, tuple),
}

#: Names, and places in lists, down to a value that is asked for.
Path: TypeAlias = tuple[str | int, ...]


class ConditionError(ValueError):
    """Something is asked for that cannot be.

    :param problems: where (the names down to it) and what is wrong.
    """

    def __init__(self, problems: tuple[tuple[Path, str], ...]) -> None:
        self.problems = problems
        told = (f"{'.'.join(map(str, path))}: {text}" for path, text in problems)
        super().__init__("; ".join(told))


def conditions(
    *predicates: Callable[[Call], object] | Matcher, **wanted: Any
) -> tuple[Condition, ...]:
    """Return the conditions that a call must meet, all of them.

    A plain value must be equal (``model`` and ``path``: match as a glob; ``path``: ``{id}`` stands
    for one step that is an id; ``method``: in any case);
    a :class:`~caesar_server.mock.matching.matchers.Matcher` says more.  ``headers``, ``metadata``
    and ``body`` take a mapping from name to plain value or matcher, ``None`` for a name that must
    not be there; ``metadata`` and ``body`` also one matcher for the whole.  Matchers may stand
    inside of plain lists and mappings, too.  ``jmespath`` is one or
    several JMESPath expressions that must find something true in the JSON body.

    :param predicates: functions of the whole call.
    :raises ConditionError: (a ``ValueError``) for a value that no call can have.
    :raises TypeError: for an unknown field, naming the nearest, or a predicate that is none.
    """
    for name in wanted:
        if name not in FIELDS:
            near = difflib.get_close_matches(name, FIELDS, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise TypeError(f"unknown condition {name!r}{hint} (there are {', '.join(FIELDS)})")
    found = [_of_call(function) for function in predicates]
    for name, value in wanted.items():
        found += _of_field(name, value)
    return tuple(found)


def _of_call(function: Callable[[Call], object] | Matcher) -> Condition:
    matcher = function if isinstance(function, Matcher) else predicate(function)
    return Condition("call", matcher.wanted, matcher.test, lambda call: told(_in_short(call)))


def _of_field(name: str, value: Any) -> Iterator[Condition]:
    if name == "jmespath":
        yield from _of_expressions(value)
    elif name in NAMED_FIELDS and isinstance(value, Mapping):
        for key, one in value.items():
            yield _named(name, key, one)
    elif isinstance(value, Matcher) and name != "headers":
        yield _plain(name, value)
    else:
        yield _plain(name, _checked(name, value))


def _checked(name: str, value: Any) -> Matcher:
    """Return the matcher for a plain value.

    :raises ConditionError: if no call can have it.
    """
    # True is an int to Python, and no attempt
    fits = isinstance(value, FIELDS[name]) and isinstance(value, bool) <= (name == "stream")
    if not fits or (isinstance(value, int) and name != "stream" and value < 1):
        raise ConditionError((((name,), f"expected {_KINDS[name]}, got {value!r}{cure(value)}"),))
    if isinstance(value, str) and name == "method":
        return exact(value.upper())
    if isinstance(value, str) and name == "path":
        return _path(value)
    if isinstance(value, str) and name in GLOB_FIELDS:
        return glob(value)
    return _exact((name,), value)


def _path(path: str) -> Matcher:
    """Return the matcher for a path, which may have ``*`` and ``{id}`` in it.

    :raises ConditionError: if no request has such a path.
    """
    if re.match(PATH_PATTERN, path) is None:
        problem = f"expected a path that begins with '/' and has no query, got {path!r}"
        raise ConditionError(((("path",), problem),))
    path = documented_path(path)
    pattern = path_pattern(path)
    if pattern is None:
        return glob(path)
    return Matcher(
        repr(path),
        lambda seen: isinstance(seen, str) and pattern.fullmatch(seen) is not None,
    )


_KINDS = {
    "prompt": "a text or a matcher",
    "messages": "a list of messages or a matcher",
    "query": "a text or a matcher",
    "model": "a glob or a matcher",
    "metadata": "a mapping from name to value or matcher",
    "headers": "a mapping from name to value or matcher",
    "path": "a glob or a matcher",
    "method": "an HTTP method or a matcher",
    "stream": "True, False or a matcher",
    "attempt": "a number from 1 or a matcher",
    "turn": "a number from 1 or a matcher",
    "body": "a mapping from name to value or matcher",
}


def _plain(name: str, matcher: Matcher) -> Condition:
    value, test = attrgetter(name), matcher.test
    return Condition(
        name,
        matcher.wanted,
        lambda call: test(value(call)),
        lambda call: told(value(call)),
        matcher.exact if name == "prompt" and isinstance(matcher.exact, str) else None,
        _differs(matcher, value),
    )


def _named(field: str, key: object, wanted: Any) -> Condition:
    """Return the condition on one header, or one name of metadata or body."""
    if not isinstance(key, str):
        raise ConditionError((((field,), f"expected names that are texts, got {key!r}"),))
    if field == "headers":
        if wanted is not None and not isinstance(wanted, (str, Matcher)):
            problem = f"expected a text, a matcher or None, got {wanted!r}{cure(wanted)}"
            raise ConditionError((((field, key), problem),))
        return _header(key, _matcher((field, key), wanted))
    matcher = _matcher((field, key), wanted)

    def value(call: Call) -> Any:
        found = getattr(call, field)
        return found.get(key) if isinstance(found, Mapping) else None

    return Condition(
        f"{field}.{key}",
        matcher.wanted,
        lambda call: matcher.test(value(call)),
        lambda call: told(value(call)),
        differs=_differs(matcher, value),
    )


def _differs(matcher: Matcher, value: Callable[[Call], Any]) -> Callable[[Call], str] | None:
    wanted = matcher.exact
    return None if wanted is None else lambda call: difference(wanted, value(call))


def _header(name: str, matcher: Matcher) -> Condition:
    name = name.lower()
    hidden = is_secret(name)

    def seen(call: Call) -> str:
        value = call.headers.get(name)
        return f"another {MASK!r}" if hidden and value is not None else told(value)

    return Condition(
        f"header {name}",
        # who reads the journal need not know the key that a rule asks for
        repr(MASK) if hidden and matcher.exact is not None else matcher.wanted,
        lambda call: matcher.test(call.headers.get(name)),
        seen,
        differs=None if hidden else _differs(matcher, lambda call: call.headers.get(name)),
    )


def _matcher(path: Path, wanted: Any) -> Matcher:
    if isinstance(wanted, Matcher):
        return wanted
    return absent() if wanted is None else _exact(path, wanted)


def _exact(path: Path, value: Any) -> Matcher:
    """Return the matcher for a plain value.

    :raises ConditionError: if no JSON is equal to it.
    """
    try:
        return exact(value)
    except TypeError as error:
        raise ConditionError(((path, str(error).removeprefix("exact: ")),)) from None


def _of_expressions(value: Any) -> Iterator[Condition]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, (list, tuple)) or not all(isinstance(text, str) for text in texts):
        problem = f"expected a JMESPath expression or a list of them, got {value!r}"
        raise ConditionError(((("jmespath",), problem),))
    for text in texts:
        try:
            find = expressions.compiled(text)
        except ValueError as error:
            raise ConditionError(((("jmespath",), str(error)),)) from None
        yield _expression(text, find)


def _expression(text: str, find: Callable[[Any], Any]) -> Condition:
    return Condition(
        "jmespath",
        repr(text),
        lambda call: expressions.is_true(find(call.body)),
        lambda call: told(find(call.body)),
    )


def _in_short(call: Call) -> str:
    return f"{call.method} {call.path}".strip() or "a run without HTTP"
