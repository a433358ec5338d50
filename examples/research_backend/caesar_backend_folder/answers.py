"""Answers made of sentences, each with the number of its source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from caesar_backend_folder.search import Document, Hit, best_sentence
from caesar_server.contract import ChoiceFinished, ContentDelta, Context, Event, split_words
from caesar_server.contract.events import ResultFound


def numbered(hits: Sequence[Hit]) -> dict[str, int]:
    """Number the documents of these hits from 1, the best first; by the document's id."""
    return {
        id: at for at, id in enumerate(dict.fromkeys(hit.passage.document.id for hit in hits), 1)
    }


def answer_of(hits: Sequence[Hit], question: str, numbers: Mapping[str, int]) -> str:
    """Return the best sentence of each hit, with the number of its document."""
    sentences = (
        f"{best_sentence(hit.passage, question)} [{numbers[hit.passage.document.id]}]"
        for hit in hits
    )
    return " ".join(dict.fromkeys(sentences))


def result_of(document: Document, score: float, citation_index: int | None = None) -> ResultFound:
    """Return a document as a source; cited once it has a ``citation_index``."""
    return ResultFound(document.id, document.title, document.url, round(score, 4), citation_index)


def told(text: str, context: Context) -> Iterator[Event]:
    """Yield a text word by word, and its end."""
    for word in split_words(text):
        context.raise_if_cancelled()
        yield ContentDelta(word)
    yield ChoiceFinished()
