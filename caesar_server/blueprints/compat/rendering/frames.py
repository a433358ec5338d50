"""From events to the frames of a stream."""

from __future__ import annotations

from collections.abc import Sequence

from caesar_server.blueprints.compat.rendering.answer import Answer
from caesar_server.blueprints.compat.rendering.chunks import Wire
from caesar_server.contract import sse
from caesar_server.contract.events import ContentDelta, Event

#: Stands in a frame where text goes; JSON leaves it as it is.
_TEXT = "caesar text"
_TEXT_JSON = b'"caesar text"'


class Frames:
    """Turns the events of one job into frames.  Not safe for threads.

    Nearly all frames of a stream differ in their text alone.  So the frame of a choice that has
    some text already is made once, and the text of each further delta is put between its two ends.
    """

    def __init__(self, answer: Answer, wire: Wire) -> None:
        self._answer = answer
        self._wire = wire
        self._ends: dict[int, tuple[bytes, bytes]] = {}

    def of(self, event: Event) -> Sequence[bytes]:
        """Return the frames to send for ``event``."""
        if type(event) is ContentDelta:
            ends = self._ends.get(event.choice)
            if ends is not None and self._answer.takes_plainly(event):
                text = event.text
                self._wire.note_text(event.choice, text)
                return (ends[0] + sse.ascii_json(text) + ends[1],)
        frames = [
            sse.frame(chunk)
            for piece in self._answer.pieces(event)
            for chunk in self._wire.chunks(piece)
        ]
        if type(event) is ContentDelta and frames:
            # From now on: the first chunk of a choice may say more, such as who speaks.
            self._ends.setdefault(event.choice, self._ends_of(event.choice))
        return frames

    def _ends_of(self, choice: int) -> tuple[bytes, bytes]:
        frame = sse.frame(self._wire.plain_chunk(choice, _TEXT))
        # from the right: the model's name, which the client chose, comes before it
        before, _, after = frame.rpartition(_TEXT_JSON)
        return before, after
