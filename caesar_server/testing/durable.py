"""A durable backend whose work a test can hold up, break off and look at."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from caesar_server.contract import (
    Backend,
    Capabilities,
    ChoiceFinished,
    Completed,
    CompletionRequest,
    ContentDelta,
    Context,
    Event,
    InvalidRequestError,
    Request,
    Started,
    StatusChanged,
    split_words,
)
from caesar_server.testing.scripted import Step, perform

#: What steps a backend without any does.
_NO_STEPS: Mapping[Any, Step] = MappingProxyType({})


class DurableJournal:
    """What the runs of a durable backend did, over all attempts.  Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stages: list[tuple[int, str]] = []

    def note(self, attempt: int, stage: str) -> None:
        """Note that an attempt has done the work of a stage."""
        with self._lock:
            self._stages.append((attempt, stage))

    @property
    def stages(self) -> list[tuple[int, str]]:
        """(attempt, stage) in the order in which the work was done."""
        with self._lock:
            return list(self._stages)


class DurableBackend(Backend):
    """Works through stages, stores each result, then writes a text from what it stored.

    Each stage finds something that no second attempt would find again.  So the text of a run that
    went on elsewhere is that of the first attempt only if it comes from the checkpoint.

    Make a class of your own with :func:`durable_backend`.
    """

    capabilities = Capabilities(
        accepts=frozenset({"completion", "chat", "research"}), prompts=False, durable=True
    )
    #: Belongs to the class, so that a test can look at it although a registry makes the instance.
    journal: ClassVar[DurableJournal] = DurableJournal()
    stages: ClassVar[tuple[str, ...]] = ("reading",)
    before_stage: ClassVar[Mapping[str, Step]] = _NO_STEPS
    before_delta: ClassVar[Mapping[int, Step]] = _NO_STEPS

    def run(self, request: Request, context: Context) -> Iterator[Event]:
        if request.type not in self.capabilities.accepts or request.choices != 1:
            raise InvalidRequestError("takes one question in words", param=None)
        if isinstance(request, CompletionRequest) and not isinstance(request.prompts[0], str):
            raise InvalidRequestError("takes text, not token ids", param="prompt")
        restored = context.restored or {}
        found: list[str] = list(restored.get("found", ()))
        yield Started()
        for stage in self.stages[len(found) :]:
            yield StatusChanged("researching", stage)
            if stage in self.before_stage:
                yield from perform(self.before_stage[stage], context)
            context.raise_if_cancelled()
            found.append(f"{stage} {uuid.uuid4().hex}")
            self.journal.note(context.attempt, stage)
            context.checkpoint({"found": found})
        # The whole text is stored before any of it is told.
        text = restored.get("text") or f"Found by {', then '.join(found)}."
        context.checkpoint({"found": found, "text": text})
        for number, word in enumerate(split_words(text)):
            if number in self.before_delta:
                yield from perform(self.before_delta[number], context)
            context.raise_if_cancelled()
            yield ContentDelta(word)
        yield ChoiceFinished()
        yield Completed()


def durable_backend(
    stages: Iterable[str] = ("reading", "weighing"),
    *,
    before_stage: Mapping[str, Step] = _NO_STEPS,
    before_delta: Mapping[int, Step] = _NO_STEPS,
) -> type[DurableBackend]:
    """Return a durable backend class whose ``journal`` a test can look at.

    A run stores a checkpoint after each stage and one with the text; then it tells the text, three
    words and two more a stage.

    :param stages: names; a checkpoint follows each.
    :param before_stage: what to do before the work of a stage: a
        :class:`~caesar_server.testing.scripted.Gate` to wait at, an exception to raise, ...
    :param before_delta: likewise before the delta of this number, from 0.
    """
    return type(
        "DurableBackend",
        (DurableBackend,),
        {
            "__module__": __name__,
            "journal": DurableJournal(),
            "stages": tuple(stages),
            "before_stage": dict(before_stage),
            "before_delta": dict(before_delta),
        },
    )
