"""Helpers for text that arrives in pieces: stop sequences, UTF-8, counting."""

from __future__ import annotations

import codecs
from collections.abc import Sequence


class StopHoldback:
    """Cuts a stream of text before the first stop sequence.

    A suffix that could still become a stop sequence is held back until it is clear.  Not safe for
    threads: one instance a choice.

    >>> hold = StopHoldback(["END"])
    >>> hold.feed("the E"), hold.feed("N"), hold.feed("Z and END more")
    ('the ', '', 'ENZ and ')
    >>> hold.stopped, hold.finish()
    (True, '')
    """

    def __init__(self, stops: Sequence[str]) -> None:
        """:param stops: non-empty strings; an empty sequence lets everything through.

        :raises ValueError: if one of them is empty.
        """
        if "" in stops:
            raise ValueError("stop sequences must not be empty")
        self._stops = tuple(stops)
        self._longest = max(map(len, self._stops), default=0)
        self._held = ""
        self.stopped = False

    def feed(self, text: str) -> str:
        """Return the part of the text so far that is certain and was not returned before.

        Once :attr:`stopped`, everything is swallowed.
        """
        if self.stopped:
            return ""
        if not self._stops:
            return text
        pending = self._held + text
        # The stop that is complete first wins: the result must not depend on how text was cut.
        found = [(at + len(stop), at) for stop in self._stops if (at := pending.find(stop)) >= 0]
        if found:
            self.stopped, self._held = True, ""
            return pending[: min(found)[1]]
        keep = self._open_suffix(pending)
        self._held = pending[len(pending) - keep :]
        return pending[: len(pending) - keep]

    def finish(self) -> str:
        """Return what was held back: the text is over and it is no stop sequence after all."""
        held, self._held = self._held, ""
        return held

    def _open_suffix(self, text: str) -> int:
        """Return the length of the longest suffix of ``text`` that begins a stop sequence."""
        for size in range(min(self._longest - 1, len(text)), 0, -1):
            suffix = text[len(text) - size :]
            if any(stop.startswith(suffix) for stop in self._stops):
                return size
        return 0


class IncrementalUtf8:
    """Decodes bytes that may be cut anywhere; never returns half a character.

    Invalid bytes become U+FFFD.  Not safe for threads: one instance a stream.

    >>> decoder = IncrementalUtf8()
    >>> decoder.feed(b"caf\\xc3"), decoder.feed(b"\\xa9"), decoder.finish()
    ('caf', 'é', '')
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def feed(self, data: bytes) -> str:
        """Return the characters that are complete."""
        return self._decoder.decode(data)

    def finish(self) -> str:
        """Return U+FFFD for a character that was never completed, else an empty string."""
        return self._decoder.decode(b"", final=True)


def count_words(text: str) -> int:
    """Return the number of runs of non-space characters: the token count of backends without one.

    >>> count_words("to be, or  not")
    4
    """
    return len(text.split())
