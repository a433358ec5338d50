"""Backends whose work is worth to be killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

from crash_points import note, reach

from caesar_server.contract import (
    Backend,
    Capabilities,
    ChoiceFinished,
    Completed,
    ContentDelta,
    Context,
    Event,
    LoopFinished,
    ProgressNoted,
    Request,
    RequestLogged,
    ResultFound,
    SourceStored,
    Started,
    UsageCounted,
)
from caesar_server.testing import durable_backend

#: Seconds between some words, so that the text is stored in several batches.
PAUSE_S = 0.06


def breathe(context: Context) -> None:
    context.sleep(PAUSE_S)


_Durable = durable_backend(
    ("reading", "weighing", "doubting"),
    before_delta={3: breathe, 6: breathe},
)


class FindingBackend(_Durable):
    """Finds what nobody finds twice, tells every kind of event, and may be killed after each."""

    def run(self, request: Request, context: Context) -> Iterator[Event]:
        for event in super().run(request, context):
            if isinstance(event, Completed):
                for more in self._numbers():
                    yield more
                    reach(f"after-{more.type}", context.job_id)
                reach("before-the-end", context.job_id)
            yield event
            reach(f"after-{event.type}", context.job_id)
            if isinstance(event, Started):
                for more in self._sources(is_new=context.restored is None):
                    yield more
                    reach(f"after-{more.type}", context.job_id)

    def _sources(self, *, is_new: bool) -> Iterator[Event]:
        # what has no name of its own is told only until the checkpoint that covers it
        if is_new:
            yield ProgressNoted("looking around")
            yield RequestLogged("https://example.org/1", response_status=200, result_id="r1")
        for number in range(1, 4):
            yield ResultFound(f"r{number}", f"Source {number}", f"https://example.org/{number}")
            yield SourceStored(f"r{number}", raw="<p>" + "x" * 500, markdown="x" * 500)
        yield LoopFinished(1)

    def _numbers(self) -> Iterator[Event]:
        yield UsageCounted(prompt_tokens=2, completion_tokens=9)


class PoisonBackend(Backend):
    """Takes every process along that runs it."""

    capabilities = Capabilities(durable=True)

    def run(self, request: Request, context: Context) -> Iterator[Event]:
        yield Started()
        note("poisoned", context.job_id)
        os.kill(os.getpid(), signal.SIGKILL)
        yield Completed()


class WaitingBackend(Backend):
    """Says a word, then waits until it is cancelled; the job of a durable one is anybody's."""

    capabilities = Capabilities(durable=True)

    def run(self, request: Request, context: Context) -> Iterator[Event]:
        yield ContentDelta("word ")
        while not Path("go-on").exists():
            context.sleep(0.01)
        yield ContentDelta("end")
        yield ChoiceFinished()
        yield Completed()


class AttachedBackend(WaitingBackend):
    """The same, whose job ends with its client and its process."""

    capabilities = Capabilities()


class LateBackend(AttachedBackend):
    """The same, which says nothing until it may go on."""

    def run(self, request: Request, context: Context) -> Iterator[Event]:
        note("late", context.job_id)
        while not Path("go-on").exists():
            context.sleep(0.01)
        yield from super().run(request, context)


class CountingBackend(Backend):
    """Tells of the prompt alone, word by word."""

    capabilities = Capabilities(durable=True)

    def run(self, request: Request, context: Context) -> Iterator[Event]:
        number = int(request.prompts[0].split()[-1])
        words = [f"{number}.{word} " for word in range(20 + number)]
        context.checkpoint({"words": words})
        for place, word in enumerate(words):
            if place == number:
                breathe(context)
            yield ContentDelta(word)
        yield UsageCounted(prompt_tokens=2, completion_tokens=len(words))
        yield ChoiceFinished()
        yield Completed()
