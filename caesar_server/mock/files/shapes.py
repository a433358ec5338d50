"""From data to typed values: every problem is found, each with its place.

msgspec's own conversion stops at the first one and does not name keys of objects.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from msgspec import inspect

from caesar_server.mock.files.problems import Path, Problem, field_name
from caesar_server.registry import nearest

#: A bound as large is none that anybody meets.
_ANY_NUMBER = 1e15
#: What is wrong with a text that UTF-8 has no bytes for.
HALF_PAIR = "has half a surrogate pair, which is no text"
#: What a value is when it has problems.
_NOTHING = object()
_NO_INNER: Mapping[str, Iterable[str]] = {}


class _Problems(list[Problem]):
    """What was found so far.

    :param inner: see :func:`read`.
    :ivar around: the objects around the one that is read, each with its path.
    """

    def __init__(self, inner: Mapping[str, Iterable[str]]) -> None:
        super().__init__()
        self.inner = inner
        self.around: list[tuple[Path, inspect.StructType]] = []


def read(
    value: Any, type_: Any, path: Path = (), inner: Mapping[str, Iterable[str]] = _NO_INNER
) -> tuple[Any, list[Problem]]:
    """Return ``value`` as the type says, or None and what is wrong with it.

    :param value: what JSON has.
    :param type_: a type of msgspec's: structs, tuples, dicts with string keys, literals, unions of
        which at most one part takes each kind of JSON value.
    :param inner: names that stand in members of which the type says nothing.
    """
    problems = _Problems(inner)
    found = _read(value, _shape(type_), path, problems)
    return (None if problems else found), problems


@functools.cache
def _shape(type_: Any) -> inspect.Type:
    """Return what msgspec knows of a type; there are few, and it takes milliseconds."""
    return inspect.type_info(type_)


def kind_of(value: Any) -> str:
    """Return what JSON calls the type of a value, with its article."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, (int, float)):
        return "a number"
    if isinstance(value, str):
        return "a string"
    return "a list" if isinstance(value, list) else "an object"


