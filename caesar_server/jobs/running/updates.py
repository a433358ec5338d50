"""What is said to a job while it runs, for its run."""

from __future__ import annotations

from collections.abc import Sequence

from caesar_server.contract.context import Update
from caesar_server.jobs.files import Lent
from caesar_server.store.base import Store


class UpdateReader:
    """Reads the updates of a job, each once; those of an earlier attempt come again.

    For the one thread that runs the job.

    :param lent: is told of the files that updates name; None: nobody is.
    """

    def __init__(self, store: Store, job_id: str, lent: Lent | None = None) -> None:
        self._store = store
        self._job_id = job_id
        self._lent = lent
        self._last = 0

    def new(self) -> Sequence[Update]:
        """Return the updates that came since the last call, oldest first.

        :raises StoreError: if the store cannot be read.
        """
        found = self._store.updates(self._job_id, self._last)
        if found:
            self._last = found[-1].number
            if self._lent is not None:
                self._lent.add(file_id for one in found for file_id in one.update.file_ids)
        return tuple(one.update for one in found)
