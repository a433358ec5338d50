"""What the fields of this package take, as JSON Schema 2020-12, for the API description."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Json = Mapping[str, Any]

COERCED_BOOLEAN: Json = {
    "anyOf": [
        {"type": "boolean"},
        {"type": "string", "pattern": r"^\s*([Tt][Rr][Uu][Ee]|[Ff][Aa][Ll][Ss][Ee])\s*$"},
    ]
}


def bounds(low: float | None, high: float | None) -> dict[str, float]:
    """Return the bounds of a number."""
    found = {"minimum": low, "maximum": high}
    return {name: bound for name, bound in found.items() if bound is not None}


def coerced_integer(low: int, high: int) -> Json:
    """Return what takes an integer from ``low`` (0 or more) to ``high``, or a string with one."""
    text = {"type": "string", "pattern": rf"^\s*0*({decimals(low, high)})\s*$"}
    return {"anyOf": [{"type": "integer", **bounds(low, high)}, text]}


def decimals(low: int, high: int) -> str:
    """Return a regular expression for the numbers from ``low`` (0 or more) to ``high``.

    >>> decimals(3, 24)
    '[3-9]|1[0-9]|2[0-4]'
    """
    last_digits: dict[int, list[int]] = {}
    for number in range(low, high + 1):
        last_digits.setdefault(number // 10, []).append(number % 10)
    tens: dict[str, list[str]] = {}
    for ten, digits in last_digits.items():
        last = str(digits[0]) if len(digits) == 1 else f"[{digits[0]}-{digits[-1]}]"
        tens.setdefault(last, []).append(str(ten) if ten else "")
    return "|".join(
        (first[0] if len(first) == 1 else f"({'|'.join(first)})") + last
        for last, first in tens.items()
    )
