"""Log probabilities as the two endpoints write them, as those of the contract: pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from caesar_server.contract import LogprobToken, TopLogprob


class TokensError(ValueError):
    """A ``logprobs`` object is not what the API says."""


def completion_tokens(logprobs: object) -> tuple[LogprobToken, ...] | None:
    """Read the four parallel arrays of a completion; None where there are none.

    :raises TokensError: if they do not fit.
    """
    if logprobs is None:
        return None
    if isinstance(logprobs, dict) and isinstance(logprobs.get("content"), list):
        return chat_tokens(logprobs)  # llama.cpp writes a chat's form into completions too
    if not isinstance(logprobs, dict) or not isinstance(logprobs.get("tokens"), list):
        raise TokensError("expected an object with tokens")
    tokens, own = logprobs["tokens"], logprobs.get("token_logprobs") or []
    tops = logprobs.get("top_logprobs") or [None] * len(tokens)
    if len(own) != len(tokens) or len(tops) != len(tokens):
        raise TokensError("expected arrays of one length")
    return tuple(
        LogprobToken(_text(token), _number(logprob, optional=True), _tops(top))
        for token, logprob, top in zip(tokens, own, tops, strict=True)
    )


def chat_tokens(logprobs: object) -> tuple[LogprobToken, ...] | None:
    """Read a chat's ``logprobs``; None where there are none.

    :raises TokensError: if it is not what it must be.
    """
    if logprobs is None:
        return None
    content = logprobs.get("content") if isinstance(logprobs, dict) else None
    if content is None and isinstance(logprobs, dict):
        return None
    if not isinstance(content, list):
        raise TokensError("expected an object with content")
    return tuple(_chat_token(item) for item in content)


def _chat_token(item: object) -> LogprobToken:
    if not isinstance(item, dict):
        raise TokensError("expected an object for each token")
    tops: Sequence[object] = item.get("top_logprobs") or ()
    return LogprobToken(
        _text(item.get("token")),
        _number(item.get("logprob")),
        tuple(
            TopLogprob(_text(top.get("token")), _number(top.get("logprob")) or 0.0)
            for top in tops
            if isinstance(top, dict)
        ),
    )


def _tops(top: object) -> tuple[TopLogprob, ...]:
    if top is None:
        return ()
    if not isinstance(top, Mapping):
        raise TokensError("expected an object of alternatives")
    found: list[Any] = [(_text(token), _number(logprob) or 0.0) for token, logprob in top.items()]
    return tuple(TopLogprob(*item) for item in sorted(found, key=lambda item: -item[1]))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TokensError("expected a string for each token")
    return value


def _number(value: object, *, optional: bool = False) -> float | None:
    if value is None and optional:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TokensError("expected a number for each logprob")
    return float(value)
