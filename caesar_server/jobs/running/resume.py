"""What a run that begins again repeats, so that nobody hears it twice."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from caesar_server.contract.events import (
    ChoiceFinished,
    Completed,
    ContentDelta,
    Event,
    LogprobToken,
    LoopFinished,
    ResultFound,
    SourceStored,
    Started,
)
from caesar_server.jobs.running.invariant import ContractBreach
from caesar_server.store.base import Job, Record


class _Told:
    """The stored text of one choice and channel, and how much of it has been repeated."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.text = ""
        self.tokens = 0
        self.repeated = 0

    def close(self) -> None:
        """Make one text of the parts."""
        self.text = "".join(self.parts)
        self.parts = []


class Resumption:
    """Drops from the events of an attempt what earlier attempts have stored.  Not safe for threads.

    A durable backend begins again at its checkpoint and tells its whole text again.  So the text,
    what is known by a name of its own (a result, a source, a loop, the end of a choice) and
    ``Started`` may have been stored at any time.  Everything else may have been stored after the
    checkpoint, or before it by an earlier attempt than the one that made it and had not come as
    far; each such event is dropped once.

    :param job: as it was claimed.
    :param records: all that is stored of it.
    """

    def __init__(self, job: Job, records: Iterable[Record]) -> None:
        self._started = False
        self._finished: set[int] = set()
        self._loops: set[int] = set()
        self._results: dict[str, ResultFound] = {}
        #: What results were before; each is dropped once.
        self._superseded: list[ResultFound] = []
        #: A hash each: the texts themselves may be large.
        self._sources: set[int] = set()
        self._told: defaultdict[tuple[int, str], _Told] = defaultdict(_Told)
        #: Further events that the run may tell again, in their order.
        self._others: list[Record] = []
        unrepeated = frozenset(job.unrepeated)
        for record in records:
            beyond = record.seq > job.checkpoint_seq or record.seq in unrepeated
            self._note(record, may_come=beyond and record.seq > 1)  # the first is the server's own
        for told in self._told.values():
            told.close()

    @property
    def unrepeated(self) -> tuple[int, ...]:
        """What a checkpoint that is made now must say of earlier attempts' records."""
        # copied in one step: a backend may make one in another thread
        return tuple(record.seq for record in tuple(self._others))

    def _note(self, record: Record, *, may_come: bool) -> None:
        event = record.event
        if isinstance(event, ContentDelta):
            told = self._told[event.choice, event.channel]
            told.parts.append(event.text)
            told.tokens += len(event.logprobs or ())
        elif isinstance(event, Started):
            self._started = True
        elif isinstance(event, ChoiceFinished):
            self._finished.add(event.choice)
        elif isinstance(event, LoopFinished):
            self._loops.add(event.loop)
        elif isinstance(event, ResultFound):
            if event.id in self._results:
                self._superseded.append(self._results[event.id])
            self._results[event.id] = event
        elif isinstance(event, SourceStored):
            self._sources.add(hash(event))
        elif may_come:
            self._others.append(record)

    def fresh(self, event: Event) -> Event | None:
        """Return what of ``event`` is new, or None.

        :raises ContractBreach: if a text is not the one that was told before.
        """
        if isinstance(event, ContentDelta):
            return self._fresh_text(event)
        if self._is_known(event):
            return None
        if isinstance(event, ResultFound):
            self._results[event.id] = event
        elif isinstance(event, Completed):
            self._check_repeated()
        elif self._is_repeated(event):
            return None
        return event

    def _is_known(self, event: Event) -> bool:
        if isinstance(event, Started):
            return self._started
        if isinstance(event, ChoiceFinished):
            return event.choice in self._finished
        if isinstance(event, LoopFinished):
            return event.loop in self._loops
        if isinstance(event, ResultFound):
            return self._results.get(event.id) == event or self._was_superseded(event)
        if isinstance(event, SourceStored):
            return hash(event) in self._sources
        return False

    def _was_superseded(self, event: ResultFound) -> bool:
        if event not in self._superseded:
            return False
        self._superseded.remove(event)
        return True

    def _is_repeated(self, event: Event) -> bool:
        for place, record in enumerate(self._others):
            if record.event == event:
                del self._others[place]
                return True
        return False

    def _fresh_text(self, event: ContentDelta) -> ContentDelta | None:
        told = self._told.get((event.choice, event.channel))
        if told is None:
            return event
        begin = told.repeated
        again = told.text[begin : begin + len(event.text)]
        if not event.text.startswith(again):
            raise ContractBreach(
                f"after a takeover the text of choice {event.choice} ({event.channel}) is another "
                f"one from character {begin} on; repeat what the checkpoint holds"
            )
        told.repeated += len(again)
        text, logprobs = event.text[len(again) :], self._fresh_tokens(told, event.logprobs)
        if len(again) == 0 and logprobs == event.logprobs:
            return event
        return replace(event, text=text, logprobs=logprobs) if text or logprobs else None

    def _fresh_tokens(
        self, told: _Told, tokens: tuple[LogprobToken, ...] | None
    ) -> tuple[LogprobToken, ...] | None:
        if tokens is None:
            return None
        dropped = min(told.tokens, len(tokens))
        told.tokens -= dropped
        return tokens[dropped:]

    def _check_repeated(self) -> None:
        for (choice, channel), told in self._told.items():
            if told.repeated < len(told.text):
                raise ContractBreach(
                    f"after a takeover only {told.repeated} characters of choice {choice} "
                    f"({channel}) came, of {len(told.text)} that were told before; repeat all"
                )
