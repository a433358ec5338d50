"""How many requests and streams a process has room for: what is full says so at once."""

from __future__ import annotations

import math
import threading
from collections import Counter

from caesar_server.errors import OverloadedError, TooManyRequestsError

#: Seconds after which to ask again.  Nobody knows when a place will be free; OpenAI's clients wait
#: twice and then give up, so this is no time to be careful with.
_ASK_AGAIN_S = 1.0


#: Of so many places one is kept from streams, for polls, creations and other short answers.
_PLACES_FOR_ONE_KEPT = 8


def most_streams(requests: int) -> int:
    """Return how many streams there may be at once where nobody said it.

    A stream keeps its place for as long as its job or its reader likes: if streams could take them
    all, the caller of a job that takes an hour could not even be told that it has ended.

    :param requests: the most requests at once, streams included; two or more.

    >>> most_streams(60), most_streams(4)
    (52, 3)
    """
    return requests - math.ceil(requests / _PLACES_FOR_ONE_KEPT)


class Places:
    """Counts what is under way in this process.  Safe from any thread.

    Requests are counted from before their body is read: a client that sends it slowly takes a place
    and not one of the threads that are left for refusals.

    :param requests: the most at once, streams included.
    :param streams: the most streams at once.
    """

    def __init__(self, *, requests: int, streams: int) -> None:
        self._max_requests = requests
        self._max_streams = streams
        self._lock = threading.Lock()
        self._requests = 0
        self._streams = 0
        self._streams_of: Counter[str] = Counter()

    @property
    def requests(self) -> int:
        """How many requests are under way, streams included."""
        with self._lock:
            return self._requests

    @property
    def streams(self) -> int:
        """How many streams are open."""
        with self._lock:
            return self._streams

    def enter(self) -> Place:
        """Count a request.

        :raises OverloadedError: if there is no room for it.
        """
        with self._lock:
            if self._requests >= self._max_requests:
                raise OverloadedError(
                    f"The server is at its limit of {self._max_requests} answers at a time; "
                    "try again",
                    retry_after_s=_ASK_AGAIN_S,
                )
            self._requests += 1
        return Place(self)

    def _open_stream(self, owner: str, limit: int | None) -> None:
        with self._lock:
            # The key first: what its owner can do something about is told before what he cannot.
            if limit is not None and self._streams_of[owner] >= limit:
                raise TooManyRequestsError(retry_after_s=_ASK_AGAIN_S)
            if self._streams >= self._max_streams:
                raise OverloadedError(
                    f"The server is at its limit of {self._max_streams} streams at a time; "
                    "try again",
                    retry_after_s=_ASK_AGAIN_S,
                )
            self._streams += 1
            self._streams_of[owner] += 1

    def _leave(self, place: Place) -> None:
        stream_of = place._stream_of
        with self._lock:
            if place._given_back:
                return
            place._given_back = True
            self._requests -= 1
            if stream_of is None:
                return
            self._streams -= 1
            self._streams_of[stream_of] -= 1
            if not self._streams_of[stream_of]:
                del self._streams_of[stream_of]


class Place:
    """The place of one request."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._stream_of: str | None = None
        self._given_back = False
        #: Whether the request's end is not the end of it: a stream goes on after that.
        self.kept = False

    def open_stream(self, owner: str, limit: int | None) -> None:
        """Count the request as a stream too.

        :param owner: id of the key that asks for it.
        :param limit: the most streams that this key may have open, or None.
        :raises TooManyRequestsError: if the key has as many.
        :raises OverloadedError: if the process has no room for it.
        """
        self._places._open_stream(owner, limit)
        self._stream_of = owner

    def give_back(self) -> None:
        """Count the request no more; harmless when called twice."""
        self._places._leave(self)
