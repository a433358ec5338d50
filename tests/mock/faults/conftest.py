"""Frames of streams, and what faults make of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from caesar_server.contract import sse
from caesar_server.mock.faults import Act, End, Happen, Pause, Reset, StreamFaults, Write
from caesar_server.mock.model.fault import Fault

ROLE = sse.frame({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
FINISH = sse.frame({"choices": [{"index": 0, "text": "", "finish_reason": "stop"}]})


def text_frame(text: str) -> bytes:
    """Return a frame of a text completion."""
    return sse.frame({"id": "x", "choices": [{"index": 0, "text": text}]})


ONE, TWO, THREE = map(text_frame, ("one", " two", " three"))
STREAM = (ROLE, ONE, TWO, THREE, FINISH, sse.DONE)


def error_body(fault: Fault) -> dict[str, Any]:
    """Return a stand-in for a surface's error object."""
    return {"error": {"message": fault.message}}


Played = list[bytes | str]


def told(acts: Sequence[Act]) -> Played:
    """Return the acts in short: what is written as bytes, the rest by name."""
    found: Played = []
    for act in acts:
        match act:
            case Write():
                found += act.parts
            case Happen():
                found.append(f"happens {act.fault.kind}")
            case Pause():
                found.append(f"pause {act.seconds}")
            case Reset():
                found.append("reset")
            case End():
                found.append("end")
    return found


@pytest.fixture
def through() -> Callable[..., Played]:
    """Send a stream, in batches, through faults and tell what comes out."""

    def send(*faults: Fault, batches: Sequence[Sequence[bytes]] = (STREAM,)) -> Played:
        row = StreamFaults(faults, error_body)
        acts: list[Act] = []
        for number, batch in enumerate(batches, 1):
            acts += row.acts(batch, ended=number == len(batches))
        return told(acts)

    return send


@pytest.fixture
def tell() -> Callable[[Sequence[Act]], Played]:
    """Tell acts in short."""
    return told


@pytest.fixture
def frames() -> dict[str, Any]:
    """The frames of the stream by name; ``all`` is the whole stream."""
    return {"role": ROLE, "one": ONE, "two": TWO, "three": THREE, "finish": FINISH, "all": STREAM}
