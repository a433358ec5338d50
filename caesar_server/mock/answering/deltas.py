"""Texts as deltas, of which calls that get the same text share the same."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from caesar_server.contract import ContentDelta
from caesar_server.contract.events import Channel
from caesar_server.mock.answering.choices import Said, chunks_of
from caesar_server.mock.answering.pieces import cut
from caesar_server.mock.model.pacing import Pacing

#: Longer texts are cut anew each time.
_LONGEST_KEPT = 20_000
_MOST_KEPT = 256


class Deltas:
    """Cuts texts and keeps the last ones: making its deltas is half of what a reply costs.

    Safe for threads, as events are immutable.
    """

    def __init__(self) -> None:
        self._kept = lru_cache(maxsize=_MOST_KEPT)(_plain)

    def of(
        self, answer: Said, pacing: Pacing, chunks: int | None, number: int, channel: Channel
    ) -> Sequence[ContentDelta]:
        """Return the deltas of a text; see :func:`chunks_of`.

        :param number: of the choice.
        """
        if answer.tokens is not None:
            return [
                ContentDelta(text, number, channel, tokens)
                for text, tokens in chunks_of(answer, pacing, chunks)
            ]
        make = self._kept if len(answer.text) <= _LONGEST_KEPT else _plain
        return make(answer.text, pacing, chunks, number, channel)


def _plain(
    text: str, pacing: Pacing, chunks: int | None, number: int, channel: Channel
) -> tuple[ContentDelta, ...]:
    return tuple(ContentDelta(piece, number, channel) for piece in cut(text, pacing, chunks))
