"""The name under which a process runs jobs, and the thread that keeps it valid."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Collection

from caesar_server.store.base import Store, StoreError

logger = logging.getLogger(__name__)

#: How often the thread looks what else there is to do, in seconds.
_BEAT_S = 1.0
#: Jobs of a process that is gone are noticed within its lease and this.
_RENEWALS = 3


class Lease:
    """Says in the store that this process lives.  Safe from any thread.

    The thread starts with the first :meth:`start` or :meth:`hold`, never before a fork.  It does
    nothing but quick steps of the store: nothing may keep it from the next renewal.

    :param lease_s: how long the process may be silent before its jobs are others' to claim.
    :param backends: returns those whose jobs this process would claim; asked at each renewal.
    :param beat: called by the thread about once a second and after :meth:`wake`; what it raises is
        logged.
    :param lapsed: called before, if the process was silent for so long that its jobs may be
        others' by now; and again, until it raises nothing.
    """

    def __init__(
        self,
        store: Store,
        lease_s: float,
        *,
        backends: Callable[[], Collection[str]],
        beat: Callable[[], None],
        lapsed: Callable[[], None],
    ) -> None:
        self._store = store
        self._lease_s = lease_s
        self._backends = backends
        self._beat = beat
        self._lapsed = lapsed
        self._lock = threading.Lock()
        self._owner: str | None = None
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()
        self._closed = False
        self._renewed_at: float | None = None
        #: Whether the process was silent for too long and nobody has acted on it yet.
        self._is_lapsed = False
        self._trouble = False

    @property
    def owner(self) -> str:
        """The name; made when it is first asked for, so each process has one of its own."""
        with self._lock:
            if self._owner is None:
                self._owner = new_owner()
            return self._owner

    def start(self) -> None:
        """Let the thread begin: it takes the lease, as soon as the store can be written."""
        owner = self.owner
        with self._lock:
            if self._thread is not None or self._closed:
                return
            self._thread = threading.Thread(
                target=self._run, args=(owner,), name="caesar-lease", daemon=True
            )
            self._thread.start()

    def hold(self) -> None:
        """Make sure that there is a lease, and a thread that keeps it.

        :raises StoreError: if the store cannot be written.
        """
        if self._renewed_at is None and not self._closed:
            self._renew(self.owner, _now_s())
            self.start()

    def wake(self) -> None:
        """Let the thread look at once what there is to do; quick."""
        self._wake.set()

    def close(self) -> None:
        """End the thread and the lease: others may claim at once what this process still holds."""
        with self._lock:
            self._closed = True
            thread, self._thread = self._thread, None
        self._wake.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        if self._renewed_at is None:
            return
        self._renewed_at = None
        try:
            self._store.retire(self.owner)
        except StoreError as error:
            # It runs out by itself.
            logger.warning("the lease could not be ended: %s", error)

    def _run(self, owner: str) -> None:
        while not self._closed:
            self._once(owner)
            self._wake.wait(min(_BEAT_S, self._lease_s / _RENEWALS))
            self._wake.clear()

    def _once(self, owner: str) -> None:
        try:
            silent_s = self._keep(owner)
            if silent_s >= self._lease_s:
                logger.warning("the process was silent for %.1f s, longer than lease_s", silent_s)
                self._is_lapsed = True
            if self._is_lapsed:
                self._lapsed()
                self._is_lapsed = False
            self._beat()
            self._trouble = False
        except StoreError as error:
            # said once: it is tried every second
            logger.log(
                logging.DEBUG if self._trouble else logging.ERROR,
                "jobs cannot be looked after for now: %s",
                error,
            )
            self._trouble = True
        except Exception:
            logger.exception("looking after jobs failed")

    def _keep(self, owner: str) -> float:
        """Renew the lease if it is time to; return for how long nobody had, in seconds.

        A silence is counted from before the last renewal until after this one: the process may
        have been stopped, or the store slow, anywhere between, and others go by what the store has.
        """
        before, now = self._renewed_at, _now_s()
        if before is not None and now - before < self._lease_s / _RENEWALS:
            return 0.0
        self._renew(owner, now)
        return 0.0 if before is None else _now_s() - before

    def _renew(self, owner: str, now: float) -> None:
        self._store.renew(owner, self._lease_s, self._backends())
        # another thread may have done it later, and noted it before
        self._renewed_at = max(now, self._renewed_at or now)


def new_owner() -> str:
    """Return a name for this process that no other one has or had."""
    return f"{socket.gethostname()[:60]}-{os.getpid()}-{secrets.token_hex(4)}"


def _now_s() -> float:
    """Return seconds that go on while the machine sleeps, where the system has such a clock."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()
