"""From events to the frames of a stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from caesar_server.blueprints.compat.rendering.answer import Answer, TextsPiece
from caesar_server.blueprints.compat.rendering.chunks import Wire
from caesar_server.contract import sse
from caesar_server.contract.events import Event

#: Stands in a frame where text goes; JSON leaves it as it is.
_TEXT = "caesar text"
_TEXT_JSON = b'"caesar text"'
#: Put between texts that are made JSON together.  JSON leaves it as it is, no escape has it in it,
#: and hardly any text does.
_BETWEEN = "\x7f"
_BETWEEN_JSON = b"\x7f"


class Frames:
    """Turns the events of one job into frames.  Not safe for threads.

    Nearly all frames of a stream differ in their text alone.  So the frame of a choice that has
    some text already is made once, and the texts of all further deltas that are ready are made JSON
    in one step and put between its two ends.
    """

    def __init__(self, answer: Answer, wire: Wire) -> None:
        self._answer = answer
        self._wire = wire
        self._ends: dict[int, tuple[bytes, bytes]] = {}

    def of(self, events: Iterable[Event]) -> Iterator[bytes]:
        """Yield what to send for ``events``: whole frames, one or more in an item."""
        for piece in self._answer.pieces(events):
            if type(piece) is not TextsPiece:
                yield from map(sse.frame, self._wire.chunks(piece))
                continue
            choice, texts = piece
            if choice not in self._ends:
                # The first chunk of a choice may say more, such as who speaks.
                yield from map(sse.frame, self._wire.chunks(TextsPiece(choice, texts[:1])))
                self._ends[choice] = self._ends_of(choice)
                texts = texts[1:]
            if texts:
                yield self._further(choice, texts)

    def _further(self, choice: int, texts: Sequence[str]) -> bytes:
        """Return the frames of further texts of a choice, at least one."""
        between = len(texts) - 1
        joined = _BETWEEN.join(texts)
        self._wire.note_text(choice, len(joined) - between)
        before, after = self._ends[choice]
        data = sse.ascii_json(joined)
        if data.count(_BETWEEN_JSON) == between:
            return before + data.replace(_BETWEEN_JSON, b'"' + after + before + b'"') + after
        # one of them has it
        return b"".join([before + sse.ascii_json(text) + after for text in texts])

    def _ends_of(self, choice: int) -> tuple[bytes, bytes]:
        frame = sse.frame(self._wire.plain_chunk(choice, _TEXT))
        # from the right: the model's name, which the client chose, comes before it
        before, _, after = frame.rpartition(_TEXT_JSON)
        return before, after
