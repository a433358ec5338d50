"""The progress of a job: as a list, or as a stream that goes on while the job does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from flask import Response, jsonify, request

from caesar_server.blueprints.research.found import nothing_here, own_job
from caesar_server.blueprints.research.rendering.event_items import event_item, waiting_item
from caesar_server.contract import sse
from caesar_server.contract.errors import ErrorInfo
from caesar_server.contract.events import Completed
from caesar_server.store.base import Job, Record, UnknownJobError
from caesar_server.web.gone import client_socket
from caesar_server.web.limiting.limits import open_stream
from caesar_server.web.limiting.places import Place
from caesar_server.web.services import services
from caesar_server.web.streaming import stream_response

_MOST_DIGITS = 18


def list_research_events(job_id: str) -> Response:
    """``GET /research/{id}/events``: what the job has told so far, or a stream of it.

    With ``Accept: text/event-stream`` it is a stream; with ``Last-Event-ID`` it goes on after that
    event.
    """
    job = own_job(job_id)
    if wants_stream():
        # never beyond the end: whoever asks again after it hears of it again
        last = job.last_seq if job.finished_at is None else job.last_seq - 1
        return event_stream(job, after_seq=min(_last_event_id(), last))
    try:
        records = services().store.records(job.id, bulk=False)
    except UnknownJobError:
        raise nothing_here() from None
    # a job that waits has stored nothing yet, and will say the same once it has
    items = [waiting_item(job)] if not records else []
    items += [item for record in records if (item := event_item(record, job)) is not None]
    response = jsonify(items)
    response.vary.add("Accept")
    return response


def wants_stream() -> bool:
    """Return whether the client prefers a stream to JSON, whatever parameters it gives to them."""
    wishes: dict[str, float] = {}
    for kind, quality in request.accept_mimetypes:
        kind = kind.partition(";")[0].strip().lower()
        wishes[kind] = max(quality, wishes.get(kind, 0.0))
    json_wish = max(wishes.get(kind, 0.0) for kind in ("application/json", "application/*", "*/*"))
    return wishes.get("text/event-stream", 0.0) > json_wish


def event_stream(job: Job, *, after_seq: int = 0, place: Place | None = None) -> Response:
    """Return the stream of a job's progress.

    :param after_seq: the number of the last event that the reader has.
    :param place: of the current request, if it is counted as a stream already.
    """
    parts = services()
    place = place or open_stream()
    response = stream_response(
        follower := parts.runner.follow_stored(job, after_seq),
        EventFraming(job, lambda: follower.given_up),
        watch=lambda left: parts.watch.watch(client_socket(request.environ), left),
        on_end=place.give_back,
        first_event_wait_s=None,
        heartbeat_s=parts.settings.heartbeat_s,
    )
    place.kept = True
    response.vary.add("Accept")
    return response


class EventFraming:
    """One frame for each event of the list, numbered; how the job ended; ``[DONE]``.

    A stream whose job goes on, but not for this reader, just ends: readers then come back.

    :param given_up: whether that is so.
    """

    def __init__(self, job: Job, given_up: Callable[[], bool]) -> None:
        self._job = job
        self._given_up = given_up

    def of(self, records: Sequence[Record]) -> Iterable[bytes]:
        """Yield the frames for those of ``records`` that readers see."""
        for record in records:
            item = event_item(record, self._job)
            if item is not None:
                yield _numbered(record.seq, sse.frame(item))

    def last(self, record: Record) -> Iterable[bytes]:
        """Return how the job ended, and the end of the stream."""
        if self._given_up():
            return ()
        status = "completed" if isinstance(record.event, Completed) else "failed"
        return self._end(status, record.seq)

    def broken(self, info: ErrorInfo) -> Iterable[bytes]:
        """Return the end of a stream that cannot go on."""
        return (sse.frame({"error": info.message}), sse.DONE)

    def _end(self, status: str, seq: int) -> Sequence[bytes]:
        return (
            _numbered(seq, sse.frame({"status": status, "id": self._job.id})),
            sse.DONE,
        )


def _numbered(seq: int, frame: bytes) -> bytes:
    return b"id: %d\n%s" % (seq, frame)


def _last_event_id() -> int:
    """Return the number after which the client goes on; 0 for what is no number of ours."""
    text = request.headers.get("Last-Event-ID", "").strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else 0
