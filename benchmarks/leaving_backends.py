"""Backends that never end by themselves and note when they learn that nobody waits any more."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from caesar_server.contract import Backend, Cancelled, ContentDelta, Context, Event, Request

#: One line ``PROMPT SECONDS`` a note, in the folder of the server; all processes share the clock.
JOURNAL = "journal"


def note(what: str, request: Request) -> None:
    """Write down the time."""
    with Path(JOURNAL).open("a") as journal:
        journal.write(f"{what} {request.prompts[0]} {time.monotonic()}\n")  # type: ignore[union-attr]


class SilentBackend(Backend):
    """Says nothing."""

    pause_s = 3600.0
    text = ""

    def run(self, request: Request, context: Context) -> Iterator[Event]:
        """Wait for ever."""
        note("began", request)
        try:
            while True:
                if self.text:
                    yield ContentDelta(self.text)
                context.sleep(self.pause_s)
        except (Cancelled, GeneratorExit):
            note("ended", request)
            raise


class WritingBackend(SilentBackend):
    """Says a word every 50 ms."""

    pause_s = 0.05
    text = "word "
