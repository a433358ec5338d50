"""A job's records as a response that is written while the job runs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

from flask import Response, request

from caesar_server.contract import sse
from caesar_server.contract.events import Completed, ContentDelta, Event, Failed
from caesar_server.errors import UNEXPECTED
from caesar_server.jobs.following.follower import Following
from caesar_server.store.base import Record
from caesar_server.web.errors import AnswerError
from caesar_server.web.framework.responses import ReadyResponse
from caesar_server.web.observing.answered_by import started_headers
from caesar_server.web.observing.exchange import note_code
from caesar_server.web.streaming.framing import Framing
from caesar_server.web.streaming.wire import Wire, wire_of

logger = logging.getLogger(__name__)

#: So much is written without waiting for a client that does not read, as a rule.
UNHINDERED_BYTES = 16 * 1024


def stream_response(
    followed: Following,
    framing: Framing,
    *,
    watch: Callable[[Callable[[], None]], Callable[[], None]],
    on_end: Callable[[], None],
    first_event_wait_s: float | None,
    heartbeat_s: float,
) -> Response:
    """Return the stream of a job.

    Waits for the backend's first event before it decides on 200, so that what fails at once is a
    proper error.

    :param watch: begins to call its argument when the client leaves, returns what ends that.
    :param on_end: called when the returned stream is over, in whatever way; perhaps twice.
    :param first_event_wait_s: seconds to wait at most; after that it is 200 in any case.  None: it
        is 200 at once, and a failure is told in the stream alone.
    :param heartbeat_s: seconds of silence after which a comment is sent; 0 sends none.
    :raises AnswerError: if the job failed before anything was sent.
    """
    wire = wire_of(request.environ)
    end_watch = watch(followed.leave if wire is None else _leaving(followed, wire))
    try:
        first: list[Record] = []
        if first_event_wait_s is not None:
            first = _first_records(followed, first_event_wait_s)
            if (failure := _failure_at_once(first)) is not None:
                raise AnswerError(failure.error)
    except BaseException:
        end_watch()
        followed.leave()
        on_end()
        raise
    frames = FrameStream(followed, framing, first, heartbeat_s, end_watch, on_end, wire)
    response = ReadyResponse(frames, mimetype="text/event-stream", direct_passthrough=True)
    response.headers["Cache-Control"] = "no-cache"
    response.headers["X-Accel-Buffering"] = "no"
    response.headers.extend(started_headers(_before_text(first)))
    return response


def _leaving(followed: Following, wire: Wire) -> Callable[[], None]:
    def leave() -> None:
        followed.leave()
        wire.left()

    return leave


def _first_records(followed: Following, wait_s: float) -> list[Record]:
    """Return the records up to the backend's first event, or what is there when time is up."""
    records: list[Record] = []
    while not _shows_backend(records) and not followed.drained:
        taken = followed.take(wait_s)
        if not taken:
            break
        records += taken
    return records


def _shows_backend(records: Sequence[Record]) -> bool:
    return bool(records) and records[-1].seq > 1


def _before_text(records: Iterable[Record]) -> Iterator[Event]:
    """Yield the events among which ``Started`` may be; text may be all the rest."""
    for record in records:
        if type(record.event) is ContentDelta:
            return
        yield record.event


def _failure_at_once(records: Sequence[Record]) -> Failed | None:
    """Return the backend's first event if it is a failure.

    A failure that comes later is a frame even if it is here already: the same run must not end now
    in one way and now in the other, by the chance of the hand-over.
    """
    first = next((record.event for record in records if record.seq > 1), None)
    return first if isinstance(first, Failed) else None


class FrameStream:
    """The frames of one stream, everything that is ready in one write.

    A class and not a generator: a generator that was never begun runs no ``finally`` when it is
    closed, and the job of a client that left at once would go on.
    """

    def __init__(
        self,
        followed: Following,
        framing: Framing,
        first: Sequence[Record],
        heartbeat_s: float,
        end_watch: Callable[[], None],
        on_end: Callable[[], None],
        wire: Wire | None = None,
    ) -> None:
        self._followed = followed
        self._framing = framing
        self._first = first
        self._heartbeat_s = heartbeat_s
        self._end_watch = end_watch
        self._on_end = on_end
        self._wire = wire
        self._writes = self._run()

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        return next(self._writes)

    def close(self) -> None:
        """End the stream, and an attached job with it.  Called by the WSGI server."""
        self._on_end()
        self._end_watch()
        self._writes.close()
        self._followed.leave()

    def _run(self) -> Generator[bytes, None, None]:
        records = self._first
        if not _shows_backend(records):
            # An empty write makes the server send status and headers now, not with the first frame.
            yield b""
            if not records:
                records = self._followed.take(self._heartbeat_s or None)
        while True:
            if records:
                data, ended = self._frames(records)
            elif self._followed.left:
                return
            elif self._followed.drained:
                logger.error("job %s ended without a terminal event", self._followed.job.id)
                note_code(UNEXPECTED.code)
                data, ended = b"".join(self._framing.broken(UNEXPECTED)), True
            else:
                data, ended = sse.HEARTBEAT, False
            if data:
                yield from self._written(data, ended)
            if ended or (self._wire is not None and self._wire.over):
                return
            records = self._followed.take(self._heartbeat_s or None)

    def _written(self, data: bytes, ended: bool) -> Iterable[bytes]:
        """Return what is written for ``data``: all in one write, unless there is a wire."""
        if ended and len(data) <= UNHINDERED_BYTES:
            # before the client can see the end: if it asks again at once there is room
            self._on_end()
        if self._wire is None:
            return (data,)
        return self._wire.writes(data, ended=ended)

    def _frames(self, records: Sequence[Record]) -> tuple[bytes, bool]:
        """Return the frames of ``records``, at least one, and whether they end the stream."""
        parts: list[bytes] = []
        last = records[-1]
        ended = type(last.event) is Completed or type(last.event) is Failed
        try:
            parts += self._framing.of(records[:-1] if ended else records)
            if ended:
                parts += self._framing.last(last)
        except Exception:
            # A generator that raises makes gunicorn cut the connection without a word.
            logger.exception("job %s could not be rendered", self._followed.job.id)
            note_code(UNEXPECTED.code)
            parts += self._framing.broken(UNEXPECTED)
            ended = True
        return b"".join(parts), ended
