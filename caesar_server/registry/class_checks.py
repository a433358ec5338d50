"""Whether a class can be a backend of this server at all: what is known before it is made."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, get_args

from caesar_server.contract import CONTRACT_VERSION, Backend, Capabilities
from caesar_server.contract.options import option_fields
from caesar_server.contract.request import RequestKind
from caesar_server.registry.discovery import SERVER_DISTRIBUTION

#: What the server calls, with what it gives.
_METHODS: Mapping[str, tuple[str, ...]] = {
    "__init__": ("options",),
    "open": (),
    "run": ("request", "context"),
    "models": (),
    "health": (),
    "close": (),
}
_COLLECTIONS = ("accepts", "channels", "ignores")


class ClassProblem(NamedTuple):
    """Why a class cannot be loaded.

    :param reason: a clause about it.
    :param hint: the cure.
    """

    reason: str
    hint: str


def class_problem(cls: type[Backend]) -> ClassProblem | None:
    """Return why ``cls`` cannot be a backend of this server, or None."""
    return (
        version_problem(cls)
        or capabilities_problem(cls)
        or methods_problem(cls)
        or schema_problem(cls)
    )


def version_problem(cls: type[Backend]) -> ClassProblem | None:
    """Return what is wrong with the version of the contract, or None."""
    version: object = cls.contract_version
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        return ClassProblem(
            f"its contract_version is {version!r}, not a whole number from 1 on",
            f"set contract_version = {CONTRACT_VERSION} in the class",
        )
    if version > CONTRACT_VERSION:
        return ClassProblem(
            f"it needs contract version {version}, and this server has {CONTRACT_VERSION}",
            f"pip install --upgrade {SERVER_DISTRIBUTION}",
        )
    return None


def capabilities_problem(cls: type[Backend]) -> ClassProblem | None:
    """Return why the server cannot go by the capabilities, or None.

    Names that it does not know are of a later contract, and ignored.
    """
    declared: object = cls.capabilities
    if not isinstance(declared, Capabilities):
        return ClassProblem(
            f"its capabilities are of type {type(declared).__name__}, not Capabilities",
            "set capabilities = Capabilities(...) in the class",
        )
    for name in _COLLECTIONS:
        value: object = getattr(declared, name)
        # Text is a collection too: of its letters.
        if isinstance(value, str) or not isinstance(value, Collection):
            return ClassProblem(
                f"its capabilities have {name}={value!r}, which is no set of names",
                f"write {name}=frozenset({{...}})",
            )
    kinds = get_args(RequestKind)
    if not any(kind in declared.accepts for kind in kinds):
        seen = ", ".join(sorted(map(repr, declared.accepts))) or "nothing"
        return ClassProblem(
            f"its capabilities accept {seen}, which is no kind of request",
            f"write accepts=frozenset({{...}}) with some of {', '.join(kinds)}",
        )
    return None


def methods_problem(cls: type[Backend]) -> ClassProblem | None:
    """Return which method the server cannot call, or None."""
    for name, given in _METHODS.items():
        method: Any = getattr(cls, name)
        if not callable(method):
            return ClassProblem(f"its {name} is {method!r}", f"write a method {name}()")
        if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
            return ClassProblem(
                f"its {name}() is async, and the server calls it in a thread, without an event "
                "loop",
                f"write def {name} in place of async def; asyncio.run() or a loop of its own does "
                "what must be awaited",
            )
        if inspect.isfunction(method):
            is_static = isinstance(inspect.getattr_static(cls, name), staticmethod)
            try:
                # what a decorator stands before may take more, which that gives
                signature = inspect.signature(method, follow_wrapped=False)
                signature.bind(*(() if is_static else ("self",)), *given)
            except TypeError as error:
                call = ", ".join(given)
                return ClassProblem(
                    f"its {name}() cannot be called as {name}({call}): {error}",
                    f"write def {name}({', '.join(('self', *given))})",
                )
    return None


def schema_problem(cls: type[Backend]) -> ClassProblem | None:
    """Return why there can be no options, or None."""
    schema: object = cls.options_schema
    if isinstance(schema, type) and dataclasses.is_dataclass(schema):
        return None
    return ClassProblem(
        f"its options_schema is {schema!r}, which is no dataclass",
        "make a class with @dataclass(frozen=True), and leave instances of it to the server",
    )


def read_options_schema(cls: type[Backend]) -> None:
    """Read the definitions of a backend's options, those of its tables too.

    :raises Exception: whatever their author's mistake raises.
    """
    found = [cls.options_schema]
    for schema in found:
        for field in option_fields(schema):
            if field.nested is not None and field.nested[1] not in found:
                found.append(field.nested[1])
