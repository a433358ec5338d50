"""Helpers for text that arrives in pieces: stop sequences, UTF-8, counting."""

from __future__ import annotations

import codecs
from collections import deque
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
        self._matches = [_StopMatch(stop) for stop in stops]
        # Pieces, since joining them at each new one would take quadratic time.
        self._held: deque[str] = deque()
        self._size = 0
        self.stopped = False

    def feed(self, text: str) -> str:
        """Return the part of the text so far that is certain and was not returned before.

        Once :attr:`stopped`, everything is swallowed.
        """
        if self.stopped:
            return ""
        if not self._matches:
            return text
        before = self._size
        # The stop that is complete first wins, of several the longest: the result must not depend
        # on how text was cut.
        found = [
            (end, end - match.length) for match in self._matches if (end := match.feed(text)) >= 0
        ]
        if not found:
            keep = max(match.open for match in self._matches)
            if not before and not keep:
                return text
            self._hold(text)
            return self._release(self._size - keep)
        self._hold(text)
        ready = self._release(before + min(found)[1])
        self.stopped, self._size = True, 0
        self._held.clear()
        return ready

    def finish(self) -> str:
        """Return what was held back: the text is over and it is no stop sequence after all."""
        return self._release(self._size)

    def _hold(self, text: str) -> None:
        self._held.append(text)
        self._size += len(text)

    def _release(self, size: int) -> str:
        """Take the first ``size`` characters of what is held."""
        self._size -= size
        ready: list[str] = []
        while size:
            piece = self._held.popleft()
            if len(piece) > size:
                self._held.appendleft(piece[size:])
                piece = piece[:size]
            ready.append(piece)
            size -= len(piece)
        return "".join(ready)


class _StopMatch:
    """Finds one stop sequence in text that comes in pieces (Knuth, Morris, Pratt).

    Takes time linear in text and stop: both come from a client, and comparing each suffix of the
    text with the stop would let a request of a megabyte keep a core busy for minutes.
    """

    def __init__(self, stop: str) -> None:
        self.length = len(stop)
        #: How many characters at the end of the text so far begin the stop.
        self.open = 0
        self._stop = stop
        #: At ``i``: the longest true prefix of the stop that also ends its first ``i + 1``
        #: characters.  Grows with :attr:`open`, since most of a long stop is never reached.
        self._borders = [0]

    def feed(self, text: str) -> int:
        """Return where in ``text`` the first occurrence ends that began at any time, or -1."""
        stop, borders, size = self._stop, self._borders, self.open
        at = 0
        while at < len(text):
            if not size:
                at = text.find(stop[0], at)
                if at < 0:
                    break
            letter = text[at]
            while size and stop[size] != letter:
                size = borders[size - 1]
            if stop[size] == letter:
                size += 1
            at += 1
            if size == self.length:
                return at
            if size > len(borders):
                self._grow()
        self.open = size
        return -1

    def _grow(self) -> None:
        stop, borders = self._stop, self._borders
        letter, size = stop[len(borders)], borders[-1]
        while size and stop[size] != letter:
            size = borders[size - 1]
        borders.append(size + 1 if stop[size] == letter else 0)


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


class WholeCharacters:
    """Passes on text that may be cut within a character; never returns half of one.

    Servers that count in units of UTF-16 send the two halves of a surrogate pair apart, each of
    them escaped in JSON.  A half without the other one becomes U+FFFD.  Not safe for threads: one
    instance a stream.

    >>> whole = WholeCharacters()
    >>> whole.feed("a" + chr(0xD83D)), whole.feed(chr(0xDE00) + "b") == chr(0x1F600) + "b"
    ('a', True)
    >>> whole.finish()
    ''
    """

    def __init__(self) -> None:
        self._half = ""

    def feed(self, text: str) -> str:
        """Return the characters that are complete."""
        if self._half:
            text, self._half = self._half + text, ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self._half = text[:-1], text[-1]
        try:
            text.encode()
        except UnicodeEncodeError:
            return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return text

    def finish(self) -> str:
        """Return U+FFFD for a character that was never completed, else an empty string."""
        half, self._half = self._half, ""
        return "\ufffd" if half else ""


def count_words(text: str) -> int:
    """Return the number of runs of non-space characters: the token count of backends without one.

    >>> count_words("to be, or  not")
    4
    """
    return len(text.split())
