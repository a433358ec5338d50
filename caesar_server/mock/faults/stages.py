"""What each fault in the body of a stream makes of its frames.  No I/O.

A stage takes frame by frame and says what to do; stages stand in a row, each one works on what the
one before it writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeAlias

from caesar_server.contract import sse
from caesar_server.mock.faults.acts import Act, End, Happen, Pause, Reset, Write
from caesar_server.mock.faults.frames import (
    carries_text,
    cut_json,
    is_data,
    is_done,
    with_crlf,
    with_half_character,
)
from caesar_server.mock.model.fault import Fault

#: Of ``empty_data`` and ``comment_storm`` without a ``count``.
EMPTY_FRAMES = 1
COMMENTS = 1000
EMPTY_FRAME = b"data:\n\n"


class Stage:
    """One fault at work on one stream.  Not safe for threads.

    As it is it changes nothing.

    :ivar seen: how many frames that carry text have passed.
    """

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.seen = 0

    @property
    def reached(self) -> bool:
        """Whether as many chunks have left as are to leave before the fault."""
        return self.seen >= self.fault.after_chunks

    def frame(self, data: bytes) -> Iterator[Act]:
        """Yield what to do with the next frame."""
        yield Write((data,))

    def finish(self) -> Iterable[Act]:
        """Return what is left to do after the last frame."""
        return ()


class BetweenStage(Stage):
    """Does something once, right after the last chunk that is to leave whole."""

    def __init__(self, fault: Fault, acts: Callable[[Fault], Iterable[Act]]) -> None:
        super().__init__(fault)
        self._acts = acts
        self._done = False

    def frame(self, data: bytes) -> Iterator[Act]:
        """Yield the acts before the first frame if no chunk is to leave, else after one."""
        yield from self._now()
        yield Write((data,))
        if carries_text(data):
            self.seen += 1
            yield from self._now()

    def _now(self) -> Iterator[Act]:
        if self.reached and not self._done:
            self._done = True
            yield Happen(self.fault)
            yield from self._acts(self.fault)


class ChunkStage(Stage):
    """Changes the first chunk that does not leave whole."""

    def __init__(self, fault: Fault, change: Callable[[bytes], tuple[bytes, ...]]) -> None:
        super().__init__(fault)
        self._change = change

    def frame(self, data: bytes) -> Iterator[Act]:
        """Yield the frame, or what became of it."""
        if not carries_text(data):
            yield Write((data,))
            return
        changed = self.seen == self.fault.after_chunks
        self.seen += 1
        if changed:
            yield Happen(self.fault)
        yield Write(self._change(data) if changed else (data,))


class ReorderStage(Stage):
    """Lets one chunk wait for the frame that follows it."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault)
        self._held: bytes | None = None

    def frame(self, data: bytes) -> Iterator[Act]:
        """Yield the frame, later, or with the one that waited for it."""
        if (held := self._held) is not None:
            if is_done(data):
                self._held = None
                yield Write((held, data))
            elif is_data(data):
                self._held = None
                yield Happen(self.fault)
                yield Write((data, held))
            else:
                yield Write((data,))
            return
        if carries_text(data):
            self.seen += 1
            if self.seen == self.fault.after_chunks + 1:
                self._held = data
                return
        yield Write((data,))

    def finish(self) -> Iterable[Act]:
        """Return the chunk that still waits."""
        return () if self._held is None else (Write((self._held,)),)


class FromStage(Stage):
    """Changes each frame from a place on."""

    def __init__(self, fault: Fault, acts: Callable[[Fault, bytes], Iterable[Act]]) -> None:
        super().__init__(fault)
        self._acts = acts
        self._begun = False

    def frame(self, data: bytes) -> Iterator[Act]:
        """Yield the frame, or what became of it."""
        if not self.reached:
            self.seen += carries_text(data)
            yield Write((data,))
            return
        if not self._begun:
            self._begun = True
            yield Happen(self.fault)
        yield from self._acts(self.fault, data)


