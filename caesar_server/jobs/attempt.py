"""One attempt at a job: claims it, runs its backend, numbers and stores the events."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from typing import Any

from caesar_server.contract.context import Forwarded
from caesar_server.contract.errors import ErrorInfo
from caesar_server.contract.events import Completed, Event, Failed, StatusChanged
from caesar_server.errors import UNEXPECTED
from caesar_server.jobs.calls import RegistryCaller, seed_of
from caesar_server.jobs.clock import SchedulingClock
from caesar_server.jobs.context import NoObserver, Observer, RunContext
from caesar_server.jobs.run import cancel_info, run_events
from caesar_server.registry import Registry
from caesar_server.store.base import FencedError, Job, Record, Store, UnknownJobError


class Attempt:
    """Everything comes from the job's id, the store and the registry, so it may run anywhere.

    :param observer: hears of the run; None: nobody does.
    :param forwarded: what may be passed on of the caller's HTTP request; only where it arrived.
    :param keep_until_end: store the events once, at the end, instead of as they come: for jobs that
        die with their client anyway.
    :raises UnknownJobError: if the job does not exist.
    :raises BackendLoadError: if its backend cannot be loaded here.
    """

    def __init__(
        self,
        job_id: str,
        *,
        store: Store,
        registry: Registry,
        clock: SchedulingClock,
        observer: Observer | None = None,
        forwarded: Forwarded | None = None,
        keep_until_end: bool = False,
    ) -> None:
        self.job: Job = store.claim(job_id)
        self._store = store
        self._clock = clock
        self._keep_until_end = keep_until_end
        self._unsaved: list[Record] = []
        self._last_seq = self.job.last_seq
        self._ended = False
        #: Why nothing may be written any more.
        self._lost: FencedError | UnknownJobError | None = None
        resolved = registry.resolve(self.job.model)
        self._backend = resolved.backend
        observer = observer or NoObserver()
        self.context = RunContext(
            job_id,
            attempt=self.job.attempt,
            clock=clock,
            timeout_s=self.job.timeout_s,
            seed=seed_of(self.job.request),
            restored=self.job.checkpoint,
            forwarded=forwarded,
            metrics=observer.metrics(resolved.name),
            metrics_of=observer.metrics,
            save_checkpoint=self._save_checkpoint,
            caller=RegistryCaller(registry),
            chain=(resolved.name,),
        )
        #: Follows the run; whoever made the attempt says when it is over.
        self.tally = observer.begin(self.job)

    def records(self) -> Generator[Record, None, None]:
        """Yield the job's records, the terminal one last; what must be stored is stored before.

        Closing the iterator early cancels the run and stores it as cancelled.

        :raises FencedError: if another attempt has begun: this one has stopped and writes nothing.
        :raises UnknownJobError: if the job was deleted meanwhile: likewise.
        """
        call_off = _nothing
        try:
            call_off = self._arm_deadline()
            if self._last_seq == 0:
                yield self._announced(StatusChanged("queued"))
            with closing(run_events(self._backend, self.job.request, self.context)) as events:
                for event in events:
                    yield self._announced(event)
        except GeneratorExit:
            self._abandon()
            raise
        except BaseException:
            self._abandon(UNEXPECTED)
            raise
        finally:
            call_off()

    def _announced(self, event: Event) -> Record:
        """Return the next record, stored unless that has time until the end."""
        record = self._numbered(event)
        self._ended = isinstance(event, (Completed, Failed))
        if self._ended or not self._keep_until_end:
            self._save()
        self.tally.add(record)
        return record

    def _numbered(self, event: Event) -> Record:
        self._last_seq += 1
        record = Record(self._last_seq, self._clock.time(), event)
        self._unsaved.append(record)
        return record

    def _save(self, checkpoint: Mapping[str, Any] | None = None) -> None:
        if self._lost is not None:
            raise self._lost
        records: Sequence[Record] = self._unsaved
        if not records and checkpoint is None:
            return
        try:
            self._store.append(self.job.id, self.job.attempt, records, checkpoint=checkpoint)
        except (FencedError, UnknownJobError) as error:
            self._lost = error
            self.context.cancel("fenced")
            self.context.logger.warning("the run stops, for the job is no longer its: %r", error)
            raise
        self._unsaved = []

    def _save_checkpoint(self, state: Mapping[str, Any]) -> None:
        try:
            self._save(state)
        except (FencedError, UnknownJobError):
            self.context.raise_if_cancelled()

    def _arm_deadline(self) -> Callable[[], None]:
        deadline = self.context.deadline
        if deadline is None:
            return _nothing
        return self._clock.call_at(deadline, lambda: self.context.cancel("deadline"))

    def _abandon(self, info: ErrorInfo | None = None) -> None:
        """Give a run that will not come to its end the terminal record that it lacks.

        :param info: how it ended; None: it was cancelled.
        """
        if self._ended or self._lost is not None:
            return
        self.context.cancel()
        # What the backend would still say is of no interest; how the job ended is.
        last = self._numbered(Failed(info or cancel_info(self.context.cancellation.reason)))
        if info is None:
            self.tally.add(last)  # otherwise whoever sees the error tells of it
        try:
            self._save()
        except (FencedError, UnknownJobError):
            return  # logged; whoever has the job now ends it
        except Exception:
            self.context.logger.exception("how the job ended could not be stored")


def _nothing() -> None:
    """Call nothing off."""
