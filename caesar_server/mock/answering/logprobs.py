"""Log probabilities: those that a rule gives, or such as look plausible and are always the same."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from random import Random

from caesar_server.contract import LogprobToken, TopLogprob
from caesar_server.mock.model.reply import MockToken

#: Words that no better alternative can be thought of for a made-up token.
_OTHERS = (" the", " a", " of", " and", " to", " in", " is", " that", " it", " for", " was", " on",
           " as", " with", " by", " at", " from", " are", " this", " be", " or", " an")  # fmt: skip


def made_up(tokens: Sequence[str], top: int, text: str) -> list[LogprobToken]:
    """Return made-up log probabilities, the same for the same ``text``, whatever ``top`` is.

    The alternatives of a token are ordered by their probability and add up to less than 1; fewer of
    them are the first of more.

    :param top: so many alternatives for each token, itself among them.
    :param text: seeds the chance.
    """
    # two, so that nothing that is shown depends on how much else is
    chosen, others = Random(_seed_of(text)), Random(_seed_of(f"others|{text}"))
    return [_made_up(token, top, chosen, others) for token in tokens]


def given(tokens: Sequence[MockToken], top: int) -> list[LogprobToken]:
    """Return the log probabilities that a rule gives.

    :param top: so many alternatives for each token at most.
    """
    return [LogprobToken(token.token, token.logprob, _best(token.top, top)) for token in tokens]


def of_prompt(tokens: Sequence[LogprobToken]) -> list[LogprobToken]:
    """Return the log probabilities of an echoed prompt: nothing is known of its first token."""
    return [LogprobToken(one.token, None) if i == 0 else one for i, one in enumerate(tokens)]


def trimmed(tokens: Sequence[LogprobToken], length: int) -> list[LogprobToken]:
    """Return the tokens of the first ``length`` characters; the last one may be cut."""
    kept: list[LogprobToken] = []
    for token in tokens:
        if length <= 0:
            break
        if len(token.token) > length:
            token = LogprobToken(token.token[:length], token.logprob, token.top)
        kept.append(token)
        length -= len(token.token)
    return kept


def _made_up(token: str, top: int, chosen: Random, others: Random) -> LogprobToken:
    probability = chosen.uniform(0.4, 0.98)
    logprob = round(math.log(probability), 6)
    alternatives = [TopLogprob(token, logprob)]
    if top > 1:
        # a little stays for words that are not there, or rounding would make it more than 1
        left = 0.99 * (1 - probability)
        words = [word for word in _OTHERS if word != token]
        for other in others.sample(words, len(words)):
            share = left * others.uniform(0.3, 0.6)
            left -= share
            alternatives.append(TopLogprob(other, round(math.log(share), 6)))
        alternatives.sort(key=lambda one: -one.logprob)
    return LogprobToken(token, logprob, tuple(alternatives[:top]))


def _best(top: dict[str, float], count: int) -> tuple[TopLogprob, ...]:
    best = sorted(top.items(), key=lambda item: -item[1])[:count]
    return tuple(TopLogprob(token, logprob) for token, logprob in best)


def _seed_of(text: str) -> int:
    data = text.encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big")
