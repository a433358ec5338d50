"""The contract is what plugin authors read: everything public is there, and explained."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import caesar_server.contract as contract
from caesar_server.contract import Backend, Completed, Context, Event, Request, option
from caesar_server.contract.options import OptionsError, parse_options

MODULES = sorted(
    f"{contract.__name__}.{module.name}" for module in pkgutil.iter_modules(contract.__path__)
)


def public_objects(module: Any) -> Iterator[tuple[str, Any]]:
    """Yield the public classes and functions that a module defines, and the methods of classes."""
    for name, value in vars(module).items():
        if name.startswith("_") or getattr(value, "__module__", None) != module.__name__:
            continue
        if not (inspect.isclass(value) or inspect.isfunction(value)):
            continue
        yield name, value
        if inspect.isclass(value):
            for key, member in vars(value).items():
                function = member.fget if isinstance(member, property) else member
                if not key.startswith("_") and inspect.isfunction(function):
                    yield f"{name}.{key}", function


@pytest.mark.parametrize("module", MODULES)
def test_everything_public_has_a_docstring(module: str) -> None:
    loaded = importlib.import_module(module)
    assert loaded.__doc__
    for name, value in public_objects(loaded):
        doc = inspect.getdoc(value) or inspect.getdoc(_inherited(loaded, name))
        assert doc, f"{module}.{name} has no docstring"
        # what @dataclass writes where nobody wrote anything
        assert not doc.startswith(f"{name}("), f"{module}.{name} has no docstring"


@pytest.mark.parametrize("module", MODULES)
def test_examples_in_docstrings_are_true(module: str) -> None:
    assert doctest.testmod(importlib.import_module(module)).failed == 0


def _inherited(module: Any, name: str) -> Any:
    """Return the method as the class has it, so that getdoc finds what a base class says."""
    value = module
    for part in name.split("."):
        value = getattr(value, part)
    cls = getattr(module, name.split(".")[0])
    method = name.split(".")[-1]
    bases = [vars(base)[method] for base in inspect.getmro(cls)[1:] if method in vars(base)]
    return bases[0] if bases else value


def test_all_lists_exactly_what_the_package_offers() -> None:
    offered = {
        name
        for name, value in vars(contract).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }
    assert set(contract.__all__) == offered
    assert len(set(contract.__all__)) == len(contract.__all__)


def test_importing_the_contract_imports_nothing_of_the_server_or_of_http() -> None:
    code = (
        "import sys, caesar_server.contract\n"
        "bad = {'flask', 'werkzeug', 'marshmallow', 'click', 'gunicorn'} & set(sys.modules)\n"
        "bad |= {name for name in sys.modules if name.startswith('caesar_server.')"
        " and not name.startswith('caesar_server.contract')}\n"
        "sys.exit(', '.join(sorted(bad)) or None)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


class Nothing(Backend):
    """A backend that takes no options."""

    def run(self, request: Request, context: Context) -> Iterator[Event]:
        yield Completed()


def test_only_run_must_be_written() -> None:
    backend = Nothing()
    backend.open()
    assert backend.health().status == "ok"
    assert [model.id for model in backend.models()] == [""]
    backend.close()


def test_a_backend_without_run_cannot_be_made() -> None:
    class Half(Backend):
        pass

    with pytest.raises(TypeError, match="run"):
        Half()


def test_a_backend_without_options_refuses_any() -> None:
    with pytest.raises(OptionsError, match="speed: unknown; known: none"):
        parse_options(Nothing.options_schema, {"speed": 1})


def test_a_backend_made_without_options_has_the_defaults() -> None:
    @dataclass(frozen=True)
    class Options:
        size: int = option(3, help="How large.")

    class Sized(Nothing):
        options_schema = Options

    assert Sized().options == Options(3)
    assert Sized(Options(4)).options.size == 4
