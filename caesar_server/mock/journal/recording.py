"""Writing down one exchange while it goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from msgspec import structs

from caesar_server.contract.sse import split_frames
from caesar_server.mock.journal.entry import CLIENT_LEFT, COMPLETED, Ended, Entry, FaultNote
from caesar_server.mock.journal.masking import masked, masked_address
from caesar_server.mock.model.call import Call
from caesar_server.mock.model.fault import FaultKind
from caesar_server.mock.model.rule import Decision, Rule

#: What an exchange takes besides bodies, roughly: two calls, headers, the objects around them.
_ENTRY_BYTES = 4096
#: A parsed body takes several times what its text does.
_PARSED_FACTOR = 6
#: Of each frame or fault that is kept, besides its bytes.
_NOTE_BYTES = 60
#: So much of the end of a body tells whether it ends as a stream does.
_LAST_BYTES = 64


class Book(Protocol):
    """What a recording is a part of."""

    #: Held while anything changes.
    lock: threading.RLock

    def grew(self, recording: Recording, size: int) -> None:
        """Make room: the recording takes so many bytes more.  The lock is held."""

    def noted(self, *, fault: str | None = None, ended: str | None = None) -> None:
        """Count a fault or an end, and wake who waits.  The lock is held."""


class Recording:
    """The exchange of one call; made by :meth:`Journal.open`.

    Safe from any thread.  Writing to it is harmless after its end, which only counts once, and
    after the journal has let go of it.
    """

    # Little is done while the exchange goes on: headers are masked when somebody looks.
    __slots__ = (
        "_at",
        "_batches",
        "_began",
        "_book",
        "_decision",
        "_detail",
        "_ended",
        "_ended_at_s",
        "_faults",
        "_head",
        "_kept_bytes",
        "_last",
        "_left_out",
        "_max_frame_bytes",
        "_missed",
        "_monotonic",
        "_sent",
        "call",
        "continued",
        "group",
        "number",
        "size",
    )

    def __init__(
        self,
        call: Call,
        book: Book,
        *,
        number: int,
        group: str,
        at: float,
        monotonic: Callable[[], float],
        max_frame_bytes: int,
    ) -> None:
        #: As it came.
        self.call = call
        self.number = number
        self.group = group
        #: Bytes that it takes by now, roughly.
        self.size = _ENTRY_BYTES + len(call.raw_body) * (1 if call.body is None else _PARSED_FACTOR)
        #: Whether a later attempt goes on with this one.
        self.continued = False
        self._book = book
        self._at = at
        self._monotonic = monotonic
        self._began = monotonic()
        self._max_frame_bytes = max_frame_bytes
        self._decision: Decision | None = None
        self._head: tuple[int, tuple[tuple[str, str], ...], float] | None = None
        self._faults: tuple[FaultNote, ...] = ()
        self._missed: tuple[FaultKind, ...] = ()
        # of a stream each write is cut into its frames when somebody looks, which is seldom
        self._batches: list[tuple[float, tuple[bytes, ...] | bytes]] = []
        self._kept_bytes = 0
        self._left_out = 0
        self._sent = 0
        self._last = b""
        self._ended: Ended | None = None
        self._ended_at_s: float | None = None
        self._detail = ""

    def entry(self) -> Entry:
        """Return the exchange as it stands."""
        call = self.call
        with self._book.lock:
            status, headers, head_at_s = self._head or (None, (), None)
            decision = self._decision
            return Entry(
                id=call.id,
                number=self.number,
                call=structs.replace(
                    call,
                    headers=masked(call.headers),
                    path=masked_address(call.path),
                    raw_path=masked_address(call.raw_path),
                    api_key=None,
                ),
                original=call,
                group=self.group,
                at=self._at,
                decided=decision is not None,
                rule=decision.rule if decision else None,
                nearest=decision.nearest if decision else (),
                faults=self._faults,
                missed=self._missed,
                status=status,
                headers=masked(_joined(headers)),
                head_at_s=head_at_s,
                batches=self._cut_batches(),
                frames_left_out=self._left_out,
                bytes_sent=self._sent,
                ended=self._ended,
                ended_at_s=self._ended_at_s,
                detail=self._detail,
            )

    @property
    def succeeded(self) -> bool:
        """Whether the client got a whole answer that is no error."""
        return self._ended == COMPLETED and self._head is not None and self._head[0] < 400

    def decided(self, decision: Decision) -> None:
        """Note which rule answers."""
        with self._book.lock:
            self._decision = decision
            self._book.noted()

    def refused(self) -> None:
        """Note that the server refuses the call itself: no rule answers."""
        with self._book.lock:
            self._decision = None
            self._book.noted()

    def faulted(self, kind: FaultKind, rule: Rule | None = None) -> None:
        """Note a fault that happens now; ``rule`` is the one that asked for it."""
        who = ("", "", "") if rule is None else (rule.id, rule.name, rule.source)
        with self._book.lock:
            self._faults = (*self._faults, FaultNote(kind, self._elapsed(), *who))
            self._book.grew(self, _NOTE_BYTES)
            self._book.noted(fault=kind)

    def missed(self, kinds: Iterable[FaultKind]) -> None:
        """Note the faults that do not happen, since the answer does not reach their place."""
        with self._book.lock:
            self._missed = tuple(kinds)
            self._book.noted()

    def answered(
        self, status: int, headers: Mapping[str, str] | Iterable[tuple[str, str]] = ()
    ) -> None:
        """Note the head of the answer; of several (early hints) the last one counts.

        :param headers: repeated names are joined by a comma.
        """
        # a list, as hosts have it, is told sooner than that something is no mapping
        if not isinstance(headers, list) and isinstance(headers, Mapping):
            headers = headers.items()
        pairs = tuple(headers)
        with self._book.lock:
            self._head = (status, pairs, self._elapsed())
            self._book.noted()

    def frame(self, data: bytes) -> None:
        """Note one frame that leaves now; of a JSON answer the whole body."""
        self.frames((data,))

    def frames(self, batch: Sequence[bytes]) -> None:
        """Note frames that leave in one write, in their order."""
        if batch:
            self._wrote(tuple(batch), len(batch), sum(map(len, batch)), batch[-1])

    def stream(self, data: bytes) -> None:
        """Note whole frames of a stream that leave in one write: :meth:`frames` of its frames."""
        # a frame has two line breaks at least, and those are found far sooner than blank lines
        self._wrote(data, data.count(b"\n") // 2, len(data), data[-_LAST_BYTES:])

    def _wrote(self, batch: tuple[bytes, ...] | bytes, most: int, size: int, last: bytes) -> None:
        """Note a write of so many frames at most."""
        grown = size + _NOTE_BYTES * most
        with self._book.lock:
            self._sent += size
            self._last = last
            # From the first that does not fit on: what is kept is always the beginning.
            if self._left_out or self._kept_bytes + grown > self._max_frame_bytes:
                whole = isinstance(batch, bytes)
                self._left_out += batch.count(b"\n\n") if whole else len(batch)
                return
            self._kept_bytes += grown
            self._batches.append((self._elapsed(), batch))
            self._book.grew(self, grown)

    def end(self, ended: Ended, detail: str = "") -> None:
        """Note how it ended; only the first call counts.

        A client that leaves after the last frame of a stream has got everything: that is
        ``completed``, too.  OpenAI's clients close at ``[DONE]`` without reading on.
        """
        with self._book.lock:
            if self._ended is not None:
                return
            done = ended == CLIENT_LEFT and _is_done(self._last)
            self._ended = COMPLETED if done else ended
            self._ended_at_s = self._elapsed()
            self._detail = detail
            self._book.noted(ended=self._ended)

    def _cut_batches(self) -> tuple[tuple[float, tuple[bytes, ...]], ...]:
        """Return the batches frame by frame, and keep them so.  The lock is held."""
        cut = [
            (at_s, tuple(split_frames(batch)) if isinstance(batch, bytes) else batch)
            for at_s, batch in self._batches
        ]
        self._batches[:] = cut
        return tuple(cut)

    def _elapsed(self) -> float:
        # to the nanosecond: what is below is the rounding of large numbers, and an hour by a clock
        # that was turned by hand is to be an hour
        return max(0.0, round(self._monotonic() - self._began, 9))


def _joined(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in pairs:
        name = name.lower()
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found


def _is_done(frame: bytes) -> bool:
    return frame.rstrip(b"\r\n").endswith(b"data: [DONE]")
