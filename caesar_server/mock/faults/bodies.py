"""What each fault makes of a JSON body.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from caesar_server.mock.faults.acts import Act, End, Happen, Pause, Reset, Write
from caesar_server.mock.faults.frames import HALF_CHARACTER
from caesar_server.mock.faults.stages import dripping
from caesar_server.mock.model.fault import Fault

#: Nowhere in JSON, inside or outside of its strings, may this byte stand as it is.
NO_JSON = b"\x00"


def body_acts(body: bytes, faults: Iterable[Fault]) -> list[Act]:
    """Return what to do instead of sending ``body``, up to the first ``End`` or ``Reset``.

    A fault whose place lies beyond the body's end does not happen.

    :param faults: of kinds that need no stream; ``error_frame`` is not among them, it is another
        body.
    """
    acts: list[Act] = [Write((body,))]
    for fault in sorted(faults, key=lambda fault: fault.kind == "slow_drip"):
        acts = list(_at(acts, fault))
    return _up_to_end(acts)


def sent_length(acts: Iterable[Act]) -> int:
    """Return how many bytes the acts send."""
    return sum(len(part) for act in acts if isinstance(act, Write) for part in act.parts)


def _at(acts: Sequence[Act], fault: Fault) -> Iterator[Act]:
    """Yield ``acts`` with those of ``fault`` after its bytes."""
    if fault.kind == "wrong_content_type":
        yield Happen(fault)
        yield from acts
        return
    left, met = fault.after_chunks, False
    for act in acts:
        if not isinstance(act, Write):
            yield act
            continue
        data = b"".join(act.parts)
        if met:
            yield from _rest(fault, data)
        elif left > len(data):
            left -= len(data)
            yield act
        else:
            met = True
            if left:
                yield Write((data[:left],))
            yield Happen(fault)
            yield from _HERE[fault.kind](fault)
            yield from _rest(fault, data[left:])


def _rest(fault: Fault, data: bytes) -> Iterator[Act]:
    if not data:
        return
    if fault.kind == "slow_drip":
        yield from dripping(fault, data)
    else:
        yield Write((data,))


def _up_to_end(acts: Iterable[Act]) -> list[Act]:
    kept: list[Act] = []
    for act in acts:
        kept.append(act)
        if isinstance(act, (End, Reset)):
            break
    return kept


_HERE: Mapping[str, Callable[[Fault], tuple[Act, ...]]] = {
    "silent_close": lambda fault: (End(fault),),
    "connection_reset": lambda fault: (Reset(fault),),
    "stall": lambda fault: (Pause(fault.delay_s),),
    "malformed_json": lambda fault: (Write((NO_JSON,)),),
    "truncated_utf8": lambda fault: (Write((HALF_CHARACTER,)),),
    "slow_drip": lambda fault: (),
}
