"""A backend that does what its question says; copied beside the servers of these tests.

A question is a JSON object; all members are optional: ``notes`` to tell with ``pause_s`` before
each, ``updates`` to wait for, ``loops``, a ``hold`` (the name of a file) to wait for, ``fail``.
What happens to a run is a line in the file ``journal``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from caesar_server.contract import (
    Backend,
    BackendUnavailableError,
    Cancelled,
    Capabilities,
    ChatRequest,
    ChoiceFinished,
    Completed,
    CompletionRequest,
    ContentDelta,
    Context,
    Event,
    LoopFinished,
    ProgressNoted,
    Request,
    RequestLogged,
    ResearchRequest,
    ResultFound,
    SourceStored,
    StatusChanged,
)


class ToldBackend(Backend):
    """Does as it is told."""

    capabilities = Capabilities(
        accepts=frozenset({"completion", "chat", "research"}), citations=True
    )

    def run(self, request: Request, context: Context) -> Iterator[Event]:
        """Yield what the question asks for."""
        plan = _plan(request)
        _note(context, "began")
        try:
            yield from _findings()
            for number in range(plan.get("notes", 0)):
                context.sleep(plan.get("pause_s", 0))
                yield ProgressNoted(f"note {number}")
            yield from _updates(plan.get("updates", 0), context)
            for loop in range(plan.get("loops", 0)):
                yield LoopFinished(loop + 1)
            while (hold := plan.get("hold")) and not Path(hold).exists():
                context.sleep(0.01)
            if plan.get("fail"):
                raise BackendUnavailableError("As you wish")
            yield ContentDelta("Found it [1].")
            yield ChoiceFinished()
            yield Completed()
        except (Cancelled, GeneratorExit):
            _note(context, "stopped")
            raise


def _plan(request: Request) -> dict[str, Any]:
    match request:
        case ResearchRequest(query=text) | CompletionRequest(prompts=(text,)):
            pass
        case ChatRequest(messages=messages):
            text = messages[-1].text
        case _:
            raise AssertionError(request)
    return dict(json.loads(str(text)))


def _findings() -> Iterator[Event]:
    yield StatusChanged("searching")
    yield RequestLogged("https://a.example/", response_status=200, result_id="r1")
    yield ResultFound("r1", "A page", "https://a.example/", 0.5, 1)
    yield SourceStored("r1", raw="<p>A page</p>", markdown="A page")


def _updates(count: int, context: Context) -> Iterator[Event]:
    """Wait for so many updates and tell each."""
    told = 0
    while told < count:
        for update in context.updates():
            yield ProgressNoted(f"told {update.content}")
            told += 1
        context.sleep(0.01)


def _note(context: Context, what: str) -> None:
    with Path("journal").open("a") as journal:
        journal.write(f"{os.getpid()} {context.job_id} {what}\n")