def is_broken(text: str) -> bool:
    """Return whether a text has half a surrogate pair in it, so that it cannot be sent."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _read(value: Any, shape: inspect.Type, path: Path, problems: _Problems) -> Any:
    reader = _READERS.get(type(shape))
    if reader is None:
        raise TypeError(f"{shape} is not a type for files")
    return reader(value, shape, path, problems)


def _wrong(value: Any, expected: str, path: Path, problems: _Problems) -> Any:
    shown = json.dumps(value) if isinstance(value, (bool, int, float)) else kind_of(value)
    if isinstance(value, str):
        shown = repr(value if len(value) <= 40 else f"{value[:39]}…")
    hint = "; put it in quotes" if expected == "a string" and _is_scalar(value) else ""
    problems.append(Problem(f"expected {expected}, got {shown[:60]}{hint}", path))
    return _NOTHING


def _is_scalar(value: Any) -> bool:
    return isinstance(value, (bool, int, float))


def _any(value: Any, shape: inspect.AnyType, path: Path, problems: _Problems) -> Any:
    return value


def _none(value: Any, shape: inspect.NoneType, path: Path, problems: _Problems) -> Any:
    return value if value is None else _wrong(value, "null", path, problems)


def _bool(value: Any, shape: inspect.BoolType, path: Path, problems: _Problems) -> Any:
    if isinstance(value, bool):
        return value
    return _wrong(value, "true or false", path, problems)


def _int(value: Any, shape: inspect.IntType, path: Path, problems: _Problems) -> Any:
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # 5.0 is a whole number in JSON Schema
    fits = isinstance(value, int) and not isinstance(value, bool) and _within(value, shape)
    return value if fits else _wrong(value, f"a whole number{_range(shape)}", path, problems)


def _float(value: Any, shape: inspect.FloatType, path: Path, problems: _Problems) -> Any:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if number and _within(value, shape):
        return float(value)
    return _wrong(value, f"a number{_range(shape)}", path, problems)


def _within(value: float, shape: inspect.IntType | inspect.FloatType) -> bool:
    return (
        (shape.ge is None or value >= shape.ge)
        and (shape.gt is None or value > shape.gt)
        and (shape.le is None or value <= shape.le)
        and (shape.lt is None or value < shape.lt)
    )


def _range(shape: inspect.IntType | inspect.FloatType) -> str:
    if shape.ge is not None and shape.le is not None and abs(shape.le) < _ANY_NUMBER:
        return f" from {shape.ge:g} to {shape.le:g}"
    bounds = (
        ("of at least", shape.ge),
        ("above", shape.gt),
        ("of at most", shape.le),
        ("below", shape.lt),
    )
    said = [
        f"{word} {bound:g}"
        for word, bound in bounds
        if bound is not None and abs(bound) < _ANY_NUMBER
    ]
    return f" {' and '.join(said)}" if said else ""


def _str(value: Any, shape: inspect.StrType, path: Path, problems: _Problems) -> Any:
    if isinstance(value, str) and is_broken(value):
        problems.append(Problem(HALF_PAIR, path))
        return _NOTHING
    least, most = shape.min_length or 0, shape.max_length
    if isinstance(value, str) and least <= len(value) and (most is None or len(value) <= most):
        return value
    if isinstance(value, str):
        expected = f"{least} to {most} characters" if most is not None else "a text"
        problems.append(Problem(f"expected {expected}, got {len(value)}", path))
        return _NOTHING
    return _wrong(value, "a string", path, problems)


def _literal(value: Any, shape: inspect.LiteralType, path: Path, problems: _Problems) -> Any:
    if isinstance(value, str) and value in shape.values:
        return value
    names = [str(name) for name in shape.values]
    if not isinstance(value, str):
        return _wrong(value, f"one of {', '.join(names)}", path, problems)
    shown = value if len(value) <= 40 else f"{value[:39]}…"
    problems.append(Problem(f"unknown value {shown!r}; {nearest(shown, names)}", path))
    return _NOTHING


def _union(value: Any, shape: inspect.UnionType, path: Path, problems: _Problems) -> Any:
    literals = [one for one in shape.types if isinstance(one, inspect.LiteralType)]
    parts = [one for one in shape.types if not isinstance(one, inspect.LiteralType)]
    if literals:
        parts.append(inspect.LiteralType(tuple(v for one in literals for v in one.values)))
    for part in parts:
        if _takes(part, value):
            return _read(value, part, path, problems)
    if len(parts) == 1 or (len(parts) == 2 and any(_is_none(one) for one in parts)):
        part = next(one for one in parts if not _is_none(one))
        return _read(value, part, path, problems)
    names = [_KIND_NAMES[type(one)] for one in parts if not _is_none(one)]
    return _wrong(value, " or ".join(names), path, problems)


def _is_none(shape: inspect.Type) -> bool:
    return isinstance(shape, inspect.NoneType)


def _takes(shape: inspect.Type, value: Any) -> bool:
    return kind_of(value) in _KINDS[type(shape)]


def _tuple(value: Any, shape: inspect.VarTupleType, path: Path, problems: _Problems) -> Any:
    if not isinstance(value, list):
        return _wrong(value, "a list", path, problems)
    if len(value) < (shape.min_length or 0):
        problems.append(Problem("expected at least one item, got an empty list", path))
        return _NOTHING
    items = [_read(item, shape.item_type, (*path, i), problems) for i, item in enumerate(value)]
    return tuple(items)


def _dict(value: Any, shape: inspect.DictType, path: Path, problems: _Problems) -> Any:
    if not isinstance(value, dict):
        return _wrong(value, "an object", path, problems)
    return {
        key: _read(member, shape.value_type, (*path, key), problems)
        for key, member in value.items()
    }


def _struct(value: Any, shape: inspect.StructType, path: Path, problems: _Problems) -> Any:
    if not isinstance(value, dict):
        return _wrong(value, "an object", path, problems)
    fields = {field.encode_name: field for field in shape.fields}
    before = len(problems)
    problems += _unknown(value, shape, path, problems)
    problems += [
        Problem("is missing", (*path, name))
        for name, field in fields.items()
        if field.required and name not in value
    ]
    problems.around.append((path, shape))
    members = {
        field.name: _read(value[name], field.type, (*path, name), problems)
        for name, field in fields.items()
        if name in value
    }
    problems.around.pop()
    return _NOTHING if len(problems) > before else shape.cls(**members)


def _unknown(
    value: Mapping[str, Any], shape: inspect.StructType, path: Path, problems: _Problems
) -> Iterator[Problem]:
    known = _names(shape)
    for name in value:
        if name not in known:
            place = _place_of(name, shape, path, problems)
            hint = nearest(name, known) if place is None else f"did you mean {field_name(place)!r}?"
            yield Problem(f"unknown field; {hint}", (*path, name))


def _place_of(name: str, shape: inspect.StructType, path: Path, problems: _Problems) -> Path | None:
    """Return where else a name stands: one level further in, or anywhere further out."""
    for field in shape.fields:
        if name in problems.inner.get(field.encode_name, ()):
            return (*path, field.encode_name, name)
        for steps, one in _structs(field.type):
            if name in _names(one):
                return (*path, field.encode_name, *steps, name)
    outer = (above for above, one in reversed(problems.around) if name in _names(one))
    above = next(outer, None)
    return None if above is None else (*above, name)


def _names(shape: inspect.StructType) -> list[str]:
    return [field.encode_name for field in shape.fields]


def _structs(shape: inspect.Type) -> Iterator[tuple[Path, inspect.StructType]]:
    """Yield the objects that a member may be, each with the steps to it."""
    if isinstance(shape, inspect.StructType):
        yield (), shape
    elif isinstance(shape, inspect.UnionType):
        for part in shape.types:
            yield from _structs(part)
    elif isinstance(shape, inspect.VarTupleType):
        for steps, one in _structs(shape.item_type):
            yield (0, *steps), one


_Reader = Callable[[Any, Any, Path, _Problems], Any]
_READERS: Mapping[type[inspect.Type], _Reader] = {
    inspect.AnyType: _any,
    inspect.NoneType: _none,
    inspect.BoolType: _bool,
    inspect.IntType: _int,
    inspect.FloatType: _float,
    inspect.StrType: _str,
    inspect.LiteralType: _literal,
    inspect.UnionType: _union,
    inspect.VarTupleType: _tuple,
    inspect.DictType: _dict,
    inspect.StructType: _struct,
}
_KINDS: Mapping[type[inspect.Type], frozenset[str]] = {
    inspect.NoneType: frozenset({"null"}),
    inspect.BoolType: frozenset({"a boolean"}),
    inspect.IntType: frozenset({"a number"}),
    inspect.FloatType: frozenset({"a number"}),
    inspect.StrType: frozenset({"a string"}),
    inspect.LiteralType: frozenset({"a string"}),
    inspect.VarTupleType: frozenset({"a list"}),
    inspect.DictType: frozenset({"an object"}),
    inspect.StructType: frozenset({"an object"}),
}
_KIND_NAMES: Mapping[type[inspect.Type], str] = {
    kind: next(iter(names)) for kind, names in _KINDS.items()
}
