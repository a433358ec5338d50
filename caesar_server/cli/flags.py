"""Flags for the settings, made from their definition."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click

from caesar_server.contract.options import OptionField
from caesar_server.settings import flag_name, has_flag, is_of_mock, setting_fields

F = TypeVar("F", bound=Callable[..., Any])

#: What says which backend answers, which a mock does itself.
_NOT_OF_MOCK = (
    "allowed_backends",
    "default_backend",
    "extra_backends",
    "strict_plugins",
    "unknown_model",
)


def setting_flags(command: F) -> F:
    """Give ``command`` a flag for each setting that is no table and no secret, nor of the mock.

    Values are checked with those of the other sources, so flags take any text; one that was not
    given is None, or an empty tuple.
    """
    return _with_flags(command, (one for one in _flagged() if not is_of_mock(one.name)))


def mock_setting_flags(command: F) -> F:
    """Do as :func:`setting_flags` for a mock: with its own settings first, without backends."""
    own = [one for one in _flagged() if is_of_mock(one.name)]
    others = [one for one in _flagged() if not is_of_mock(one.name)]
    return _with_flags(command, [*own, *(one for one in others if one.name not in _NOT_OF_MOCK)])


def _flagged() -> list[OptionField]:
    return [field for field in setting_fields().values() if has_flag(field)]


def _with_flags(command: F, fields: Iterable[OptionField]) -> F:
    for field in reversed(list(fields)):
        command = _flag(field)(command)
    return command


def _flag(field: OptionField) -> Callable[[F], F]:
    name, text = flag_name(field.name), _help(field)
    if field.name == "extra_backends":
        return click.option(
            name, field.name, multiple=True, metavar="[NAME=]module:Class|FILE.py", help=text
        )
    if field.type is bool:
        negative = name.replace("--", "--no-", 1)
        return click.option(f"{name}/{negative}", field.name, default=None, help=text)
    return click.option(name, field.name, metavar=_metavar(field), help=text)


def _metavar(field: OptionField) -> str:
    if field.choices:
        return f"[{'|'.join(field.choices)}]"
    if field.type_name.startswith("list"):
        return "A,B,..."
    return {"integer": "INTEGER", "number": "NUMBER"}.get(field.type_name, "TEXT")


def _help(field: OptionField) -> str:
    notes = [field.range, field.info.unit or ""]
    if field.default not in (None, ()) and field.type is not bool:
        notes.append(f"default: {field.default}")
    elif field.type is bool:
        notes.append(f"default: {'on' if field.default else 'off'}")
    joined = "; ".join(filter(None, notes))
    repeat = "  May be given several times." if field.name == "extra_backends" else ""
    return f"{field.info.help}{repeat}" + (f"  [{joined}]" if joined else "")
