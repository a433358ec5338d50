"""What can go wrong on the way to a server and back, as one exception."""

from __future__ import annotations

from typing import Literal, TypeAlias

ProblemKind: TypeAlias = Literal[
    "cancelled",
    "dns",
    "proxy",
    "tls",
    "refused",
    "connect_timeout",
    "first_byte_timeout",
    "gap_timeout",
    "total_timeout",
    "unsendable",
    "no_answer",
    "cut",
    "too_long",
]


class Problem(Exception):
    """An exchange failed below what its bytes say.

    :ivar kind: what happened.
    :param detail: a clause for a person, without anything that the other side wrote.
    """

    def __init__(self, kind: ProblemKind, detail: str = "") -> None:
        super().__init__(f"{kind}: {detail}" if detail else kind)
        self.kind = kind
        self.detail = detail
