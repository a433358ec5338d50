"""gunicorn's master, which lets no worker go before another one answers in its place."""

from __future__ import annotations

import os
import signal
from typing import Any

from gunicorn.arbiter import Arbiter  # type: ignore[import-untyped]


class Master(Arbiter):  # type: ignore[misc]
    """Takes its settings from a ``GunicornApp``, and its workers are ``Manners``.

    gunicorn 27.0 begins the successor of a worker that has had its ``max_requests`` once that one
    is gone.  Workers share their requests evenly, so they have had enough at about the same time:
    all clients then waited for seconds until there was a new one, on a busy machine for more than
    five.
    """

    num_workers: int

    def __init__(self, app: Any) -> None:
        self._reloads = False
        #: Process ids of the workers that were told to end since their successors answer.
        self._relieved: set[int] = set()
        super().__init__(app)

    def reload(self) -> None:
        """Begin anew with other workers, if there are settings to begin with.

        The streams of the old ones would be cut for nothing, and what is wrong, the file of keys
        say, may be what the new ones have to read.
        """
        if not self.app.read_settings():
            return
        self._reloads = True  # and all old workers go, those too that wait for a successor
        try:
            super().reload()
        finally:
            self._reloads = False

    def spawn_worker(self) -> int | None:
        """Begin a worker and return its process id; None if the system allows no further one.

        Without a word of the master's it would be the end of the server, with all that others
        answer; it tries again a second later.
        """
        try:
            pid: int = super().spawn_worker()
        except OSError as error:
            if os.getpid() != self.pid:
                # The worker's own process: what it could not say, since nobody reads its standard
                # error any more, is none of the master's, of which there must be one alone.
                os._exit(1)
            self.log.error("a worker cannot begin now, and is tried again: %s", error)
            return None
        return pid

    def manage_workers(self) -> None:
        """Begin and end workers until there are as many as there shall be.

        Those that ask for a successor are there in addition until they are gone, at most as many as
        there shall be: more of them wait, and answer meanwhile.
        """
        wanted = self.num_workers
        self.num_workers += len(self._relieve())
        try:
            super().manage_workers()
        finally:
            self.num_workers = wanted

    def _relieve(self) -> list[int]:
        """Return which workers are to go; tell them once enough others answer."""
        if self._reloads:
            return []
        asking = [pid for pid, worker in self.WORKERS.items() if worker.asks_to_go.is_set()]
        going = asking[: self.num_workers]
        others = [worker for pid, worker in self.WORKERS.items() if pid not in going]
        self._relieved &= self.WORKERS.keys()
        if len(others) >= self.num_workers and all(worker.serves.is_set() for worker in others):
            for pid in going:
                if pid not in self._relieved:
                    self._relieved.add(pid)
                    self.kill_worker(pid, signal.SIGTERM)
        return going
