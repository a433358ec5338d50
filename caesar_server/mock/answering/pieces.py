"""How a text is cut into chunks, and when each of them is due."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from random import Random
from typing import TypeVar

from caesar_server.contract import split_words
from caesar_server.mock.model.pacing import ChunkUnit, Pacing

_TOKEN = re.compile(r"\s*(?:\w{1,4}|[^\w\s])(?:\s+\Z)?|\s+")

T = TypeVar("T")


def split_tokens(text: str) -> tuple[str, ...]:
    """Cut a text into what a tokenizer might: words of at most four characters, and punctuation.

    Each piece keeps the space before it; joined they are the text again.

    >>> split_tokens("So: understood.")
    ('So', ':', ' unde', 'rsto', 'od', '.')
    """
    return tuple(_TOKEN.findall(text))


def split_text(text: str, unit: ChunkUnit) -> Sequence[str]:
    """Return a text in units, which joined are the text again."""
    if unit == "word":
        return split_words(text)
    return split_tokens(text) if unit == "token" else text


def cut(text: str, pacing: Pacing, chunks: int | None = None) -> list[str]:
    """Return the chunks of a text; none is empty.

    :param chunks: so many of about equal length, or one a character if there are fewer; None cuts
        as ``pacing`` says.
    """
    if chunks is not None:
        return ["".join(group) for group in evenly(text, chunks)]
    units, size = split_text(text, pacing.unit), pacing.size
    if size == 1:
        return list(units)
    return ["".join(units[at : at + size]) for at in range(0, len(units), size)]


def evenly(items: Sequence[T], groups: int) -> list[Sequence[T]]:
    """Return the items in so many groups of about equal length, or in one for each if fewer."""
    groups = min(groups, len(items))
    size = len(items)
    return [items[size * i // groups : size * (i + 1) // groups] for i in range(groups)]


def is_paced(pacing: Pacing) -> bool:
    """Return whether anything has to wait."""
    return bool(pacing.first_chunk_s) or pacing.tokens_per_s is not None


class Schedule:
    """When the chunks of one answer are due, in seconds from its beginning.

    The first chunk of the answer comes after ``first_chunk_s``; each further one takes the time of
    its tokens.  Not safe for threads.

    :param random: draws the jitter.
    """

    def __init__(self, pacing: Pacing, random: Random) -> None:
        self._pacing = pacing
        self._random = random
        self._due_s: float | None = None

    def due_s(self, chunk: str) -> float:
        """Return when the next chunk is due."""
        if self._due_s is None:
            self._due_s = self._jittered(self._pacing.first_chunk_s)
        elif self._pacing.tokens_per_s is not None:
            self._due_s += self._jittered(len(split_tokens(chunk)) / self._pacing.tokens_per_s)
        return self._due_s

    def _jittered(self, wait_s: float) -> float:
        jitter = self._pacing.jitter
        if not jitter or not wait_s:
            return wait_s
        return wait_s * self._random.uniform(1 - jitter, 1 + jitter)


def moments(chunks: Sequence[str], pacing: Pacing, random: Random) -> Iterator[float]:
    """Yield when each of the chunks is due, in seconds from the beginning of the answer."""
    schedule = Schedule(pacing, random)
    return map(schedule.due_s, chunks)
