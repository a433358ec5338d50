"""What is a scope's: jobs and files that are nobody else's, and whose they are."""

from __future__ import annotations

import logging
import threading
import uuid
from collections import OrderedDict, deque
from collections.abc import Callable

logger = logging.getLogger(__name__)

#: Of more names the oldest are forgotten: their jobs are, too, by then.
_MOST_NAMES = 65_536
#: Of more belongings of a scope the oldest are forgotten: they stay as long as the store does.
_MOST_BELONGINGS = 65_536


class Owners:
    """Makes owners for scopes.  Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: OrderedDict[str, int] = OrderedDict()

    def new(self, name: str) -> str:
        """Return an owner for the scope ``name`` that it has not had before.

        The first one of the default scope is ``""``, others are UUIDs: the account of a job is
        shown as one.
        """
        with self._lock:
            number = self._made.pop(name, 0) + 1
            self._made[name] = number
            if len(self._made) > _MOST_NAMES:
                self._made.popitem(last=False)
        if not name and number == 1:
            return ""
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"urn:caesar-mock:{number}:{name}"))


class Belongings:
    """What calls of a scope have made that stays until it is removed, such as files.

    Safe for threads.

    :param name: the scope's.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._removals: deque[Callable[[], None]] = deque(maxlen=_MOST_BELONGINGS)

    def add(self, remove: Callable[[], None]) -> None:
        """Note something that a call makes.

        :param remove: removes it if it is (still) there.
        """
        with self._lock:
            self._removals.append(remove)

    def remove_all(self) -> None:
        """Remove everything; what cannot be removed is logged and left."""
        with self._lock:
            removals, self._removals = self._removals, deque(maxlen=_MOST_BELONGINGS)
        for remove in removals:
            try:
                remove()
            except Exception:
                logger.exception("scope %r: something could not be removed", self._name)
