"""Log probabilities as the two endpoints write them, as those of the contract: pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from caesar_server.contract import LogprobToken, TopLogprob

#: What OpenAI writes for a token that has no chance at all.
LEAST = -9999.0


class TokensError(ValueError):
    """A ``logprobs`` object is not what the API says."""


def read_tokens(logprobs: object) -> tuple[LogprobToken, ...] | None:
    """Read the ``logprobs`` of a choice, in either endpoint's form; None where there are none.

    A chunk without text may have an object without tokens.  llama.cpp writes a chat's form into
    completions too.

    :raises TokensError: if it is not what it must be.
    """
    if logprobs is None or logprobs in ({}, []):
        return None
    if not isinstance(logprobs, dict):
        raise TokensError("expected an object")
    content, tokens = logprobs.get("content"), logprobs.get("tokens")
    if isinstance(content, list):
        return tuple(_chat_token(item) for item in content)
    if isinstance(tokens, list):
        return _parallel_tokens(logprobs, tokens)
    if content is None and tokens is None and logprobs.keys() & {"content", "tokens"}:
        return None
    raise TokensError("expected an object with content or tokens")


def _parallel_tokens(
    logprobs: Mapping[str, Any], tokens: Sequence[object]
) -> tuple[LogprobToken, ...]:
    """Read the four parallel arrays of a completion."""
    own = logprobs.get("token_logprobs") or []
    tops = logprobs.get("top_logprobs") or [None] * len(tokens)
    if len(own) != len(tokens) or len(tops) != len(tokens):
        raise TokensError("expected arrays of one length")
    return tuple(
        LogprobToken(_text(token), None if logprob is None else _number(logprob), _tops(top))
        for token, logprob, top in zip(tokens, own, tops, strict=True)
    )


def _chat_token(item: object) -> LogprobToken:
    if not isinstance(item, dict):
        raise TokensError("expected an object for each token")
    tops: Sequence[object] = item.get("top_logprobs") or ()
    return LogprobToken(
        _text(item.get("token")),
        _number(item.get("logprob")),
        tuple(
            TopLogprob(_text(top.get("token")), _number(top.get("logprob")))
            for top in tops
            if isinstance(top, dict)
        ),
    )


def _tops(top: object) -> tuple[TopLogprob, ...]:
    if top is None:
        return ()
    if not isinstance(top, Mapping):
        raise TokensError("expected an object of alternatives")
    found = [(_text(token), _number(logprob)) for token, logprob in top.items()]
    return tuple(TopLogprob(*item) for item in sorted(found, key=lambda item: -item[1]))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TokensError("expected a string for each token")
    return value


def _number(value: object) -> float:
    """Return a log probability; one of a token without any chance, which JSON has no number for,
    is written as null or ``-Infinity``.
    """
    if value is None:
        return LEAST
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TokensError("expected a number for each logprob")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf if value > 0 else -math.inf
    if math.isnan(number) or number == math.inf:
        raise TokensError("expected a finite number for each logprob")
    return LEAST if number == -math.inf else number
