"""A further question about a finished job, answered from what the job had found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

from caesar_backend_folder.answers import answer_of, result_of, told
from caesar_backend_folder.reading import is_excluded
from caesar_backend_folder.search import Document, Hit, Index
from caesar_server.contract import Completed, Context, Event, FollowUpRequest, Source, Started


def follow_up(request: FollowUpRequest, context: Context, max_sources: int) -> Iterator[Event]:
    """Yield the sources and the answer; numbers mean what they mean in the job's answer."""
    sources = [
        source
        for source in request.sources
        if not is_excluded(source.url, request.excluded_domains)
    ]
    index = Index().plus(_document(source) for source in sources if source.markdown)
    yield Started({"passages": len(index.passages)})
    question, hits = _search(index, request)
    hits = hits[:max_sources]
    numbers = _numbers(sources)
    for source_id in dict.fromkeys(hit.passage.document.id for hit in hits):
        context.raise_if_cancelled()
        best = next(hit for hit in hits if hit.passage.document.id == source_id)
        yield result_of(best.passage.document, best.score, numbers[source_id])
    text = answer_of(hits, question, numbers) or "Nothing in the sources fits this question."
    yield from told(text, context)
    yield Completed({"stopped_because": "answered" if hits else "nothing_found"})


def _document(source: Source) -> Document:
    text = source.markdown or ""
    return Document(source.id, source.title, source.url, text, text)


def _search(index: Index, request: FollowUpRequest) -> tuple[str, list[Hit]]:
    """Search for the question's own words; if none is there, also for those it refers to."""
    wide = " ".join((request.content, *request.snippets, request.query))
    for question in (request.content, wide):
        if hits := index.search(question):
            return question, hits
    return wide, []


def _numbers(sources: Sequence[Source]) -> dict[str, int]:
    """Return the number of each source: its own, or for those without one that is free."""
    taken = {source.citation_index for source in sources}
    free = (number for number in count(1) if number not in taken)
    return {source.id: source.citation_index or next(free) for source in sources}
