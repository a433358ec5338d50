"""What is wrong with a fixture file, and where."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

#: Keys and positions from the top of a document to a value in it.
Path: TypeAlias = tuple[str | int, ...]

_PLAIN = re.compile(r"\$?[A-Za-z_][A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong.

    :param message: what, and what would be right.
    :param path: of the value that is wrong; empty for the document as a whole.
    :param file: empty for data that comes from none.
    :param line: from 1; None if nobody knows.
    :param column: from 1.
    """

    message: str
    path: Path = ()
    file: str = ""
    line: int | None = None
    column: int | None = None

    @property
    def field(self) -> str:
        """The path as people write it: ``rules[0].reply.chunks``."""
        return field_name(self.path)

    def as_json(self) -> dict[str, Any]:
        """Return it with its field as people write it."""
        return {
            "file": self.file,
            "line": self.line,
            "column": self.column,
            "field": self.field,
            "message": self.message,
        }

    def __str__(self) -> str:
        """``FILE:LINE:COLUMN: FIELD: MESSAGE``, without what is not known; always one line."""
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part)
        told = ": ".join(part for part in (place, self.field, self.message) if part)
        # the messages of other packages may have several
        return " ".join(filter(None, map(str.strip, told.splitlines())))


class FixturesError(ValueError):
    """Fixtures that cannot be used; its text has one problem a line."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: Sequence[Problem] = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


def field_name(path: Path) -> str:
    """Return a path as people write it.

    >>> field_name(("rules", 0, "when", "headers", "x-team"))
    'rules[0].when.headers.x-team'
    >>> field_name(("What is new?", "chunks"))
    '"What is new?".chunks'
    """
    parts: list[str] = []
    for key in path:
        if isinstance(key, int):
            parts.append(f"[{key}]")
        else:
            shown = key if _PLAIN.fullmatch(key) else _quoted(key)
            parts.append(f".{shown}" if parts else shown)
    return "".join(parts)


def _quoted(key: str, most: int = 60) -> str:
    # Not as it is: what came in with escapes cannot be printed everywhere.
    return json.dumps(
        key if len(key) <= most else f"{key[: most - 1]}…", ensure_ascii=not _sane(key)
    )


def _sane(text: str) -> bool:
    return text.isprintable()
