"""The next token, from the model's scores: our own, so that it depends on nothing but the request.

The order is that of vLLM: bias and penalties, temperature, then ``min_p``, ``top_k`` and ``top_p``.
llama.cpp's own samplers would take the temperature last, know seeds of 32 bits only, and take one
of them for "by chance".
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from caesar_backend_local_llm.engine.failures import EvaluationError
from caesar_backend_local_llm.engine.grammars.grammar import Grammar

Scores = npt.NDArray[np.float32]

#: A lower temperature leaves nothing to chance, and single precision could not divide by it.
_GREEDY_BELOW = 1e-5
#: So many of the best are looked at first for top_p; they are enough unless the model is at a loss.
_FIRST_LOOK = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingRules:
    """How a token is chosen; the defaults are those of OpenAI's API: by the model's probabilities.

    :param temperature: 0 always takes the most likely.
    :param top_p: of the most likely, so many that their probabilities reach it; 1: all.
    :param top_k: so many of the most likely; 0: all.
    :param min_p: those at least so likely as this share of the most likely; 0: all.
    :param frequency_penalty: is taken off a token's score for each time it was generated.
    :param presence_penalty: is taken off once if it was generated at all.
    :param repeat_penalty: divides the score of what stands in the prompt or was generated; 1: none.
    :param logit_bias: is added to a token's score.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repeat_penalty: float = 1.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)


class Sampler:
    """Chooses the tokens of one choice.  For one thread at a time.

    :param prompt: the tokens before the first.
    :param seed: any integer; the same gives the same choices.  None: by chance.
    :param grammar: what the text must follow; it is gone on with.
    """

    def __init__(
        self,
        rules: SamplingRules,
        prompt: Sequence[int],
        seed: int | None,
        grammar: Grammar | None = None,
    ) -> None:
        self._rules = rules
        # of a negative number Python would take the absolute value
        self._chance = random.Random(None if seed is None else seed % 2**64)
        self._grammar = grammar
        self._counts: Counter[int] = Counter()
        self._seen = set(prompt) if rules.repeat_penalty != 1 else set[int]()
        self._biased = np.fromiter(rules.logit_bias.keys(), dtype=np.int64)
        self._bias = np.fromiter(rules.logit_bias.values(), dtype=np.float32)

    def choose(self, logits: Scores) -> int | None:
        """Return the next token, or None if the grammar allows none that the model knows.

        :raises EvaluationError: if the scores are no numbers.
        """
        scores = self._adjusted(logits)
        token = self._pick(scores)
        if self._grammar is not None and not self._grammar.allows(token):
            # To ask for one is much cheaper than for all, and the first is mostly right; chosen
            # again among what is allowed, the shares of the allowed ones stay as they are.
            scores = self._grammar.masked(scores)
            if not np.isfinite(scores).any():
                return None
            token = self._pick(scores)
        return token

    def accept(self, token: int) -> None:
        """Note that the text goes on with ``token``, one that :meth:`choose` returned."""
        if self._grammar is not None:
            self._grammar.accept(token)
        self._counts[token] += 1
        if self._rules.repeat_penalty != 1:
            self._seen.add(token)

    def _adjusted(self, logits: Scores) -> Scores:
        """Return the scores with bias and penalties; the model's own are not changed."""
        rules = self._rules
        penalised = self._counts and (rules.frequency_penalty or rules.presence_penalty)
        if not (self._seen or penalised or len(self._biased)):
            return logits
        scores = logits.copy()
        if self._seen:
            seen = np.fromiter(self._seen, dtype=np.int64)
            values = scores[seen]
            factor = np.float32(rules.repeat_penalty)
            scores[seen] = np.where(values > 0, values / factor, values * factor)
        if penalised:
            used = np.fromiter(self._counts.keys(), dtype=np.int64)
            times = np.fromiter(self._counts.values(), dtype=np.float32)
            scores[used] -= np.float32(rules.frequency_penalty) * times
            scores[used] -= np.float32(rules.presence_penalty)
        if len(self._biased):
            scores[self._biased] += self._bias
        return scores

    def _pick(self, scores: Scores) -> int:
        best = int(scores.argmax())
        highest = scores[best]
        if not np.isfinite(highest):
            raise EvaluationError("the model's scores are no numbers; its file may be damaged")
        if self._rules.temperature < _GREEDY_BELOW:
            return best
        weights = np.exp((scores - highest) / np.float32(self._rules.temperature))
        tokens = self._candidates(weights)
        shares = (weights if tokens is None else weights[tokens]).cumsum(dtype=np.float64)
        # random() is below 1, and the cut is where the sum goes beyond it
        drawn = int(shares.searchsorted(self._chance.random() * shares[-1], side="right"))
        drawn = min(drawn, len(shares) - 1)
        return drawn if tokens is None else int(tokens[drawn])

    def _candidates(self, weights: Scores) -> npt.NDArray[np.int64] | None:
        """Return the tokens that may be drawn, the most likely first; None for all.

        :param weights: unnormalised probabilities, the highest 1.
        """
        rules = self._rules
        tokens: npt.NDArray[np.int64] | None = None
        if rules.min_p > 0:
            tokens = _sorted(weights, np.flatnonzero(weights >= np.float32(rules.min_p)))
        if 0 < rules.top_k < (len(weights) if tokens is None else len(tokens)):
            tokens = (_best(weights, rules.top_k) if tokens is None else tokens)[: rules.top_k]
        if rules.top_p < 1:
            tokens = _nucleus(weights, tokens, rules.top_p)
        return tokens


def _sorted(weights: Scores, tokens: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return ``tokens`` by falling weight; of equal ones the lower id first."""
    return tokens[np.lexsort((tokens, -weights[tokens]))]


def _best(weights: Scores, count: int) -> npt.NDArray[np.int64]:
    """Return the ``count`` tokens with the highest weights, the highest first."""
    if count >= len(weights):
        return _sorted(weights, np.arange(len(weights)))
    return _sorted(weights, np.argpartition(weights, len(weights) - count)[-count:])


def _nucleus(
    weights: Scores, tokens: npt.NDArray[np.int64] | None, top_p: float
) -> npt.NDArray[np.int64]:
    """Return the most likely tokens whose probabilities reach ``top_p``; at least one."""
    if tokens is not None:
        return _reaching(weights, tokens, top_p * weights[tokens].sum(dtype=np.float64))
    wanted = top_p * weights.sum(dtype=np.float64)
    count = _FIRST_LOOK
    while True:
        tokens = _best(weights, min(count, len(weights)))
        if count >= len(weights) or weights[tokens].sum(dtype=np.float64) >= wanted:
            return _reaching(weights, tokens, wanted)
        count *= 8


def _reaching(
    weights: Scores, tokens: npt.NDArray[np.int64], wanted: float
) -> npt.NDArray[np.int64]:
    sums = weights[tokens].cumsum(dtype=np.float64)
    return tokens[: int(sums.searchsorted(wanted)) + 1]
