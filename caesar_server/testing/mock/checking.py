"""What a test may give: numbers, texts and switches, since tests are seldom checked for types."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any


def as_whole(name: str, value: Any, least: int | None = None) -> int:
    """Return a whole number; ``True`` is none.

    :param name: of the argument.
    :param least: the lowest that may be given; None: any.
    :raises ValueError: naming the argument, for anything else.
    """
    wrong = isinstance(value, bool) or not isinstance(value, int)
    if wrong or (least is not None and value < least):
        bound = "" if least is None else f" of {least} or more"
        raise ValueError(f"{name}: expected a whole number{bound}, got {value!r}")
    return int(value)


def as_seconds(name: str, value: Any) -> float:
    """Return a number of seconds.

    :raises ValueError: naming the argument, if it is none of 0 or more.
    """
    wrong = isinstance(value, bool) or not isinstance(value, (int, float))
    if wrong or not value >= 0:
        raise ValueError(f"{name}: expected seconds, a number of 0 or more, got {value!r}")
    return float(value)


def as_switch(name: str, value: Any) -> bool:
    """Return a switch.

    :raises ValueError: naming the argument, if it is neither ``True`` nor ``False``.
    """
    if not isinstance(value, bool):
        raise ValueError(f"{name}: expected True or False, got {value!r}")
    return value


def as_text(name: str, value: Any) -> str:
    """Return a text.

    :raises ValueError: naming the argument, if it is none.
    """
    if not isinstance(value, str):
        raise ValueError(f"{name}: expected a text, got {value!r}")
    return value


def as_paths(name: str, value: Any) -> tuple[Path, ...]:
    """Return one path, or several.

    :raises ValueError: naming the argument, if it is none.
    """
    several = isinstance(value, Sequence) and not isinstance(value, (str, bytes))
    paths = tuple(value) if several else (value,)
    if not paths or not all(isinstance(path, (str, PathLike)) for path in paths):
        raise ValueError(f"{name}: expected a path, or a list of paths, got {value!r}")
    return tuple(map(Path, paths))
