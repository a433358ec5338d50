"""Strategies that make any value of the contract's dataclasses."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Mapping
from types import UnionType
from typing import Any, Literal, Union

import pytest
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

#: Lone surrogates too: they come in through JSON escapes and must not stop a job.
TEXT = st.text(st.characters(codec=None, exclude_categories=())) | st.text()
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
INTS = st.integers(min_value=-(2**63), max_value=2**63 - 1)
JSON: SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | INTS | FLOATS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)

_PLAIN: Mapping[Any, SearchStrategy[Any]] = {
    str: TEXT,
    int: INTS,
    float: FLOATS,
    bool: st.booleans(),
    Any: JSON,
    type(None): st.none(),
}


def values_of(kind: Any) -> SearchStrategy[Any]:
    """Return a strategy for a type as the contract's annotations use them."""
    if kind in _PLAIN:
        return _PLAIN[kind]
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        return st.sampled_from(args)
    if origin in (Union, UnionType):
        return st.one_of([values_of(arg) for arg in args])
    if origin is tuple:
        return st.lists(values_of(args[0]), max_size=3).map(tuple)
    if origin is not None and issubclass(origin, Mapping):
        return st.dictionaries(values_of(args[0]), values_of(args[1]), max_size=3)
    assert dataclasses.is_dataclass(kind), f"no strategy for {kind!r}"
    hints = typing.get_type_hints(kind)
    return st.builds(
        kind, **{field.name: values_of(hints[field.name]) for field in dataclasses.fields(kind)}
    )


@pytest.fixture(scope="session")
def values() -> Callable[[Any], SearchStrategy[Any]]:
    """Return a function from a type to a strategy of its values."""
    return values_of
