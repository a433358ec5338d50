"""From pieces of generated text to the events of one choice, so that authors write no such loop."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from caesar_server.contract.events import (
    ChoiceFinished,
    ContentDelta,
    Event,
    FinishReason,
    UsageCounted,
)
from caesar_server.contract.request import Sampling
from caesar_server.contract.text import StopHoldback, count_words

if TYPE_CHECKING:
    from caesar_server.contract.context import Context

_WORD = re.compile(r"\s*\S+(?:\s+\Z)?|\s+")


def split_words(text: str) -> tuple[str, ...]:
    """Cut ``text`` into words that keep the space before them; joined they are ``text`` again.

    Space at the end stays with the last word, so there are ``count_words(text)`` pieces, unless
    ``text`` is nothing but space: then it is the only piece.

    >>> split_words("to be,\\n or  not ")
    ('to', ' be,', '\\n or', '  not ')
    """
    return tuple(_WORD.findall(text))


def choice_events(
    pieces: Iterable[str],
    context: Context,
    sampling: Sampling,
    *,
    choice: int = 0,
    echo: str = "",
    count: Callable[[str], int] = count_words,
) -> Iterator[Event]:
    """Yield one choice: its deltas, its usage and its ``ChoiceFinished``.

    ``sampling.max_tokens`` and ``sampling.stop`` are honoured.  The reason is ``length`` only if
    ``pieces`` had more to say, for which one piece more than ``max_tokens`` is asked for.  A stop
    sequence is cut out even where it spans pieces, and ends the choice before ``pieces`` is run to
    its end; close ``pieces`` yourself if it holds something that must be released.

    :param pieces: the text as it is made; each piece is one token for ``max_tokens``.
    :param context: looked at between the pieces.
    :param echo: text that goes before the first piece, outside of ``stop``, ``max_tokens`` and
        usage; the prompt, if the request has ``echo``.
    :param count: the tokens of the generated text that is returned, for ``UsageCounted``.  Those of
        the prompt are the caller's to count.
    :raises Cancelled: as soon as the run is cancelled.
    """
    if echo:
        yield ContentDelta(echo, choice)
    hold = StopHoldback(sampling.stop)
    text: list[str] = []
    reason: FinishReason = "stop"
    # looked up once: the loop turns for each token
    raise_if_cancelled, most = context.raise_if_cancelled, sampling.max_tokens
    feed = hold.feed if sampling.stop else None
    for number, piece in enumerate(pieces):
        raise_if_cancelled()
        if number == most:
            reason = "length"
            break
        if ready := piece if feed is None else feed(piece):
            text.append(ready)
            yield ContentDelta(ready, choice)
        if hold.stopped:
            break
    if rest := hold.finish():
        text.append(rest)
        yield ContentDelta(rest, choice)
    yield UsageCounted(completion_tokens=count("".join(text)))
    yield ChoiceFinished(choice, reason)
