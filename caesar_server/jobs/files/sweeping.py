"""Removing what crashes left behind of uploads and runs."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass

from caesar_server.store.blobs.base import BlobStore
from caesar_server.store.owned.base import OwnedStore

logger = logging.getLogger(__name__)

#: What is younger may belong to an upload that is under way: its row comes after its bytes.
OLDER_THAN_S = 60 * 60.0
#: So many keys are asked about in one step.
_AT_ONCE = 500
#: Beyond so many keys of which the store knows none, it is taken for another one's store.
_STRANGE = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """What was removed.

    :param staged: uploads that did not come to their end.
    :param unreferenced: bytes that no file refers to.
    :param lent: folders of runs whose processes were killed.
    """

    staged: int = 0
    unreferenced: int = 0
    lent: int = 0

    @property
    def total(self) -> int:
        """How many things that is."""
        return self.staged + self.unreferenced + self.lent


def sweep(owned: OwnedStore, blobs: BlobStore, older_than_s: float = OLDER_THAN_S) -> Swept:
    """Remove leftovers; safe while uploads and runs go on, here and in other processes.

    Where the store refers to none of many keys, nothing is removed of them: rather the wrong
    database was opened than all files were lost.  A temporary place has no wrong database.

    :raises StoreError: if store or bytes cannot be read or removed now.
    """
    return Swept(
        staged=blobs.sweep_staged(older_than_s),
        lent=blobs.sweep_lent(older_than_s),
        unreferenced=_sweep_unreferenced(owned, blobs, time.time() - older_than_s),
    )


def _sweep_unreferenced(owned: OwnedStore, blobs: BlobStore, until: float) -> int:
    unused: list[str] = []
    some_used = False
    for keys in _batches(stored.key for stored in blobs.stored_keys() if stored.stored_at <= until):
        used = set(owned.used_keys(keys))
        some_used = some_used or bool(used)
        unused += (key for key in keys if key not in used)
    if len(unused) > _STRANGE and not some_used and not blobs.is_temporary:
        logger.error(
            "%d stored files were left alone: the store of the jobs refers to none of them; does "
            "the setting files name the place that belongs to it?",
            len(unused),
        )
        return 0
    for key in unused:
        blobs.delete(key)
    return len(unused)


def _batches(keys: Iterator[str]) -> Iterator[list[str]]:
    while batch := list(itertools.islice(keys, _AT_ONCE)):
        yield batch
