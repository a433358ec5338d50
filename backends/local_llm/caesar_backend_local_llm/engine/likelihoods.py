"""Log probabilities of tokens, from the model's scores before any bias, penalty or temperature."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from caesar_backend_local_llm.engine.vocabulary import Vocabulary
from caesar_server.contract import LogprobToken, TopLogprob


def logprob_of(logits: npt.NDArray[np.float32], token: int) -> float:
    """Return the natural logarithm of the probability of ``token``."""
    return float(logits[token]) - _log_total(logits)


def _log_total(logits: npt.NDArray[np.float32]) -> float:
    highest = float(logits.max())
    # in double precision: of a hundred thousand small numbers single precision loses some
    return highest + float(np.log(np.exp(logits - np.float32(highest)).sum(dtype=np.float64)))


def described(
    vocabulary: Vocabulary, logits: npt.NDArray[np.float32], token: int, alternatives: int
) -> LogprobToken:
    """Return a token's log probability and the most likely ones at its place.

    :param alternatives: how many of those, 0 or more.
    """
    total = _log_total(logits)
    count = min(alternatives, len(logits))
    best = np.argpartition(logits, len(logits) - count)[len(logits) - count :] if count else ()
    ordered = sorted((int(one) for one in best), key=lambda one: (-float(logits[one]), one))
    return LogprobToken(
        vocabulary.name(token),
        float(logits[token]) - total,
        tuple(TopLogprob(vocabulary.name(one), float(logits[one]) - total) for one in ordered),
    )
