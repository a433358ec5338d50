"""The one thread of a process that writes: many steps in one transaction."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from caesar_server.store.base import FencedError, StoreError, UnknownJobError
from caesar_server.store.owned.base import (
    FileQuotaExceededError,
    TooManyCollectionsError,
    UnknownOwnedError,
)
from caesar_server.store.quotas import QuotaExceededError
from caesar_server.store.sql.database import Database, Kind
from caesar_server.store.unreadable import StoreAwayError
from caesar_server.store.updates import JobEndedError

logger = logging.getLogger(__name__)

#: Steps in one transaction at most: others wait for it to end.
_STEPS_AT_ONCE = 256
#: The part of the patience that steps have for whose end a client waits that can ask again.
ASKED_PART = 1 / 3
#: Pauses between tries to reach a database again.
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0
#: Jobs of which is remembered that they could not be added; the oldest are forgotten first.
_MOST_UNMADE = 1000
#: What a step says that cannot be done; anything else is an error of the database.
_REFUSALS = (
    FencedError,
    FileQuotaExceededError,
    JobEndedError,
    QuotaExceededError,
    TooManyCollectionsError,
    UnknownJobError,
    UnknownOwnedError,
    ValueError,
)


@dataclass(slots=True, eq=False)
class Step:
    """Something to write.

    :param run: does it, given the connection and whether an earlier try may have been committed.
        Raises one of the store's own errors, or ValueError, before it has written anything.
    :param undo: what to do later if it is not known whether it was done, and its caller was told
        that it was not.
    :param tells: those who watch are to be told.
    :param account: what this account has is counted first, so no other process may add to it
        before the transaction is over; None: nothing is counted.
    :param asked: a client waits for it.
    :param unwatched: the id of the job that it adds, if nobody waits for that: should it fail, the
        next step that misses the job is told so.
    """

    run: Callable[[Connection, bool], Any]
    undo: Callable[[Connection], None] | None = None
    tells: bool = True
    account: str | None = None
    asked: bool = False
    unwatched: str | None = None
    done: Future[Any] = field(default_factory=Future)
    begun_at: float = field(default_factory=time.monotonic)
    #: Whether an earlier try may have been committed.
    again: bool = field(default=False, init=False)


class Writer:
    """Takes all steps that wait and commits them together.

    Its thread starts with the first step.  A step that raises does not hinder the others.  An error
    of the database undoes the whole transaction; its steps are then tried one by one, so that one
    which the database refuses harms no other.  While the connection is lost, or another process
    has the database, they are tried again, together with those that come meanwhile.

    :param database: what to write to.
    :param retry_s: so long after it was handed in a step fails; without a connection one that a
        client waits for after :data:`ASKED_PART` of it.
    :param announce: called after each commit that watchers are to be told of.
    :param token: by which other processes know these commits.
    """

    def __init__(
        self, database: Database, *, retry_s: float, announce: Callable[[], None], token: str
    ) -> None:
        self._database = database
        self._retry_s = retry_s
        self._announce = announce
        self._token = token
        self._queue: SimpleQueue[Step | None] = SimpleQueue()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        self._engine: Engine | None = None
        self._connection: Connection | None = None
        #: What must be undone because nobody knows whether it was done.
        self._owed: list[Callable[[Connection], None]] = []
        #: Whether no more steps come.
        self._ended = False
        #: Why jobs could not be added, by their ids, where nobody was told.
        self._unmade: dict[str, StoreError] = {}

    def begin(self, step: Step) -> Future[Any]:
        """Hand a step in; steps are done in the order in which they came.

        :raises StoreError: after :meth:`close`.
        """
        with self._starting:
            if self._closing.is_set():
                raise StoreError("store: it is closed, for the process is about to end")
            if self._thread is None:
                thread = threading.Thread(target=self._work, name="caesar-store", daemon=True)
                thread.start()
                self._thread = thread  # not before: a start may fail
            self._queue.put(step)
        return step.done

    def close(self) -> None:
        """Do what was handed in, then end the thread."""
        with self._starting:
            self._closing.set()
            thread, self._thread = self._thread, None
            if thread is not None:
                self._queue.put(None)
        if thread is not None:
            thread.join()

    def _work(self) -> None:
        while not self._ended:
            self._write(self._taken([], wait=True))
        self._drop()

    def _taken(self, steps: list[Step], *, wait: bool) -> list[Step]:
        """Return ``steps`` and those that were handed in since.

        :param wait: for the first one of them; no more are taken then than are done at once.
        """
        with contextlib.suppress(Empty):
            while not self._ended and not (wait and len(steps) >= _STEPS_AT_ONCE):
                step = self._queue.get(wait and not steps)
                if step is None:
                    self._ended = True
                else:
                    steps.append(step)
        return steps

    def _write(self, steps: list[Step], *, alone: bool = False) -> None:
        """Do the steps, or tell each of them why not.

        :param alone: none may be added, for others come before those that are handed in.
        """
        pause_s = _FIRST_PAUSE_S
        while steps:
            tried, later = steps[:_STEPS_AT_ONCE], steps[_STEPS_AT_ONCE:]
            try:
                self._transact(tried)
                steps = later
                continue
            except Exception as error:  # noqa: BLE001 - told to whoever waits
                self._drop()
                kind = self._kind_of(error, tried)
                if kind == "final":
                    self._write_one_by_one(tried, error)
                    steps = later
                    continue
                steps = self._without_impatient(steps, kind, error, pause_s)
                if steps and pause_s == _FIRST_PAUSE_S:
                    logger.warning("%s; trying again", self._database.sentence(error))
            if steps:
                self._closing.wait(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                if not alone:
                    # all of them, however many: those who are to wait for less hear of it in time
                    steps = self._taken(steps, wait=False)

    def _write_one_by_one(self, steps: Sequence[Step], why: Exception) -> None:
        """Do each step by itself, for one of them cannot be done.

        :param why: it cannot.
        """
        if len(steps) == 1:
            return self._fail(steps, why)
        for step in steps:
            try:
                self._transact([step])
            except Exception as error:  # noqa: BLE001 - told to whoever waits
                self._drop()
                if self._kind_of(error, [step]) == "final":
                    self._fail([step], error)
                else:
                    self._write([step], alone=True)
        return None

    def _kind_of(self, error: Exception, steps: Sequence[Step]) -> Kind:
        """Return what an error means, and note what may be committed although it came."""
        kind = self._database.kind_of(error)
        if kind == "lost":
            for step in steps:
                step.again = True
        return kind

    def _without_impatient(
        self, steps: Sequence[Step], kind: Kind, error: Exception, pause_s: float
    ) -> list[Step]:
        """Return the steps that are worth another try after a pause; the others fail."""
        then = time.monotonic() + pause_s
        if kind == "final" or self._closing.is_set():
            left = []
        else:
            left = [step for step in steps if then < step.begun_at + self._patience_s(step, kind)]
        self._fail([step for step in steps if step not in left], error)
        return left

    def _patience_s(self, step: Step, kind: Kind) -> float:
        return self._retry_s * ASKED_PART if step.asked and kind == "lost" else self._retry_s

    def _transact(self, steps: Sequence[Step]) -> None:
        """Do the steps in one transaction, then tell of them."""
        results: list[Any] = []
        connection = self._connect()
        counted = {step.account for step in steps if step.account is not None}
        with connection.begin():
            if counted:
                # before any row is locked, and all at once: so no two wait for each other
                self._database.lock_accounts(connection, counted)
            for undo in self._owed:
                undo(connection)
            for step in steps:
                results.append(_outcome(step, connection))
            tells = any(step.tells for step in steps)
            if tells:
                self._database.announce(connection, self._token)
        self._owed.clear()
        for step, (result, error) in zip(steps, results, strict=True):
            if error is None:
                step.done.set_result(result)
            else:
                step.done.set_exception(self._cause(error))
        if tells:
            self._announce()

    def _cause(self, error: Exception) -> Exception:
        """Return why a step cannot be done: a job that is not there may never have been added."""
        if isinstance(error, UnknownJobError):
            return self._unmade.pop(str(error), error)
        return error

    def _connect(self) -> Connection:
        if self._engine is None:
            self._engine = self._database.writing_engine()
        if self._connection is None:
            self._connection = self._engine.connect()
        return self._connection

    def _drop(self) -> None:
        """Let go of a connection that may be of no use any more."""
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except Exception:
                logger.debug("a connection could not be closed", exc_info=True)

    def _fail(self, steps: Sequence[Step], error: Exception) -> None:
        if not steps:
            return
        sentence = self._database.sentence(error)
        # what a driver says is in the sentence; anything else is a mistake of this server's
        logger.error("%s", sentence, exc_info=None if isinstance(error, DBAPIError) else error)
        self._owed += [step.undo for step in steps if step.again and step.undo is not None]
        kind = StoreError if self._database.kind_of(error) == "final" else StoreAwayError
        for step in steps:
            failure = kind(sentence)
            failure.__cause__ = error
            step.done.set_exception(failure)
            if step.unwatched is not None:
                self._unmade[step.unwatched] = failure
        while len(self._unmade) > _MOST_UNMADE:
            del self._unmade[next(iter(self._unmade))]


def _outcome(step: Step, connection: Connection) -> tuple[Any, Exception | None]:
    try:
        return step.run(connection, step.again), None
    except _REFUSALS as error:
        return None, error
