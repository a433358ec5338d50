"""The messages of a chat: which there are, and how they are shown.

A follow-up is a job of its own.  The id of the assistant's message is the job's; that of the user's
is made from it, and the other way round, so nothing has to be stored of it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from caesar_server.blueprints.research.chat.citing import cited_results
from caesar_server.blueprints.research.found import nothing_here, own_job
from caesar_server.blueprints.research.rendering.folding import view_of
from caesar_server.blueprints.research.rendering.objects import sound
from caesar_server.contract.request import FollowUpRequest
from caesar_server.store.base import Job, Record, UnknownJobError
from caesar_server.web.services import services
from caesar_server.web.timestamps import timestamp

#: So many questions a history has at most, the newest: with the answers twice as many messages.
MOST_QUESTIONS = 100
#: Where the messages of a history have so many characters, older questions are left out: each may
#: be as long as a body may be.
MOST_CHARACTERS = 4 * 1024 * 1024
#: So many are read at once: each comes with all that it stands on, about a million characters.
_AT_ONCE = 5

# Any constant would do whose bits are not those of a UUID's version and variant.
_OTHER = uuid.uuid5(uuid.NAMESPACE_URL, "user message").int & ~(0xF << 76) & ~(0x3 << 62)


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a chat.

    :param job: the follow-up that it belongs to.
    :param asked: it is the user's question; otherwise the assistant's answer.
    """

    job: Job
    asked: bool = False

    @property
    def follow_up(self) -> FollowUpRequest:
        """What was asked."""
        request = self.job.request
        if not isinstance(request, FollowUpRequest):
            raise TypeError(f"job {self.job.id} is no follow-up but a {request.type}")
        return request


def other_id(message_id: str) -> str | None:
    """Return the id of the question for that of its answer, and the other way round.

    >>> answer = "9c6f8b1a-2a4f-4a35-86b9-0d0b5e25d5e5"
    >>> other_id(other_id(answer)) == answer
    True

    :return: None for what is no UUID, written as usual.
    """
    try:
        value = uuid.UUID(message_id)
    except ValueError:
        return None
    return str(uuid.UUID(int=value.int ^ _OTHER)) if str(value) == message_id else None


def own_message(job_id: str, message_id: str) -> Message:
    """Return a message about a job of the caller's.

    :raises NotFoundError: if there is no such job or message, or they are another account's.
    """
    parent = own_job(job_id)
    answer = _follow_up(parent, message_id)
    if answer is not None:
        return Message(answer)
    question = other_id(message_id)
    asked = None if question is None else _follow_up(parent, question)
    if asked is None:
        raise nothing_here()
    return Message(asked, asked=True)


def _follow_up(parent: Job, job_id: str) -> Job | None:
    parts = services()
    parts.settled(job_id)
    try:
        job = parts.store.job(job_id)
    except UnknownJobError:
        return None
    return job if job.parent_id == parent.id and job.account == parent.account else None


def newest_follow_ups(parent: Job) -> Iterator[Job]:
    """Yield the newest follow-ups of a job as they stand, the newest first.

    They are read as they are asked for, a few at a time.
    """
    parts = services()
    before: tuple[float, str] | None = None
    left = MOST_QUESTIONS
    while left:
        limit = min(left, _AT_ONCE)
        page = parts.store.jobs(parent_id=parent.id, before=before, limit=limit)
        for job in page:
            current = _as_it_stands(job)
            if current is not None:
                yield current
        if len(page) < limit:
            return
        before = page[-1].created_at, page[-1].id
        left -= limit


def _as_it_stands(job: Job) -> Job | None:
    """Return a job that was read just now, or None if it was forgotten since."""
    if job.finished_at is not None:
        return job
    parts = services()
    parts.settled(job.id)
    try:
        return parts.store.job(job.id)
    except UnknownJobError:
        return None


def characters(message: Mapping[str, Any]) -> int:
    """Return how long the texts of a message's object are."""
    cited = (text for result in message["results"] or () for text in result.values())
    texts = (message["content"], *message["snippets"], *cited)
    return sum(len(text) for text in texts if isinstance(text, str))


def read_message(message: Message) -> dict[str, Any]:
    """Return a message's object as it stands.

    :raises NotFoundError: if it was deleted meanwhile.
    """
    if message.asked:
        return question_object(message)
    if message.job.finished_at is None:
        return answer_object(message, ())
    try:
        records = services().store.records(message.job.id, bulk=False)
    except UnknownJobError:
        raise nothing_here() from None
    return answer_object(message, records)


def question_object(message: Message) -> dict[str, Any]:
    """Return the user's message; it is complete from the start."""
    job = message.job
    return {
        "id": other_id(job.id),
        "role": "user",
        "content": sound(message.follow_up.content),
        "snippets": _snippets(message),
        "status": "completed",
        "created_at": timestamp(job.created_at),
        "updated_at": timestamp(job.created_at),
        "account_id": _account_id(job),
        "ask_id": job.parent_id,
        "error_message": None,
        "results": None,
    }


def answer_object(message: Message, records: Iterable[Record]) -> dict[str, Any]:
    """Return the assistant's message: ``processing``, then ``completed`` or ``failed``.

    ``content`` is empty until it is completed, and ``results`` are null.

    :param records: the job's, but for those with bulk; none of one that has not ended.
    """
    job = message.job
    view = view_of(job, records)
    done = job.status in ("completed", "failed")
    results = None
    if view.content is not None:
        results = cited_results(view.content, view.results, message.follow_up.sources)
    return {
        "id": job.id,
        "role": "assistant",
        "content": sound(view.content or ""),
        "snippets": _snippets(message),
        "status": job.status if done else "processing",
        "created_at": timestamp(job.created_at),
        "updated_at": timestamp(job.finished_at or job.created_at),
        "account_id": _account_id(job),
        "ask_id": job.parent_id,
        "error_message": None if view.error is None else sound(view.error.message),
        "results": results,
    }


def _snippets(message: Message) -> list[str]:
    return [sound(snippet) for snippet in message.follow_up.snippets]


def _account_id(job: Job) -> str | None:
    """Return a UUID for the account, the same for each of its messages; None without accounts."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, job.account)) if job.account else None
