"""What is done with the body of one answer, as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from caesar_server.mock.model.fault import Fault


@dataclass(frozen=True, slots=True)
class Write:
    """Send these, in one write; of a stream whole frames, unless a fault cut them."""

    parts: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Happen:
    """The fault begins, or happens once more."""

    fault: Fault


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait.

    :param seconds: by the scope's clock; None: until the client leaves.
    """

    seconds: float | None


@dataclass(frozen=True, slots=True)
class Reset:
    """Reset the connection: nothing more can be sent.

    :param fault: which asks for it.
    """

    fault: Fault


@dataclass(frozen=True, slots=True)
class End:
    """Send nothing more; the body ends as a whole one does.

    :param fault: which ends it.
    """

    fault: Fault


Act: TypeAlias = Write | Happen | Pause | Reset | End