class MissingDoneStage(Stage):
    """Leaves the end out."""

    def frame(self, data: bytes) -> Iterator[Act]:
        """Yield the frame if it is not the last one."""
        yield Happen(self.fault) if is_done(data) else Write((data,))


def dripping(fault: Fault, data: bytes) -> Iterator[Act]:
    """Yield ``data`` in pieces of ``count`` bytes, each after a pause."""
    size = fault.count or 1
    for at in range(0, len(data), size):
        yield Pause(fault.delay_s or 0)
        yield Write((data[at : at + size],))


def _empty_frames(fault: Fault) -> tuple[Act, ...]:
    return (Write((EMPTY_FRAME,) * (fault.count or EMPTY_FRAMES)),)


def _comments(fault: Fault) -> tuple[Act, ...]:
    count = fault.count or COMMENTS
    return (Write(tuple(b": comment %d\n\n" % number for number in range(1, count + 1))),)


def _crlf(_: Fault, data: bytes) -> tuple[Act, ...]:
    return (Write((with_crlf(data),)),)


ErrorBody: TypeAlias = Callable[[Fault], Mapping[str, object]]


def stage_of(fault: Fault, error_body: ErrorBody) -> Stage:
    """Return the stage of a fault in a stream's body.

    :param error_body: makes the error object of ``error_frame``.
    """
    if fault.kind == "error_frame":
        last = (sse.frame(error_body(fault)), sse.DONE)
        return BetweenStage(fault, lambda fault: (Write(last), End(fault)))
    return _STAGES[fault.kind](fault)


#: What comes before the first frame, such as ``wrong_content_type``, changes none.
_STAGES: Mapping[str, Callable[[Fault], Stage]] = {
    "silent_close": lambda fault: BetweenStage(fault, lambda fault: (End(fault),)),
    "connection_reset": lambda fault: BetweenStage(fault, lambda fault: (Reset(fault),)),
    "stall": lambda fault: BetweenStage(fault, lambda fault: (Pause(fault.delay_s),)),
    "empty_data": lambda fault: BetweenStage(fault, _empty_frames),
    "comment_storm": lambda fault: BetweenStage(fault, _comments),
    "malformed_json": lambda fault: ChunkStage(fault, lambda data: (cut_json(data),)),
    "truncated_utf8": lambda fault: ChunkStage(fault, lambda data: (with_half_character(data),)),
    "duplicate_chunk": lambda fault: ChunkStage(fault, lambda data: (data, data)),
    "reorder_chunks": ReorderStage,
    "missing_done": MissingDoneStage,
    "wrong_content_type": lambda fault: BetweenStage(fault, lambda fault: ()),
    "crlf": lambda fault: FromStage(fault, _crlf),
    "slow_drip": lambda fault: FromStage(fault, dripping),
}


class StreamFaults:
    """The body faults of one stream in a row.  Not safe for threads.

    Those that cut frames into bytes come last, whatever the order given, since the others work on
    whole frames.

    :param faults: of kinds with ``in_body``.
    """

    def __init__(self, faults: Iterable[Fault], error_body: ErrorBody) -> None:
        ordered = sorted(faults, key=lambda fault: fault.kind == "slow_drip")
        self._stages = [stage_of(fault, error_body) for fault in ordered]

    def acts(self, frames: Iterable[bytes], *, ended: bool) -> Iterator[Act]:
        """Yield what to do with the next frames; nothing counts after ``End`` or ``Reset``.

        :param ended: whether they are the last ones.
        """
        acts: Iterable[Act] = (Write(tuple(frames)),)
        for stage in self._stages:
            acts = _through(stage, acts, ended=ended)
        for act in acts:
            yield act
            if isinstance(act, (End, Reset)):
                return


def _through(stage: Stage, acts: Iterable[Act], *, ended: bool) -> Iterator[Act]:
    for act in acts:
        if isinstance(act, Write):
            for data in act.parts:
                yield from stage.frame(data)
        else:
            yield act
    if ended:
        yield from stage.finish()
