"""The prompt as the beginning of a choice, with the log probabilities of its own tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from caesar_backend_local_llm.engine.likelihoods import described
from caesar_backend_local_llm.engine.vocabulary import Vocabulary
from caesar_server.contract import ContentDelta, IncrementalUtf8, LogprobToken


class EchoedPrompt:
    """Collects what the model thinks of the tokens of a prompt, while it reads them.

    There is a description for each token of the prompt, also for one that only marks its beginning
    and has no text; the first has no log probability.

    :param tokens: the prompt's, at least one.
    :param alternatives: how many to describe at each token.
    """

    def __init__(self, vocabulary: Vocabulary, tokens: Sequence[int], alternatives: int) -> None:
        self._vocabulary = vocabulary
        self._tokens = tokens
        self._alternatives = alternatives
        self._described = [LogprobToken(vocabulary.name(tokens[0]), None)]

    def note(self, position: int, logits: npt.NDArray[np.float32]) -> None:
        """Take the logits after the token at ``position``; called for each in order."""
        following = position + 1
        if following < len(self._tokens):
            self._described.append(
                described(self._vocabulary, logits, self._tokens[following], self._alternatives)
            )

    def delta(self, text: str) -> ContentDelta:
        """Return ``text`` with all tokens; they join to it, whatever the vocabulary made of it."""
        texts = _aligned(text, self._tokens, self._vocabulary)
        return ContentDelta(
            text,
            logprobs=tuple(
                replace(token, token=own) for token, own in zip(self._described, texts, strict=True)
            ),
        )


def _aligned(text: str, tokens: Sequence[int], vocabulary: Vocabulary) -> list[str]:
    """Return which part of ``text`` each token stands for; joined they are ``text``."""
    data = text.encode("utf-8", errors="surrogatepass")
    texts: list[str] = []
    utf8, at = IncrementalUtf8(), 0
    for token in tokens:
        size = _length_at(data, at, token, vocabulary)
        texts.append(utf8.feed(data[at : at + size]))
        at += size
    said = "".join(texts)
    if text.startswith(said):
        texts[-1] += text[len(said) :]
        return texts
    return [*[""] * (len(tokens) - 1), text]  # a lone surrogate, which is in no vocabulary


def _length_at(data: bytes, at: int, token: int, vocabulary: Vocabulary) -> int:
    """Return how many bytes a token stands for at a place; 0 if it is not there."""
    plain = vocabulary.piece(token)
    pieces = [plain, vocabulary.piece(token, special=True)]
    if at == 0:
        pieces.append(plain.removeprefix(b" "))  # some models put a space before every text
    return next((len(piece) for piece in pieces if piece and data.startswith(piece, at)), 0)
