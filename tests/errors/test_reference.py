"""The table of errors names them all."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from types import ModuleType

import pytest

import caesar_server.contract.errors
import caesar_server.errors
from caesar_server.contract.errors import ErrorInfo, RequestRejectedError
from caesar_server.web.error_reference import (
    VALUES,
    error_classes,
    error_rows,
    errors_reference,
    is_repeated,
)

#: Not told to clients: one stops the start, one passes through.
NOT_RENDERED = {"SettingsError", "Cancelled"}


def defined_in(module: ModuleType) -> tuple[set[str], set[str]]:
    """Return the names of the exceptions and of the error values, read from the source."""
    tree = ast.parse(inspect.getsource(module))
    classes = {
        node.name
        for node in tree.body
        if isinstance(node, ast.ClassDef) and issubclass(getattr(module, node.name), Exception)
    }
    values = {name for name, value in vars(module).items() if isinstance(value, ErrorInfo)}
    return classes, values


@pytest.mark.parametrize("module", [caesar_server.errors, caesar_server.contract.errors])
def test_every_class_and_value_is_in_it(module: ModuleType) -> None:
    classes, values = defined_in(module)
    named = {name for row in error_rows() for name in row.names}
    assert classes
    assert classes - named == NOT_RENDERED & classes
    assert {getattr(module, name) for name in values} <= set(VALUES)


def test_rows_say_what_the_classes_say() -> None:
    rows = {name: row for row in error_rows() for name in row.names}
    for cls in error_classes():
        row = rows[cls.__name__]
        assert (row.code, row.type) == (cls.code, cls.type) or cls is RequestRejectedError
        assert row.status == ("400 to 499" if cls is RequestRejectedError else str(cls.status))
        assert row.when.endswith("."), cls
        assert "(HTTP" not in row.when, cls
    by_code = {row.code: row for row in error_rows()}
    for value in VALUES:
        assert by_code[value.code].status == str(value.status)


def test_no_two_rows_are_alike() -> None:
    keys = [(row.status, row.code) for row in error_rows()]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(
    ("status", "transient", "repeated"),
    [
        (400, False, False),
        (404, False, False),
        (408, False, True),
        (409, False, True),
        (429, False, True),
        (500, False, True),
        (503, True, True),
        (400, True, True),
        (499, False, False),
    ],
)
def test_what_is_repeated(status: int, transient: bool, repeated: bool) -> None:
    assert is_repeated(ErrorInfo("m", "c", status=status, transient=transient)) is repeated


def test_the_manual_has_a_row_for_each() -> None:
    text = errors_reference()
    codes = re.findall(r"^   \* - ``(\w+)``$", text, re.MULTILINE)
    assert codes == [row.code for row in error_rows()]
    assert textwrap.dedent(text).startswith(".. list-table::")
