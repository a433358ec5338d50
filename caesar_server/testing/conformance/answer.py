"""One run of a backend as the suite saw it, and what its events add up to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from caesar_server.contract import (
    BackendError,
    Cancelled,
    ChoiceFinished,
    Completed,
    ContentDelta,
    ErrorInfo,
    Event,
    Failed,
    Request,
    UsageCounted,
)


@dataclass(frozen=True, slots=True)
class Answer:
    """The fold of a run's events.

    :param texts: (choice, channel) -> text, as sorted pairs.
    :param reasons: choice -> finish reason, as sorted pairs.
    """

    texts: tuple[tuple[tuple[int, str], str], ...]
    reasons: tuple[tuple[int, str], ...]
    prompt_tokens: int
    completion_tokens: int

    def text(self, choice: int = 0) -> str:
        """Return the text of a choice.

        Of the channel ``content`` or, for a backend that does without it, ``transformed``.
        """
        texts = dict(self.texts)
        return texts.get((choice, "content")) or texts.get((choice, "transformed"), "")

    def reason(self, choice: int = 0) -> str | None:
        """Return why a choice ended, or None if it did not."""
        return dict(self.reasons).get(choice)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a run stored.

    :param after_events: so many events had been yielded before it.
    :param state: as it comes back from JSON, or None if JSON cannot carry it.
    :param problem: how that differs from what was given, or nothing.
    """

    after_events: int
    state: Mapping[str, Any] | None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Run:
    """What one call of ``run()`` did.

    :param events: what it yielded; anything, if the backend is broken.
    :param raised: the exception that ended it, or None.
    :param end_s: seconds from the cancel, else from the start, to the end.
    :param checkpoints: what it stored, in order.
    :param refused_after: events that had been yielded when a checkpoint was refused, or None.
    :param waited_first: whether it slept before it had yielded an empty list, if it did that.
    """

    request: Request
    events: tuple[Event, ...]
    raised: BaseException | None
    end_s: float
    checkpoints: tuple[Checkpoint, ...] = ()
    refused_after: int | None = None
    waited_first: bool = False

    @property
    def completed(self) -> bool:
        """Whether it ended well."""
        return self.raised is None and any(isinstance(event, Completed) for event in self.events)

    @property
    def error(self) -> ErrorInfo | None:
        """The typed error that it ended with, raised or yielded."""
        if isinstance(self.raised, BackendError):
            return self.raised.info()
        told = self._told
        return told if isinstance(told, ErrorInfo) else None

    @property
    def _told(self) -> object:
        """What the last ``Failed`` holds, anything if the backend is broken; None without one."""
        failed = [event for event in self.events if isinstance(event, Failed)]
        return failed[-1].error if failed else None

    @property
    def end(self) -> str:
        """How it ended, in words."""
        if self.raised is not None:
            return f"run() raised {type(self.raised).__name__}: {self.raised}"
        if (error := self.error) is not None:
            return f"run() failed with {error.code}: {error.message}"
        if self._told is not None:
            return f"run() failed with {self._told!r}, which is no ErrorInfo"
        return "run() completed" if self.completed else "run() ended without a terminal event"

    @property
    def untyped(self) -> BaseException | None:
        """The exception that it ended with, if it is none that a backend may raise."""
        return None if isinstance(self.raised, (BackendError, Cancelled)) else self.raised

    @property
    def answer(self) -> Answer:
        """What the events add up to."""
        return fold(self.events)


def fold(events: tuple[Event, ...]) -> Answer:
    """Return what ``events`` add up to; pure."""
    texts: dict[tuple[int, str], str] = {}
    reasons: dict[int, str] = {}
    prompt_tokens = completion_tokens = 0
    for event in events:
        if isinstance(event, ContentDelta):
            key = (event.choice, event.channel)
            texts[key] = texts.get(key, "") + event.text
        elif isinstance(event, ChoiceFinished):
            reasons[event.choice] = event.reason
        elif isinstance(event, UsageCounted):
            prompt_tokens += event.prompt_tokens
            completion_tokens += event.completion_tokens
    return Answer(
        tuple(sorted(texts.items())),
        tuple(sorted(reasons.items())),
        prompt_tokens,
        completion_tokens,
    )
