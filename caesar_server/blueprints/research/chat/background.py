"""What a follow-up question stands on: the job's answer, its sources, what was asked since."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from caesar_server.blueprints.research.chat.citing import cited_numbers
from caesar_server.blueprints.research.found import read_view
from caesar_server.blueprints.research.incoming.calls import ChatCall
from caesar_server.blueprints.research.rendering.folding import JobView, query_of, view_of
from caesar_server.blueprints.research.sources import bulk_records
from caesar_server.contract.events import ResultFound, SourceStored, Status
from caesar_server.contract.request import (
    BrainstormRequest,
    FollowUpRequest,
    Message,
    Part,
    Request,
    Source,
)
from caesar_server.store.base import Job, UnknownJobError
from caesar_server.web.services import services

#: So many questions that were answered before go along with the next one, the newest.
REMEMBERED_QUESTIONS = 10
_ANSWERED: Sequence[Status] = ("completed",)
#: Characters of a source's Markdown that go along, and of all together: each follow-up is stored
#: with what it stands on.
SOURCE_CHARACTERS = 100_000
ALL_SOURCES_CHARACTERS = 1_000_000


def follow_up_request(parent: Job, call: ChatCall) -> FollowUpRequest:
    """Return what a backend is asked.

    :param parent: a completed job.
    :raises NotFoundError: if it was deleted meanwhile.
    """
    view = read_view(parent)
    # the other text is perhaps no prose: whoever shaped it wanted JSON
    answer = view.content or view.transformed or ""
    return FollowUpRequest(
        content=call.content,
        query=query_of(parent.request),
        answer=answer,
        sources=_sources(view, answer),
        history=_history(parent),
        snippets=call.snippets,
        excluded_domains=call.excluded_domains,
        synthesis_model=_synthesis_model(parent.request),
    )


def _synthesis_model(request: Request) -> str | None:
    """Return which model the caller of a job wanted its answer to be written with, if any."""
    if isinstance(request, (FollowUpRequest, BrainstormRequest)):
        return None  # these cannot be asked about
    return request.parameters.model


def _sources(view: JobView, answer: str) -> tuple[Source, ...]:
    """Return what the job found; with its Markdown what the answer cites."""
    cited = cited_numbers(answer)
    wanted = [result.id for result in view.results if result.citation_index in cited]
    texts = _markdown(view.job, wanted) if wanted else {}
    left = ALL_SOURCES_CHARACTERS
    sources = []
    for result in view.results:
        text = texts.get(result.id)
        if text is not None:
            text = text[: min(SOURCE_CHARACTERS, left)]
            left -= len(text)
        sources.append(_source(result, text or None))
    return tuple(sources)


def _source(result: ResultFound, markdown: str | None) -> Source:
    return Source(
        id=result.id,
        title=result.title,
        url=result.url,
        citation_index=result.citation_index,
        markdown=markdown,
    )


def _markdown(parent: Job, wanted: Iterable[str]) -> dict[str, str]:
    """Return the Markdown that was last stored of each of these results."""
    ids = frozenset(wanted)
    return {
        event.result_id: event.markdown
        for record in bulk_records(parent)
        if isinstance(event := record.event, SourceStored)
        and event.result_id in ids
        and event.markdown is not None
    }


def _history(parent: Job) -> tuple[Message, ...]:
    """Return the questions about the job that were answered before, oldest first."""
    earlier = services().store.jobs(
        parent_id=parent.id, statuses=_ANSWERED, limit=REMEMBERED_QUESTIONS
    )
    messages: list[Message] = []
    for job in reversed(earlier):
        answer = _answer(job)
        if answer is not None:
            messages.append(_message("user", query_of(job.request)))
            messages.append(_message("assistant", answer))
    return tuple(messages)


def _message(role: str, text: str) -> Message:
    return Message(role=role, parts=(Part(text=text),))


def _answer(job: Job) -> str | None:
    """Return what a follow-up was answered; None if it was forgotten just now."""
    try:
        return view_of(job, services().store.records(job.id, bulk=False)).content
    except UnknownJobError:
        return None
