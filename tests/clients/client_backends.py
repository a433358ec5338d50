"""Backends for questions that the mock's fixtures cannot put to a client.

Copied beside the server of these tests, which runs it in two processes: so they leave what they saw
in a file.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from caesar_server.contract import (
    Backend,
    BackendUnavailableError,
    Cancelled,
    Capabilities,
    ChoiceFinished,
    Completed,
    ContentDelta,
    Context,
    Event,
    RateLimitedError,
    Request,
    option,
)


@dataclass(frozen=True)
class JournalOptions:
    """Where the backends write."""

    journal: str = option(help="File to write to, a JSON object a line.")


@dataclass(frozen=True)
class LimitedOptions(JournalOptions):
    """What a refusal says."""

    retry_after_s: float = option(help="When to come again.", unit="s", minimum=0)


class JournalBackend(Backend):
    """A backend that notes what happens to its runs."""

    options_schema = JournalOptions
    options: JournalOptions

    def note(self, request: Request, what: str) -> None:
        """Append a line; so short that those of two processes do not mix."""
        line = {"prompt": request.prompts[0], "what": what, "at": time.monotonic()}
        with Path(self.options.journal).open("a") as journal:
            journal.write(json.dumps(line) + "\n")


class EndlessBackend(JournalBackend):
    """Goes on until it is stopped."""

    capabilities = Capabilities(n=True)

    def run(self, request: Request, context: Context) -> Iterator[Event]:
        """Yield ticks."""
        try:
            while True:
                yield ContentDelta("tick ")
                context.sleep(0.005)
        except (Cancelled, GeneratorExit):
            self.note(request, "ended")
            raise


class LimitedBackend(JournalBackend):
    """Refuses the first run for a prompt, and names the time after which to come again."""

    options_schema = LimitedOptions
    options: LimitedOptions

    def run(self, request: Request, context: Context) -> Iterator[Event]:
        """Fail, or answer if this prompt was there before."""
        known = json.dumps(request.prompts[0]) in Path(self.options.journal).read_text()
        self.note(request, "tried")
        if not known:
            raise RateLimitedError("Not so fast", retry_after_s=self.options.retry_after_s)
        yield ContentDelta("At last.")
        yield ChoiceFinished()
        yield Completed()


class LostBackend(JournalBackend):
    """Fails when half of the answer is there."""

    def run(self, request: Request, context: Context) -> Iterator[Event]:
        """Yield half an answer."""
        self.note(request, "tried")
        yield ContentDelta("Half an")
        raise BackendUnavailableError("Gone", code="lost")


class MirrorBackend(Backend):
    """Answers with the request as it arrived, in JSON."""

    capabilities = Capabilities(accepts=frozenset({"completion", "chat"}), stop=True)

    def run(self, request: Request, context: Context) -> Iterator[Event]:
        """Yield the request."""
        yield ContentDelta(json.dumps(asdict(request)))
        yield ChoiceFinished()
        yield Completed()
