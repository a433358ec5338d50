"""One attempt at a job: runs its backend, numbers the events and has them stored."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any

from caesar_server.contract.backend import Backend
from caesar_server.contract.context import Forwarded, Update
from caesar_server.contract.errors import ErrorInfo
from caesar_server.contract.events import Completed, Event, Failed, StatusChanged
from caesar_server.errors import DEADLINE, ModelNotFoundError
from caesar_server.jobs.calls import RegistryCaller, seed_of
from caesar_server.jobs.cancellation import cancel_apart
from caesar_server.jobs.clock import SchedulingClock
from caesar_server.jobs.context import NoObserver, Observer, RunContext
from caesar_server.jobs.ending import end_after, end_job
from caesar_server.jobs.files import Files, Lent
from caesar_server.jobs.files.named import collection_ids_of, file_ids_of
from caesar_server.jobs.running.recording import BatchRecorder, KeptRecorder, Recorder
from caesar_server.jobs.running.resume import Resumption
from caesar_server.jobs.running.run import cancel_info, run_batches
from caesar_server.jobs.running.updates import UpdateReader
from caesar_server.registry import Registry
from caesar_server.store.base import FencedError, Job, Record, Store, StoreError, UnknownJobError
from caesar_server.store.checkpoints import Checkpoint
from caesar_server.store.unreadable import StoreAwayError

#: So much longer than it says itself may a run need to end after its deadline, on a busy machine.
_PATIENCE_S = 1.0


class HandedBackError(Exception):
    """The run stopped before its end so that another process goes on with the job."""


class Attempt:
    """Everything comes from the claimed job, the store and the registry, so it may run anywhere.

    A job that is not detached is stored at its end; the records of a detached one soon after they
    came, since others follow it.

    :param job: as it was claimed.
    :param backend: what the job's model name leads to, if that is known; None looks for it.
    :param max_answer_chars: how long its text may be; None: any length.
    :param files: lends uploaded files to the run; None: there are none.
    :param observer: hears of the run; None: nobody does.
    :param forwarded: what may be passed on of the caller's HTTP request; only where it arrived.
    :param on_stored: told each time that records of a detached job were stored, with whether the
        last one was among them; in the thread that stores, so it must not use the store.
    :raises BackendLoadError: if its backend cannot be loaded here.
    """

    def __init__(
        self,
        job: Job,
        *,
        store: Store,
        registry: Registry,
        clock: SchedulingClock,
        backend: Backend | None = None,
        max_answer_chars: int | None = None,
        files: Files | None = None,
        observer: Observer | None = None,
        forwarded: Forwarded | None = None,
        on_stored: Callable[[bool], None] | None = None,
    ) -> None:
        self.job = job
        self._store = store
        self._clock = clock
        self._detached = job.detached
        self._last_seq = job.last_seq
        #: The number of the last record that :meth:`batches` has yielded, once that is over.
        self.told_seq = job.last_seq
        self._ended = False
        self._over = False
        self._told_end = False
        self._settled = False
        #: What kept the run from its end.
        self._failure: BaseException | None = None
        #: What it runs.
        self.backend = _backend_of(job, registry) if backend is None else backend
        observer = observer or NoObserver()
        self._lent = None if files is None else _lent(files, job)
        self.context = RunContext(
            job.id,
            attempt=job.attempt,
            clock=clock,
            timeout_s=job.timeout_s,
            max_answer_chars=max_answer_chars,
            seed=seed_of(job.request),
            restored=job.checkpoint,
            forwarded=forwarded,
            metrics=observer.metrics(job.backend),
            metrics_of=observer.metrics,
            files=None if self._lent is None else self._lent.files,
            collections=None if self._lent is None else self._lent.collections,
            updates=self._new_updates,
            save_checkpoint=self._save_checkpoint,
            caller=RegistryCaller(registry),
            chain=(job.backend,),
        )
        self._updates: UpdateReader | None = None
        self._recorder = self._make_recorder(on_stored or _tell_nobody)
        #: What an earlier attempt told; None if there is nothing, and until the run begins.
        self._resumption: Resumption | None = None
        #: Follows the run; whoever made the attempt says when it is over.
        self.tally = observer.begin(job)

    def batches(
        self,
        before_last: Callable[[], None] | None = None,
        on_deaf: Callable[[Record], None] | None = None,
    ) -> Generator[Sequence[Record], None, None]:
        """Yield the job's records, those together that came together; none where it is to wait.

        The terminal one comes last, by itself and once it is stored.

        Closing the iterator early cancels the run and stores it as cancelled.

        :param before_last: called once the terminal record is stored, just before it is yielded.
        :param on_deaf: called if the run goes on long after its deadline, with what its client may
            be told meanwhile; from another thread.  The job's end is stored when the run is over.
        :raises FencedError: if another attempt has begun: this one has stopped and writes nothing.
        :raises UnknownJobError: if the job was deleted meanwhile: likewise.
        :raises HandedBackError: if the run was cancelled for a ``handover``, or for a ``shutdown``
            before it told anything: what it told is stored, and the job is free for others.
        """
        call_off = _nothing
        records: Sequence[Record] = ()
        announced = self._announced  # looked up once: the loop turns for each token
        try:
            call_off = self._arm_deadline(on_deaf)
            if self._last_seq == 0:
                records = announced((StatusChanged("queued"),))
                yield records
            with closing(
                run_batches(self.backend, self.job.request, self.context, self._fresh())
            ) as batches:
                for batch in batches:
                    if not batch:
                        yield ()
                        continue
                    kind = type(batch[-1])
                    if kind is Completed or kind is Failed:
                        last = self._announced_last(batch[-1])
                        if before_last is not None:
                            before_last()
                        records = (last,)
                    else:
                        records = announced(batch)
                    yield records
        except GeneratorExit:
            self._abandon()
            raise
        except HandedBackError:
            raise
        except BaseException as error:
            self._failure = error
            if isinstance(error, StoreError) and self._detached and self.job.durable:
                # not its end: settle() gives it back, once the store is there
                self._ended = True
                self.context.cancel()
            else:
                self._abandon(end_after(error))
            raise
        finally:
            self._over = True
            call_off()
            self.context.end()
            if records:
                self.told_seq = records[-1].seq
            if self._lent is not None:
                self._lent.close()

    @property
    def unsettled(self) -> bool:
        """Whether the job waits for :meth:`settle`: how it ended could not be stored."""
        return not self._settled and self._recorder.lost is None

    def settle(self) -> None:
        """Store how the job ended, or give it back to be begun again; once the run is over.

        :raises Exception: what the store raises; this may be called again then.
        """
        job = self.job
        try:
            if not job.detached:
                self._recorder.save()
            elif job.durable:
                # That it was away is nobody's fault.  What the store refuses counts, or such a job
                # would be begun for ever.
                away = isinstance(self._failure, StoreAwayError)
                self._store.release(job.id, job.attempt, forgiven=away)
            else:
                stored = self._store.job(job.id).changed(attempt=job.attempt)
                end_job(self._store, stored, end_after(self._failure), self._clock.time())
        except (FencedError, UnknownJobError) as error:
            _note_lost(self.context, error)
        self._settled = True

    def _make_recorder(self, on_stored: Callable[[bool], None]) -> Recorder:
        if not self.job.detached:
            return KeptRecorder(self._store, self.job, partial(_stop, self.context))
        return BatchRecorder(
            self._store,
            self.job,
            self._clock,
            on_stored=on_stored,
            on_failed=partial(_stop_apart, self.context),
        )

    def _fresh(self) -> Callable[[Event], Event | None] | None:
        """Return what drops the events that an earlier attempt has stored, if there are any."""
        job = self.job
        # the first is the server's own
        if job.last_seq <= 1:
            return None
        self._resumption = Resumption(job, self._store.records(job.id))
        return self._resumption.fresh

    def _announced(self, events: Sequence[Event]) -> Sequence[Record]:
        """Return the next records, stored unless that has time."""
        now, first = self._clock.time(), self._last_seq + 1
        records = [Record(seq, now, event) for seq, event in enumerate(events, first)]
        self._last_seq += len(records)
        self.tally.add(records)
        self._recorder.add(records)
        return records

    def _announced_last(self, event: Event) -> Record:
        """Return the terminal record once all of them are stored."""
        self._hand_back(event)
        record = self._numbered(event)
        self._ended = True
        if self._detached:  # once it is stored others see it
            self._tell(record)
            self._recorder.end(record)
        else:
            self._recorder.end(record)
            self._tell(record)
        self._settled = True
        return record

    def _numbered(self, event: Event) -> Record:
        self._last_seq += 1
        return Record(self._last_seq, self._clock.time(), event)

    def _hand_back(self, event: Event) -> None:
        """Give the job back if the run failed for no other reason than that it was told to stop.

        :raises HandedBackError: in that case.
        """
        if not isinstance(event, Failed) or not self._goes_on_elsewhere():
            return
        self._ended = True  # as far as this attempt is concerned
        self._recorder.save()
        self._store.release(self.job.id, self.job.attempt)
        self._settled = True
        raise HandedBackError

    def _goes_on_elsewhere(self) -> bool:
        """Return whether the run was told to stop, and another process can go on with its job.

        Who told nothing yet is begun anew there, unless it got what only this process has.
        """
        reason = self.context.cancellation.reason
        told_nothing = self._detached and self._last_seq <= 1
        has_own = self.context.forwarded != Forwarded()
        return reason == "handover" or (reason == "shutdown" and told_nothing and not has_own)

    def _new_updates(self) -> Sequence[Update]:
        """Return what was said to the job since the last call; most backends never ask."""
        if self._updates is None:
            self._updates = UpdateReader(self._store, self.job.id, self._lent)
        return self._updates.new()

    def _save_checkpoint(self, state: Mapping[str, Any]) -> None:
        # What is no JSON is the backend's fault, and found before anything is stored.
        state = json.loads(json.dumps(state, allow_nan=False))
        unrepeated = () if self._resumption is None else self._resumption.unrepeated
        try:
            self._recorder.save(Checkpoint(state, unrepeated))
        except (FencedError, UnknownJobError):
            self._stop_for_good()

    def _stop_for_good(self) -> None:
        self.context.cancel("fenced")
        self.context.raise_if_cancelled()

    def _arm_deadline(self, on_deaf: Callable[[Record], None] | None) -> Callable[[], None]:
        """Cancel the run at its deadline, and tell of one that does not heed that."""
        deadline = self.context.deadline
        if deadline is None:
            return _nothing
        call_off = _nothing
        deaf_at = deadline + self.backend.capabilities.cancel_deadline_s + _PATIENCE_S

        def cancel() -> None:
            nonlocal call_off
            try:
                # before the cancel, in which a backend may hang as well
                call_off = self._clock.call_at(deaf_at, partial(self._note_deaf, on_deaf))
            finally:
                self.context.cancel("deadline")

        call_off = self._clock.call_at(deadline, cancel)
        return lambda: call_off()

    def _note_deaf(self, on_deaf: Callable[[Record], None] | None) -> None:
        if self._over or self._ended:
            return  # or it has ended, and the store takes its time
        self.context.logger.error(
            "%s does not end: its deadline has passed, and it heeds no cancel; the run keeps its "
            "thread and its place until it ends by itself",
            type(self.backend).__name__,
        )
        record = Record(self._last_seq + 1, self._clock.time(), Failed(DEADLINE))
        self._tell(record)
        if on_deaf is not None:
            on_deaf(record)

    def _tell(self, last: Record) -> None:
        """Tell the tally how the run ended, unless it was told that it does not end."""
        if not self._told_end:
            self._told_end = True
            self.tally.add((last,))

    def _abandon(self, info: ErrorInfo | None = None) -> None:
        """Give a run that will not come to its end the terminal record that it lacks.

        :param info: how it ended; None: it was cancelled.
        """
        if self._ended or self._recorder.lost is not None:
            return
        self._ended = True
        self.context.cancel()
        # What the backend would still say is of no interest; how the job ended is.
        last = self._numbered(Failed(info or cancel_info(self.context.cancellation.reason)))
        if info is None or self._detached:
            self._tell(last)  # otherwise whoever sees the error tells of it
        try:
            self._recorder.end(last)
            self._settled = True
        except (FencedError, UnknownJobError):
            return  # logged; whoever has the job now ends it
        except Exception:
            self.context.logger.exception("how the job ended could not be stored")


def _backend_of(job: Job, registry: Registry) -> Backend:
    """Return the job's backend, with the options of the route that its model name takes here.

    :raises BackendLoadError: if it cannot be loaded here.
    """
    try:
        resolved = registry.resolve(job.model)
    except ModelNotFoundError:
        return registry.load(job.backend)
    # the process that took the request in may have other routes
    return resolved.backend if resolved.name == job.backend else registry.load(job.backend)


def _lent(files: Files, job: Job) -> Lent | None:
    """Return what a run may read; None for one that can never name a file."""
    if job.detached or file_ids_of(job.request) or collection_ids_of(job.request):
        return files.lent(job.account, job.request)
    return None


def _stop(context: RunContext, error: BaseException) -> None:
    """Cancel a run that can write nothing any more."""
    _note_lost(context, error)
    context.cancel("fenced")


def _stop_apart(context: RunContext, error: BaseException) -> None:
    """Do the same from a thread that must not wait for what a backend does on a cancel."""
    _note_lost(context, error)
    cancel_apart(context.cancellation, "fenced")


def _note_lost(context: RunContext, error: BaseException) -> None:
    if isinstance(error, (FencedError, UnknownJobError)):
        context.logger.warning("the run stops, for the job is no longer its: %r", error)
    else:
        context.logger.error("the run stops, for it cannot be stored", exc_info=error)


def _nothing() -> None:
    """Call nothing off."""


def _tell_nobody(last: bool) -> None:
    """Let nobody know that something was stored."""
