"""Documents cut into passages, and the passages that fit a question, ranked with BM25."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

#: The usual constants of BM25 (Robertson and Zaragoza, 2009).
_K1, _B = 1.2, 0.75
_WORD = re.compile(r"\w+")
_SENTENCE = re.compile(r"(?<=[.!?])\s+")
_HEADING = re.compile(r"^#{1,6} .*$", re.MULTILINE)
#: Between paragraphs; each item of a list is one.
_BREAK = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*+]|\d+[.)]) )")
_ITEM = re.compile(r"^(?:[-*+]|\d+[.)]) ")
#: Words that stand in nearly every question and say nothing about its subject.
_STOP_WORDS = frozenset(
    _WORD.findall(
        """
        a about an and are as at be by did do does for from had has have how i in is it many me much
        of on or tell that the this to was were what when where which who whom why will with you
        """
    )
)


@dataclass(frozen=True, slots=True)
class Document:
    """What a citation points at.

    :param raw: as it was found.
    """

    id: str
    title: str
    url: str
    raw: str
    markdown: str


@dataclass(frozen=True, slots=True)
class Passage:
    """A paragraph of a document.

    :param number: the paragraph's, from 1.
    :param heading: the one that it stands below, or nothing.
    """

    document: Document
    number: int
    heading: str
    text: str

    @property
    def id(self) -> str:
        """Unique among the passages of an index."""
        return f"{self.document.id}#{self.number}"


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage that fits.

    :param score: 0 to 1; the best has 1.
    """

    passage: Passage
    score: float


def terms_of(text: str) -> list[str]:
    """Return the words that a text can be found by.

    >>> terms_of("Who was Caesar?")
    ['caesar']
    """
    return [word for word in _WORD.findall(text.lower()) if word not in _STOP_WORDS]


def title_of(markdown: str) -> str:
    """Return the heading that a text begins with, or nothing."""
    return next((heading for heading, _ in _paragraphs(markdown)), "")


def passages_of(document: Document) -> Iterator[Passage]:
    """Cut a document at its headings, blank lines and list items."""
    for number, (heading, text) in enumerate(_paragraphs(document.markdown), 1):
        yield Passage(document, number, heading, text)


def _paragraphs(markdown: str) -> Iterator[tuple[str, str]]:
    """Yield each paragraph with its heading; a first line of its own is one, too."""
    apart = _HEADING.sub(r"\n\g<0>\n", markdown)
    blocks = [" ".join(block.split()) for block in _BREAK.split(apart) if block.strip()]
    heading = ""
    for at, block in enumerate(blocks):
        is_first_line = at == 0 < len(blocks) - 1 and len(block) <= 80 and block[-1] not in ".!?"
        if block.startswith("#") or is_first_line:
            heading = block.lstrip("# ")
        else:
            yield heading, _ITEM.sub("", block)


@dataclass(frozen=True)
class Index:
    """Passages that can be searched.  Frozen, so that many runs may use it at once."""

    passages: Sequence[Passage] = ()
    _counts: Sequence[Counter[str]] = field(default=(), repr=False)
    _found_in: Mapping[str, int] = field(default_factory=dict, repr=False)

    def plus(self, documents: Iterable[Document]) -> Index:
        """Return an index that has these documents, too."""
        new = [passage for document in documents for passage in passages_of(document)]
        counts = [
            Counter(terms_of(f"{one.document.title} {one.heading} {one.text}")) for one in new
        ]
        found_in = Counter(self._found_in)
        for count in counts:
            found_in.update(count.keys())
        return Index((*self.passages, *new), (*self._counts, *counts), found_in)

    def search(self, question: str) -> list[Hit]:
        """Return the passages that have a word of the question, the best first."""
        terms = set(terms_of(question))
        average = sum(count.total() for count in self._counts) / max(1, len(self._counts))
        scores = [
            sum(self._weight(term) * _saturated(count, term, average) for term in terms)
            for count in self._counts
        ]
        top = max(scores, default=0.0)
        found = [
            Hit(passage, score / top)
            for passage, score in zip(self.passages, scores, strict=True)
            if score > 0
        ]
        return sorted(found, key=lambda hit: -hit.score)

    def missing(self, question: str, read: Set[str]) -> set[str]:
        """Return the words of a question that are in passages, but in none of those ``read``."""
        seen: set[str] = set()
        for passage, count in zip(self.passages, self._counts, strict=True):
            if passage.id in read:
                seen.update(count)
        return {term for term in terms_of(question) if term in self._found_in} - seen

    def _weight(self, term: str) -> float:
        """Return how much a term says: the rarer, the more."""
        found_in = self._found_in.get(term, 0)
        return math.log(1 + (len(self.passages) - found_in + 0.5) / (found_in + 0.5))


def _saturated(count: Counter[str], term: str, average: float) -> float:
    """Return how much of a term there is, in a passage of this length."""
    times = count[term]
    return times * (_K1 + 1) / (times + _K1 * (1 - _B + _B * count.total() / average))


def best_sentence(passage: Passage, question: str) -> str:
    """Return the sentence of a passage that has most of the question's words."""
    wanted = set(terms_of(question))
    sentences = _SENTENCE.split(passage.text)
    return max(sentences, key=lambda sentence: len(wanted & set(terms_of(sentence))))
