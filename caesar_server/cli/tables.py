"""Tables in plain text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

_GAP = "  "


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table whose columns are as wide as their widest cell.

    >>> list(table(("NAME", "AGE"), [("Caesar", "55")]))
    ['NAME    AGE', 'Caesar  55']
    """
    lines = [head, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        yield _GAP.join(cells).rstrip()
