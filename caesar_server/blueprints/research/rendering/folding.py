"""From a job and its events to what became of it: the part that all native objects share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from caesar_server.contract.errors import ErrorInfo
from caesar_server.contract.events import ContentDelta, Failed, ResultFound
from caesar_server.contract.request import (
    BrainstormRequest,
    ChatRequest,
    CompletionRequest,
    FollowUpRequest,
    Request,
    ResearchRequest,
)
from caesar_server.errors import UNEXPECTED
from caesar_server.store.base import Job, Record


@dataclass(frozen=True, slots=True)
class JobView:
    """A job with what its events say.

    :param results: by citation index; those without one last, in the order in which they were
        found.
    :param content: the answer, without a list of references; None until the job is completed.
    :param transformed: the answer as the system prompt shapes it; None without one, and until the
        job is completed.
    :param error: why the job failed; None for every other one.
    """

    job: Job
    results: tuple[ResultFound, ...] = ()
    content: str | None = None
    transformed: str | None = None
    error: ErrorInfo | None = None


class Fold:
    """What a job's events say so far; goes on where it left off.  Not safe for threads.

    :ivar seq: the number of the last record that is in it.
    :ivar characters: about how many it holds.
    """

    def __init__(self) -> None:
        self.seq = 0
        self.characters = 0
        self._results: dict[str, ResultFound] = {}
        self._content: list[str] = []
        self._transformed: list[str] = []
        self._error: ErrorInfo | None = None

    def add(self, records: Iterable[Record]) -> None:
        """Take in further records, in their order; those with bulk may be left out."""
        for record in records:
            self.seq = record.seq
            match record.event:
                case ResultFound() as result:
                    self._results[result.id] = result
                    self.characters += len(result.title) + len(result.url)
                case ContentDelta(choice=0, channel="content", text=text):
                    self._content.append(text)
                    self.characters += len(text)
                case ContentDelta(choice=0, channel="transformed", text=text):
                    self._transformed.append(text)
                    self.characters += len(text)
                case Failed(error=error):
                    self._error = error

    def view(self, job: Job) -> JobView:
        """Return the job with what its events say.

        :param job: read before the last records were, or the end of its text may be missing.
        """
        whole = self._text(self._content) if job.status == "completed" else None
        return JobView(
            job=job,
            results=by_citation(self._results.values()),
            content=whole,
            transformed=_transformed(job.request, whole, self._text(self._transformed)),
            error=(self._error or UNEXPECTED) if job.status == "failed" else None,
        )

    def _text(self, parts: list[str]) -> str:
        """Join the parts, for good: a job of many tokens is read often."""
        if len(parts) > 1:
            parts[:] = ["".join(parts)]
        return parts[0] if parts else ""


def view_of(job: Job, records: Iterable[Record]) -> JobView:
    """Return a job with what its events say.

    :param records: all of the job's, but for those with bulk; read after the job was.
    """
    fold = Fold()
    fold.add(records)
    return fold.view(job)


def by_citation(results: Iterable[ResultFound]) -> tuple[ResultFound, ...]:
    """Return results by citation index, those without one last; equal ones keep their order."""
    return tuple(
        sorted(
            results, key=lambda result: (result.citation_index is None, result.citation_index or 0)
        )
    )


def query_of(request: Request) -> str:
    """Return what a request asks, in one text.

    A prompt of token ids has no text: the query is empty then.
    """
    match request:
        case ResearchRequest(query=query) | BrainstormRequest(query=query):
            return query
        case FollowUpRequest(content=content):
            return content
        case CompletionRequest(prompts=prompts):
            return next((prompt for prompt in prompts if isinstance(prompt, str)), "")
        case ChatRequest(messages=messages):
            asked = (message.text for message in reversed(messages) if message.role == "user")
            return next(asked, "")


def _transformed(request: Request, content: str | None, transformed: str) -> str | None:
    """Return the reshaped answer: a backend may have the one text alone, already in shape."""
    if content is None:
        return None
    return transformed or (content if _has_system_prompt(request) else None)


def _has_system_prompt(request: Request) -> bool:
    match request:
        case CompletionRequest() | ChatRequest() | ResearchRequest():
            return bool(request.parameters.system_prompt)
        case FollowUpRequest() | BrainstormRequest():
            return False
