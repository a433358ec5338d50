"""Text files cut into passages, and the passages that fit a question, ranked with BM25."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

#: The usual constants of BM25 (Robertson and Zaragoza, 2009).
_K1, _B = 1.2, 0.75
_WORD = re.compile(r"\w+")
_SENTENCE = re.compile(r"(?<=[.!?])\s+")
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
class Passage:
    """A paragraph of a file.

    :param source: names the file: a path in the folder, or an uploaded file's id.
    :param number: the paragraph's, from 1.
    """

    source: str
    title: str
    number: int
    text: str

    @property
    def id(self) -> str:
        """Unique among the passages of an index."""
        return f"{self.source}#{self.number}"


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


def passages_of(source: str, title: str, text: str) -> Iterator[Passage]:
    """Cut a text at its blank lines; a first line of its own becomes the title."""
    paragraphs = [" ".join(part.split()) for part in re.split(r"\n\s*\n", text) if part.strip()]
    if len(paragraphs) > 1 and len(paragraphs[0]) <= 80 and paragraphs[0][-1] not in ".!?":
        title = paragraphs.pop(0)
    for number, paragraph in enumerate(paragraphs, 1):
        yield Passage(source, title, number, paragraph)


def folder_passages(folder: Path, max_file_bytes: int) -> Iterator[Passage]:
    """Yield the passages of all ``.txt`` files below a folder, in the order of their names.

    Files that are too long, and links that lead out of the folder, are left out.
    """
    root = folder.resolve()
    for path in sorted(root.rglob("*.txt")):
        if path.resolve().is_relative_to(root) and path.stat().st_size <= max_file_bytes:
            name = path.relative_to(root).as_posix()
            yield from passages_of(name, path.stem, path.read_text("utf-8", errors="replace"))


@dataclass(frozen=True)
class Index:
    """Passages that can be searched.  Frozen, so that many runs may use it at once."""

    passages: Sequence[Passage]
    _counts: Sequence[Counter[str]] = field(repr=False)
    _found_in: Counter[str] = field(repr=False)

    @classmethod
    def of(cls, passages: Iterable[Passage]) -> Index:
        """Return an index of these passages."""
        kept = tuple(passages)
        counts = [Counter(terms_of(f"{passage.title} {passage.text}")) for passage in kept]
        return cls(kept, counts, Counter(term for count in counts for term in count))

    def search(self, question: str, limit: int) -> list[Hit]:
        """Return the passages that fit best, the best first; none if no word of it is there."""
        terms = set(terms_of(question))
        total = len(self.passages)
        average = sum(count.total() for count in self._counts) / max(1, total)
        scores = [
            sum(self._weight(term, total) * _saturated(count, term, average) for term in terms)
            for count in self._counts
        ]
        best = sorted(range(total), key=lambda at: (-scores[at], at))[:limit]
        top = scores[best[0]] if best else 0.0
        return [Hit(self.passages[at], scores[at] / top) for at in best if scores[at] > 0]

    def _weight(self, term: str, total: int) -> float:
        """Return how much a term says: the rarer, the more."""
        found_in = self._found_in[term]
        return math.log(1 + (total - found_in + 0.5) / (found_in + 0.5))


def _saturated(count: Counter[str], term: str, average: float) -> float:
    """Return how much of a term there is, in a passage of this length."""
    times = count[term]
    return times * (_K1 + 1) / (times + _K1 * (1 - _B + _B * count.total() / average))


def best_sentence(passage: Passage, question: str) -> str:
    """Return the sentence of a passage that has most of the question's words."""
    wanted = set(terms_of(question))
    sentences = _SENTENCE.split(passage.text)
    return max(sentences, key=lambda sentence: len(wanted & set(terms_of(sentence))))
