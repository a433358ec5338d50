"""A backend that yields one delta a second: what a patient model looks like to the server."""

from __future__ import annotations

from collections.abc import Iterator

from caesar_server.contract import (
    Backend,
    ChoiceFinished,
    Completed,
    ContentDelta,
    Context,
    Event,
    Request,
)

CHUNKS = 10
PACE_S = 1.0


class PacedBackend(Backend):
    """Yields :data:`CHUNKS` deltas, one every :data:`PACE_S` seconds, the first at once."""

    def run(self, request: Request, context: Context) -> Iterator[Event]:
        """Yield them on time, whatever the time between took."""
        start = context.clock.monotonic()
        for number in range(CHUNKS):
            context.sleep(max(0.0, start + number * PACE_S - context.clock.monotonic()))
            yield ContentDelta(f"{number} ")
        yield ChoiceFinished()
        yield Completed()
