"""JMESPath, which comes with the extra ``mock``."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any


def compiled(text: str) -> Callable[[Any], Any]:
    """Return what finds the value of an expression in a JSON document; None where there is none.

    An expression that does not fit a document (``length(@)`` of a number) finds nothing there.

    :raises ValueError: if it is no JMESPath, or the package is not installed.
    """
    try:
        jmespath = importlib.import_module("jmespath")
        problems = importlib.import_module("jmespath.exceptions").JMESPathError
    except ImportError:
        raise ValueError(
            "JMESPath needs a package that is not there; install caesar-server[mock]"
        ) from None
    try:
        expression = jmespath.compile(text)
    # a warning, where somebody makes errors of them: of literals in an old form
    except (problems, RecursionError, DeprecationWarning, PendingDeprecationWarning) as error:
        # below its first line is the expression once more
        told = str(error).partition("\n")[0].removesuffix(":").removesuffix(", for expression")
        raise ValueError(f"expected a JMESPath expression, got {text!r}: {told}") from None

    def find(document: Any) -> Any:
        try:
            return expression.search(document)
        except problems:
            return None

    return find


def is_true(value: Any) -> bool:
    """Return whether JMESPath takes a value for true: not null, false, nor anything empty."""
    return not (value is None or value is False or value in ("", [], {}))
