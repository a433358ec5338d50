"""One configured model over its life: not loaded, loading, ready, failed, unloaded again."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from caesar_backend_local_llm.engine.failures import ModelLoadError
from caesar_backend_local_llm.gguf_files import UnusableFileError, read_model_file
from caesar_backend_local_llm.hosting.turns import Turns
from caesar_backend_local_llm.loaded import LoadedModel
from caesar_backend_local_llm.options import ModelPlan
from caesar_server.contract import BackendUnavailableError, Clock, Context, ProgressNoted

logger = logging.getLogger("caesar_server.backend.local_llm")

#: How often a request that waits for a model to be loaded says how far that is.  The first time is
#: after as long: what fails sooner is answered with a status of its own.
PROGRESS_EVERY_S = 1.0
#: A model that could not be loaded is not tried again sooner.
RETRY_AFTER_S = 10.0

State = Literal["not loaded", "loading", "ready", "failed"]
#: Loads a model; see :class:`~caesar_backend_local_llm.loaded.LoadedModel`.
Loader = Callable[[ModelPlan, Callable[[float], bool]], LoadedModel]


@dataclass(frozen=True, slots=True)
class Ready:
    """A loaded model and its queue."""

    model: LoadedModel
    turns: Turns


@dataclass(frozen=True, slots=True)
class _Failure:
    """Why a model could not be loaded.

    :param sentence: for the operator.
    :param told: for callers, without the folders of this machine.
    """

    sentence: str
    told: str
    at: float


class ModelHost:
    """Loads a model when it is needed and unloads it when it is not.  Safe for threads.

    It is loaded in a thread of its own: a request that goes away does not end the loading that
    others wait for.

    :param clock: the time of idleness and of failures.
    """

    def __init__(self, plan: ModelPlan, clock: Clock, loader: Loader = LoadedModel) -> None:
        self.plan = plan
        self._clock = clock
        self._loader = loader
        self._lock = threading.Lock()
        self._ready: Ready | None = None
        self._failure: _Failure | None = None
        self._share = 0.0
        self._users = 0
        self._idle_since = clock.monotonic()
        self._closed = False
        self._loading: threading.Thread | None = None
        self._keeper: threading.Thread | None = None
        self._waiters: set[threading.Event] = set()
        self._idle = threading.Event()

    @property
    def state(self) -> State:
        """What it is doing."""
        with self._lock:
            if self._ready is not None:
                return "ready"
            if self._loading is not None:
                return "loading"
            return "not loaded" if self._failure is None else "failed"

    def describe(self) -> str:
        """Return its state in a clause, for the operator."""
        with self._lock:
            ready, failure, loading = self._ready, self._failure, self._loading
        if ready is not None:
            turns = ready.turns
            total = len(ready.model.instances)
            return f"loaded, {turns.busy} of {total} instances at work, {turns.waiting} waiting"
        if loading is not None:
            return f"loading, {self._share:.0%}"
        return "not loaded" if failure is None else f"not loaded: {failure.sentence}"

    def look(self) -> None:
        """Note what is wrong with the file, before anybody asks for the model; loads nothing."""
        try:
            read_model_file(self.plan.path)
        except UnusableFileError as error:
            logger.error("the model %s cannot be loaded: %s", self.plan.name, error)
            with self._lock:
                at = self._clock.monotonic() - RETRY_AFTER_S  # it may be put right by then
                self._failure = self._failed(str(error), at)

    def start_loading(self) -> None:
        """Begin to load it, if nobody has yet."""
        with self._lock:
            if self._ready is None and self._loading is None and not self._closed:
                self._start()

    def close(self) -> None:
        """Unload it, and wait for its threads; no request may be under way."""
        with self._lock:
            self._closed = True
            threads = [thread for thread in (self._loading, self._keeper) if thread is not None]
        self._idle.set()
        for thread in threads:
            thread.join()
        with self._lock:
            ready, self._ready = self._ready, None
        if ready is not None:
            ready.model.close()

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Keep the model loaded during the block, once it is."""
        with self._lock:
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                self._idle_since = self._clock.monotonic()
            self._idle.set()

    def ready(self, context: Context) -> Generator[ProgressNoted, None, Ready]:
        """Return the model, loaded; while that takes long, yield how far it is.

        Only inside of :meth:`in_use`.

        :raises BackendUnavailableError: if it cannot be loaded, with the reason.
        :raises Cancelled: if the run is cancelled meanwhile.
        """
        changed = threading.Event()
        waited = False
        with context.on_cancel(changed.set):
            while (ready := self._poll(changed, waited=waited)) is None:
                waited = True
                context.raise_if_cancelled()  # the poll may have cleared what told it
                context.clock.wait(changed, PROGRESS_EVERY_S)
                context.raise_if_cancelled()
                if not changed.is_set():
                    yield ProgressNoted(f"Loading the model {self.plan.name}: {self._share:.0%}")
        return ready

    def _poll(self, changed: threading.Event, *, waited: bool) -> Ready | None:
        """Return the model if it is there; else see to it that it is being loaded."""
        with self._lock:
            self._waiters.discard(changed)
            if self._ready is not None:
                return self._ready
            if self._closed:
                raise BackendUnavailableError("The server is shutting down")
            if self._loading is None:
                if self._failure is not None and (waited or self._is_fresh(self._failure)):
                    raise BackendUnavailableError(
                        f"The model {self.plan.name!r} cannot be loaded: {self._failure.told}",
                        code="model_not_loaded",
                    )
                self._start()
            changed.clear()
            self._waiters.add(changed)
            return None

    def _is_fresh(self, failure: _Failure) -> bool:
        return self._clock.monotonic() < failure.at + RETRY_AFTER_S

    def _start(self) -> None:
        self._failure, self._share = None, 0.0
        self._loading = self._thread("load", self._load)
        self._loading.start()

    def _thread(self, what: str, work: Callable[[], None]) -> threading.Thread:
        return threading.Thread(target=work, name=f"caesar-local-llm-{what}-{self.plan.name}")

    def _load(self) -> None:
        began = time.monotonic()
        ready: Ready | None = None
        failure: _Failure | None = None
        try:
            model = self._loader(self.plan, self._progress)
            plan = self.plan
            turns = Turns(plan.name, model.instances, queue=plan.queue, wait_s=plan.wait_s)
            ready = Ready(model, turns)
            logger.info("the model %s is loaded after %.2f s", plan.name, time.monotonic() - began)
        except ModelLoadError as error:
            failure = self._failed(error.sentence, self._clock.monotonic())
            logger.error("the model %s cannot be loaded: %s", self.plan.name, error.sentence)
        except Exception:
            failure = self._failed("the log tells why", self._clock.monotonic())
            logger.exception("the model %s cannot be loaded", self.plan.name)
        finally:
            with self._lock:
                self._ready, self._failure, self._loading = ready, failure, None
                self._idle_since = self._clock.monotonic()
                waiters, self._waiters = self._waiters, set()
                if ready is not None and self.plan.unload_after_s > 0 and not self._closed:
                    self._keeper = self._thread("idle", self._unload_when_idle)
                    self._keeper.start()
            for waiter in waiters:
                waiter.set()

    def _failed(self, sentence: str, at: float) -> _Failure:
        folder = str(Path(self.plan.path).expanduser().absolute().parent)
        return _Failure(sentence, sentence.replace(f"{folder}{os.sep}", ""), at)

    def _progress(self, share: float) -> bool:
        self._share = share
        return not self._closed

    def _unload_when_idle(self) -> None:
        """Unload the model once nobody has used it for long enough, or end when it is closed."""
        while True:
            self._idle.clear()
            with self._lock:
                if self._closed:
                    return
                left_s = self._idle_since + self.plan.unload_after_s - self._clock.monotonic()
                if not self._users and left_s <= 0:
                    ready, self._ready, self._keeper = self._ready, None, None
                    break
                users = self._users
            # with users the end of their use wakes this; the time is not to be watched before
            self._clock.wait(self._idle, 3600.0 if users else left_s)
        if ready is not None:
            ready.model.close()
            logger.info("the model %s is unloaded: nobody used it", self.plan.name)
