"""Typed options from one definition: types, defaults, bounds, help, secrets.

A backend's options and the server's settings are frozen dataclasses whose fields are made with
:func:`option`.  The definition drives validation, the command line, the docs and what is printed::

    @dataclass(frozen=True)
    class HelloOptions:
        greeting: str = option("Hello", help="The word to begin with.")
        timeout_s: float = option(5.0, help="How long to wait.", unit="s", minimum=0.1, maximum=60)
        api_key: str | None = option(None, help="Key of the service.", secret=True)

Types may be ``str``, ``int``, ``float``, ``bool``, ``pathlib.Path``, ``Literal``, ``T | None``,
``tuple[T, ...]``, ``Mapping[str, T]`` and dataclasses of the same kind.  Bounds of a list or table
of numbers are those of each number.

What no single option can tell is checked in ``__post_init__``, which raises ``ValueError``, or
:class:`OptionsError` with one sentence for each option::

        def __post_init__(self) -> None:
            if self.timeout_s < self.pause_s:
                raise OptionsError([f"timeout_s: expected at least pause_s, got {self.timeout_s}"])
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass
from math import inf
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Protocol, TypeVar, Union

import msgspec

T = TypeVar("T")

_METADATA_KEY = "caesar_server.option"


class OptionsReader(Protocol):
    """Returns the options of an installed backend as the operator set them.

    What ``click.pass_obj`` gives to a command under the entry point group
    ``caesar_server.commands``::

        @click.command()
        @click.pass_obj
        def list_notes(options_of: OptionsReader) -> None:
            folder = options_of("notes").folder
    """

    def __call__(self, backend: str) -> Any:
        """Return an instance of the backend's ``options_schema``, validated.

        Ends the command with a sentence, by a ``click.ClickException``, if there is no such backend
        or its options are wrong.
        """


class OptionsError(ValueError):
    """Options that do not validate.

    :param problems: one sentence each, beginning with the option's name.
    """

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(self.problems))


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionInfo:
    """What a field definition says about itself.

    :param help: one sentence.
    :param unit: of the value, such as ``s`` or ``bytes``, or None.
    :param minimum: the least value allowed, or None.
    :param maximum: the greatest value allowed, or None.
    :param secret: the value is never printed.
    :param example: a value for the docs where the default says little.
    """

    help: str
    unit: str | None = None
    minimum: float | None = None
    maximum: float | None = None
    secret: bool = False
    example: object = None


@dataclass(frozen=True, slots=True)
class OptionField:
    """One option of a dataclass: name, type, default and :class:`OptionInfo`."""

    name: str
    type: Any
    default: Any
    required: bool
    info: OptionInfo

    @property
    def choices(self) -> tuple[str, ...]:
        """The values of a ``Literal`` type, else empty."""
        kind = _without_none(self.type)
        return typing.get_args(kind) if typing.get_origin(kind) is Literal else ()

    @property
    def nested(self) -> tuple[str, type[Any]] | None:
        """The dataclass that the option, or each of its items, is, after what leads to it.

        That is an empty string, ``.N`` for an item of a list or ``.NAME`` for one of a table; None
        if there is no dataclass in it.
        """
        kind = _without_none(self.type)
        args = typing.get_args(kind)
        step, inner = "", kind
        if typing.get_origin(kind) is tuple:
            step, inner = ".N", args[0]
        elif len(args) == 2 and args[0] is str:
            step, inner = ".NAME", args[1]
        return (step, inner) if dataclasses.is_dataclass(inner) else None

    @property
    def type_name(self) -> str:
        """The type in words: ``integer``, ``list of strings``, ..."""
        return _type_name(self.type)

    @property
    def range(self) -> str:
        """The bounds in words: ``1 to 10``, ``at least 0``, or empty."""
        low, high = self.info.minimum, self.info.maximum
        if low is not None and high is not None:
            return f"{low:.12g} to {high:.12g}"
        if low is not None:
            return f"at least {low:.12g}"
        return "" if high is None else f"at most {high:.12g}"


def option(
    default: Any = MISSING,
    *,
    help: str,
    default_factory: Any = MISSING,
    unit: str | None = None,
    minimum: float | None = None,
    maximum: float | None = None,
    secret: bool = False,
    example: object = None,
) -> Any:
    """Return a dataclass field that is an option; without a default it is required.

    The parameters are those of :class:`OptionInfo`.

    :raises TypeError: if ``help`` is no text or a bound is no number.
    """
    if not isinstance(help, str):
        raise TypeError(f"help: expected a sentence, got {help!r}")
    for name, bound in (("minimum", minimum), ("maximum", maximum)):
        if bound is not None and not isinstance(bound, (int, float)):
            raise TypeError(f"{name}: expected a number, got {bound!r}")
    info = OptionInfo(
        help=help, unit=unit, minimum=minimum, maximum=maximum, secret=secret, example=example
    )
    kwargs: dict[str, Any] = {"metadata": {_METADATA_KEY: info}, "repr": not secret}
    if default_factory is not MISSING:
        kwargs["default_factory"] = default_factory
    elif default is not MISSING:
        kwargs["default"] = default
    return dataclasses.field(**kwargs)


def option_fields(cls: type[Any]) -> tuple[OptionField, ...]:
    """Return the options of a dataclass in the order of their definition.

    What ``__init__`` does not take is none.
    """
    hints = typing.get_type_hints(cls)
    return tuple(
        _describe(field, hints[field.name]) for field in dataclasses.fields(cls) if field.init
    )


def _describe(field: dataclasses.Field[Any], kind: Any) -> OptionField:
    info = field.metadata.get(_METADATA_KEY) or OptionInfo(help="")
    if field.default_factory is not MISSING:
        return OptionField(field.name, kind, field.default_factory(), False, info)
    required = field.default is MISSING
    return OptionField(field.name, kind, None if required else field.default, required, info)


def parse_options(cls: type[T], values: Mapping[str, object], *, prefix: str = "") -> T:
    """Return ``cls`` made from ``values``, or say everything that is wrong with them.

    Strings are accepted for numbers and booleans, since environment variables and flags have
    nothing else.

    :param prefix: put before names in messages, such as ``backends.echo.``.
    :raises OptionsError: unknown names (with the nearest match), missing and wrong values.
    """
    fields = {field.name: field for field in option_fields(cls)}
    problems: list[str] = []
    good: dict[str, Any] = {}
    for name, value in values.items():
        if name not in fields:
            problems.append(unknown_name(name, fields, prefix=prefix))
            continue
        try:
            good[name] = parse_value(fields[name], value, prefix=prefix)
        except OptionsError as error:
            problems.extend(error.problems)
    problems += [
        f"{prefix}{field.name}: required and missing ({field.info.help})"
        for field in fields.values()
        if field.required and field.name not in values
    ]
    if problems:
        raise OptionsError(problems)
    try:
        return cls(**good)
    except OptionsError as error:
        raise OptionsError(_prefixed(problem, prefix) for problem in error.problems) from error
    except ValueError as error:
        raise OptionsError([f"{prefix.rstrip('.') or 'options'}: {error}"]) from error


def _prefixed(problem: str, prefix: str) -> str:
    return problem if problem.startswith(prefix) else prefix + problem


def parse_value(field: OptionField, value: object, *, prefix: str = "") -> Any:
    """Return ``value`` as the type of ``field``.

    :raises OptionsError: if it does not fit; a secret value is not quoted.
    """
    where = f"{prefix}{field.name}"
    result = _convert(field.type, value, where, secret=field.info.secret)
    for number in _numbers_in(result):
        low = -inf if field.info.minimum is None else field.info.minimum
        high = inf if field.info.maximum is None else field.info.maximum
        fits = low <= number <= high  # asked the other way round, NaN would pass
        if not fits or abs(number) == inf:
            seen = "another value" if field.info.secret else repr(number)
            expected = field.range if field.range and not fits else "a finite number"
            raise OptionsError([f"{where}: expected {expected}, got {seen}"])
    return result


def _numbers_in(value: object) -> Iterator[float]:
    """Yield a number, or those of a list or table."""
    if isinstance(value, Mapping):
        value = tuple(value.values())
    for item in value if isinstance(value, (tuple, list, set, frozenset)) else (value,):
        if isinstance(item, (int, float)) and not isinstance(item, bool):
            yield item


def unknown_name(name: str, known: Iterable[str], *, prefix: str = "") -> str:
    """Return the sentence that refuses an unknown name and offers the nearest one."""
    known = sorted(known)
    small = {one.lower(): one for one in known}
    near = difflib.get_close_matches(name.lower(), small, n=1, cutoff=0.6)
    if near:
        return f"{prefix}{name}: unknown; did you mean {prefix}{small[near[0]]}?"
    return f"{prefix}{name}: unknown; known: {', '.join(known) or 'none'}"


def _convert(kind: Any, value: object, where: str, *, secret: bool = False) -> Any:
    plain = _without_none(kind)
    if value is None and plain is not kind:
        return None
    seen = "another value" if secret else repr(value)
    if dataclasses.is_dataclass(plain) and isinstance(plain, type):
        if not isinstance(value, Mapping):
            raise OptionsError([f"{where}: expected a table, got {seen}"])
        return parse_options(plain, value, prefix=f"{where}.")
    origin, args = typing.get_origin(plain), typing.get_args(plain)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            raise OptionsError([f"{where}: expected a table, got {seen}"])
        items = {str(key): item for key, item in value.items()}
        return _convert_items(args[1], items, where, secret=secret)
    lax = isinstance(value, str)
    if origin is tuple and isinstance(value, str):
        value = [item.strip() for item in value.split(",") if item.strip()]
    if origin is tuple and dataclasses.is_dataclass(args[0]) and isinstance(value, (list, tuple)):
        numbered = {str(number): item for number, item in enumerate(value)}
        return tuple(_convert_items(args[0], numbered, where, secret=secret).values())
    if isinstance(value, bool) and plain in (int, float):
        raise OptionsError([f"{where}: expected {_type_name(plain)}, got {seen}"])
    try:
        return msgspec.convert(value, plain, strict=not lax, dec_hook=_path)
    except msgspec.ValidationError:
        raise OptionsError([f"{where}: expected {_type_name(plain)}, got {seen}"]) from None


def _path(kind: type[Any], value: Any) -> Path:
    """Return a path, the one type here that msgspec does not know."""
    if kind is not Path or not isinstance(value, str) or not value:
        raise ValueError
    # ``~/models`` in a file of settings is as good as in a shell
    return Path(os.path.expanduser(value))  # noqa: PTH111  # which leaves what it does not know


def _convert_items(
    kind: Any, items: Mapping[str, object], where: str, *, secret: bool
) -> dict[str, Any]:
    """Convert each of ``items``, or say everything that is wrong with them."""
    problems: list[str] = []
    good: dict[str, Any] = {}
    for name, item in items.items():
        try:
            good[name] = _convert(kind, item, f"{where}.{name}", secret=secret)
        except OptionsError as error:
            problems.extend(error.problems)
    if problems:
        raise OptionsError(problems)
    return good


def _without_none(kind: Any) -> Any:
    """Return ``T`` for ``T | None``, anything else as it is."""
    if typing.get_origin(kind) in (Union, UnionType):
        rest = [arg for arg in typing.get_args(kind) if arg is not NoneType]
        if len(rest) == 1:
            return rest[0]
    return kind


_NAMES: Mapping[Any, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "true or false",
    Path: "path",
}


def _type_name(kind: Any) -> str:
    plain = _without_none(kind)
    origin, args = typing.get_origin(plain), typing.get_args(plain)
    if origin is Literal:
        return "one of " + ", ".join(map(str, args))
    if origin is tuple:
        return f"list of {_type_name(args[0])}s"
    if dataclasses.is_dataclass(plain) or (
        isinstance(origin, type) and issubclass(origin, Mapping)
    ):
        return "table"
    return _NAMES.get(plain, getattr(plain, "__name__", str(plain)))
