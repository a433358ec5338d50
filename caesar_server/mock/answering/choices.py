"""One choice of a reply: its text within the caller's limits, its chunks and their tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from caesar_server.contract import LogprobToken, Sampling, StopHoldback, count_words, split_words
from caesar_server.contract.events import FinishReason
from caesar_server.mock.answering import logprobs
from caesar_server.mock.answering.pieces import cut, evenly
from caesar_server.mock.model.pacing import Pacing
from caesar_server.mock.model.reply import MockChoice, Reply

#: Text of a delta and, if they were asked for, its tokens.
Chunk: TypeAlias = tuple[str, tuple[LogprobToken, ...] | None]


class Said(msgspec.Struct, frozen=True):
    """What a choice says.

    :param tokens: the log probabilities, if they were asked for; they join to ``text``.
    :param count: tokens of ``text``.
    """

    text: str
    reason: FinishReason
    count: int
    tokens: tuple[LogprobToken, ...] | None = None


def choice_of(reply: Reply, k: int) -> MockChoice:
    """Return choice ``k`` of a prompt, from 0; if there are fewer, they take turns."""
    if reply.choices:
        return reply.choices[k % len(reply.choices)]
    return MockChoice(text=reply.text_of(k))


def said(choice: MockChoice, sampling: Sampling) -> Said:
    """Return what a choice says within ``max_tokens`` and before a stop sequence.

    A token is a word, or what the rule gives as one.
    """
    own = choice.logprobs
    if sampling.max_tokens is None and not sampling.stop and sampling.logprobs is None:
        count = count_words(choice.text) if own is None else len(own)
        return Said(choice.text, choice.finish_reason or "stop", count)
    pieces = split_words(choice.text) if own is None else [token.token for token in own]
    text, reason = _limited(pieces, sampling)
    tokens = None
    if sampling.logprobs is not None:
        made = _tokens(choice, pieces, sampling.logprobs)
        tokens = tuple(logprobs.trimmed(made, len(text)))
    count = count_words(text) if own is None else _tokens_within(pieces, len(text))
    return Said(text, choice.finish_reason or reason, count, tokens)


def prompt_said(prompt: str, sampling: Sampling) -> Said:
    """Return the prompt as an echo says it, before the answer."""
    tokens: tuple[LogprobToken, ...] | None = None
    if sampling.logprobs is not None:
        made = logprobs.made_up(split_words(prompt), sampling.logprobs, prompt)
        tokens = tuple(logprobs.of_prompt(made))
    return Said(prompt, "stop", 0, tokens)


def chunks_of(answer: Said, pacing: Pacing, chunks: int | None) -> list[Chunk]:
    """Return the deltas of a text; with log probabilities each holds whole tokens.

    :param chunks: so many, or fewer if the text does not give as many; None cuts as ``pacing``
        says.
    """
    if answer.tokens is None:
        return [(text, None) for text in cut(answer.text, pacing, chunks)]
    if chunks is None:
        size = max(1, pacing.size if pacing.unit != "character" else 1)
        chunks = -(-len(answer.tokens) // size)
    return [
        ("".join(token.token for token in group), tuple(group))
        for group in evenly(answer.tokens, chunks)
    ]


def _limited(pieces: Sequence[str], sampling: Sampling) -> tuple[str, FinishReason]:
    hold = StopHoldback(sampling.stop)
    text = []
    reason: FinishReason = "stop"
    for number, piece in enumerate(pieces):
        if number == sampling.max_tokens:
            reason = "length"
            break
        text.append(hold.feed(piece))
        if hold.stopped:
            break
    text.append(hold.finish())
    return "".join(text), reason


def _tokens(choice: MockChoice, pieces: Sequence[str], top: int) -> list[LogprobToken]:
    if choice.logprobs is not None:
        return logprobs.given(choice.logprobs, top)
    return logprobs.made_up(pieces, top, choice.text)


def _tokens_within(pieces: Sequence[str], length: int) -> int:
    count = 0
    while count < len(pieces) and length > 0:
        length -= len(pieces[count])
        count += 1
    return count
