"""One exchange as the journal shows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from caesar_server.mock.model.call import Call
from caesar_server.mock.model.fault import FaultKind
from caesar_server.mock.model.rule import Nearest, Rule

#: ``completed``: the whole answer left, whatever its status.  ``client_left``: the client closed
#: before.  ``fault:KIND``: a fault ended the exchange.  ``failed``: the server broke it off.
Ended: TypeAlias = str

COMPLETED = "completed"
CLIENT_LEFT = "client_left"
FAILED = "failed"
FAULT_PREFIX = "fault:"


@dataclass(frozen=True, slots=True)
class Frame:
    """A piece of the answer's body as it left: of a stream one frame, else the body.

    :param at_s: seconds after the request had come, by the scope's clock.
    """

    at_s: float
    data: bytes


@dataclass(frozen=True, slots=True)
class FaultNote:
    """A fault that happened.

    :param at_s: seconds after the request had come, by the scope's clock.
    :param rule: id of the rule that asked for it; ``""``: a header of the request, or the scope's
        default.
    :param rule_name: its name, if it has one.
    :param rule_source: where it was written, if that is known.
    """

    kind: FaultKind
    at_s: float
    rule: str = ""
    rule_name: str = ""
    rule_source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An exchange as it stood when the journal was asked; it does not change any more.

    :param id: of the call; unique in its scope.
    :param number: 1 for the first exchange since the journal was last emptied.
    :param call: what was asked; secret headers are masked and the API key is left out.
    :param original: the same with everything in it: conditions look at it, nothing shows it.
    :param group: the id of the first attempt of this call; the entry's own id if it is that.
    :param at: when the request came, in Unix seconds by the scope's clock.
    :param decided: whether the rules have a say in the answer; not if the server itself refused the
        request, for what is wrong in it.
    :param rule: the reply rule that matched, or None.
    :param nearest: if none matched: the rules that came closest.
    :param faults: those that happened, in order.
    :param missed: kinds of those that were to happen and did not, since the answer does not reach
        their place.
    :param status: of the answer; None before it is known, and if none was sent.
    :param headers: of the answer, names in lower case, secrets masked.
    :param head_at_s: when the head left, in seconds after ``at``.
    :param batches: frames that left together, with their time; see :attr:`frames`.
    :param frames_left_out: so many more frames left than are kept.
    :param bytes_sent: of the body, those left out included.
    :param ended: None while it goes on.
    :param ended_at_s: in seconds after ``at``.
    :param detail: more about the end, for people.
    """

    id: str
    number: int
    call: Call
    original: Call = field(repr=False)
    group: str
    at: float
    decided: bool = False
    rule: Rule | None = None
    nearest: tuple[Nearest, ...] = ()
    faults: tuple[FaultNote, ...] = ()
    missed: tuple[FaultKind, ...] = ()
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    head_at_s: float | None = None
    batches: tuple[tuple[float, tuple[bytes, ...]], ...] = field(default=(), repr=False)
    frames_left_out: int = 0
    bytes_sent: int = 0
    ended: Ended | None = None
    ended_at_s: float | None = None
    detail: str = ""

    @property
    def frames(self) -> tuple[Frame, ...]:
        """The body as it left, frame by frame."""
        return tuple(Frame(at_s, data) for at_s, batch in self.batches for data in batch)

    @property
    def body(self) -> bytes:
        """The body as it left; incomplete if ``frames_left_out``."""
        return b"".join(data for _, batch in self.batches for data in batch)

    @property
    def used_rules(self) -> frozenset[str]:
        """The ids of the rules that decided something: the answer, or a fault that happened."""
        faults = (fault.rule for fault in self.faults if fault.rule)
        return frozenset(faults if self.rule is None else (self.rule.id, *faults))

    @property
    def succeeded(self) -> bool:
        """Whether the client got a whole answer that is no error."""
        return self.ended == COMPLETED and self.status is not None and self.status < 400
