"""From a job's records to what is written of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Protocol

from caesar_server.contract import sse
from caesar_server.contract.errors import ErrorInfo
from caesar_server.contract.events import Event, Failed
from caesar_server.store.base import Record
from caesar_server.web.errors import error_object


class Framing(Protocol):
    """Turns the records of one job into frames, in their order.  Not safe for threads.

    An item of what is returned is one or more whole frames, each with the blank line that ends it.
    """

    def of(self, records: Sequence[Record]) -> Iterable[bytes]:
        """Return the frames for the next records, of which none is the last.

        What comes out before an exception is sent.
        """

    def last(self, record: Record) -> Iterable[bytes]:
        """Return the frames for the terminal record, which end the stream."""

    def broken(self, info: ErrorInfo) -> Iterable[bytes]:
        """Return the frames that end a stream whose job, or whose rendering, went wrong."""


_event: Callable[[Record], Event] = attrgetter("event")


class OpenAIFraming:
    """OpenAI's: a failure is an error object in a frame, and ``[DONE]`` comes at any end.

    :param to_frames: returns the frames for the next events, of which none is a failure.
    """

    def __init__(self, to_frames: Callable[[Iterable[Event]], Iterable[bytes]]) -> None:
        self._to_frames = to_frames

    def of(self, records: Sequence[Record]) -> Iterable[bytes]:
        """Return the frames for the next records, of which none is the last."""
        return self._to_frames(map(_event, records))

    def last(self, record: Record) -> Iterable[bytes]:
        """Return the frames for the terminal record."""
        event = record.event
        if isinstance(event, Failed):
            return self.broken(event.error)
        return (*self._to_frames((event,)), sse.DONE)

    def broken(self, info: ErrorInfo) -> Iterable[bytes]:
        """Return the error and the end."""
        return (sse.frame(error_object(info)), sse.DONE)
