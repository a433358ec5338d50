"""From tokens to the deltas of a choice: UTF-8, stop sequences, log probabilities."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from caesar_server.contract import ContentDelta, IncrementalUtf8, LogprobToken, StopHoldback


@dataclass(slots=True)
class _Waiting:
    """A token whose text is not out yet."""

    text: str
    token: LogprobToken


class ChoiceText:
    """Puts the pieces of one choice together.  For one thread at a time.

    What may yet become a stop sequence, and half a character, are held back.  With log
    probabilities a delta holds whole tokens, but for one that a stop sequence cuts.

    :param choice: the number of the choice.
    :param stops: the stop sequences.
    :param with_logprobs: every token is described.
    """

    def __init__(self, choice: int, stops: Sequence[str], *, with_logprobs: bool) -> None:
        self._choice = choice
        self._utf8 = IncrementalUtf8()
        self._hold = StopHoldback(stops)
        self._with_logprobs = with_logprobs
        self._waiting: deque[_Waiting] = deque()
        #: Text that is certain and waits for the rest of its token.
        self._ready = ""

    @property
    def stopped(self) -> bool:
        """Whether a stop sequence has ended the text."""
        return self._hold.stopped

    def feed(self, piece: bytes, token: LogprobToken | None = None) -> ContentDelta | None:
        """Add a token's bytes; return what can be said now.

        :param token: its description, whose text is replaced by what the token adds.
        """
        text = self._utf8.feed(piece)
        if token is not None:
            self._waiting.append(_Waiting(text, token))
        return self._delta(self._hold.feed(text), end=self.stopped)

    def finish(self) -> ContentDelta | None:
        """Return what was held back: nothing more comes."""
        if self.stopped:
            return None
        rest = self._utf8.finish()
        if rest and self._waiting:
            self._waiting[-1].text += rest
        ready = self._hold.feed(rest)
        if not self.stopped:
            ready += self._hold.finish()
        return self._delta(ready, end=True)

    def _delta(self, ready: str, *, end: bool) -> ContentDelta | None:
        if not self._with_logprobs:
            return ContentDelta(ready, self._choice) if ready else None
        self._ready += ready
        tokens = self._whole_tokens()
        if end:
            tokens += self._last_tokens()
        if not tokens:
            return None
        text = "".join(token.token for token in tokens)
        return ContentDelta(text, self._choice, logprobs=tuple(tokens))

    def _whole_tokens(self) -> list[LogprobToken]:
        """Take the tokens whose text is ready.

        One without text, such as the first half of a character, goes with the next that has some.
        """
        size = count = 0
        for number, waiting in enumerate(self._waiting, 1):
            size += len(waiting.text)
            if size > len(self._ready):
                break
            if waiting.text:
                count = number
        taken = [self._waiting.popleft() for _ in range(count)]
        self._ready = self._ready[sum(len(one.text) for one in taken) :]
        return [replace(one.token, token=one.text) for one in taken]

    def _last_tokens(self) -> list[LogprobToken]:
        """Take what is left at the end: of a token that a stop sequence cuts, what is before it."""
        taken: list[LogprobToken] = []
        while self._waiting and (self._ready or not self.stopped):
            one = self._waiting.popleft()
            text, self._ready = self._ready[: len(one.text)], self._ready[len(one.text) :]
            taken.append(replace(one.token, token=text))
        return taken
