"""The choice of a token, without a model."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from caesar_backend_local_llm.engine.failures import EvaluationError
from caesar_backend_local_llm.engine.sampler import Sampler, SamplingRules

LOGITS = np.log(np.array([0.5, 0.25, 0.15, 0.1], dtype=np.float32))


def drawn(rules: SamplingRules, logits=LOGITS, count: int = 2000, prompt=()) -> Counter[int]:
    sampler = Sampler(rules, prompt, seed=1)
    return Counter(sampler.choose(logits) for _ in range(count))


def shares(found: Counter[int]) -> dict[int, float]:
    return {token: times / found.total() for token, times in found.items()}


def test_the_shares_are_the_probabilities() -> None:
    expected = {0: 0.5, 1: 0.25, 2: 0.15, 3: 0.1}
    assert shares(drawn(SamplingRules())) == pytest.approx(expected, abs=0.045)


@pytest.mark.parametrize("temperature", [0.0, 1e-9, 1e-6])
def test_almost_no_temperature_is_none(temperature: float) -> None:
    assert set(drawn(SamplingRules(temperature=temperature), count=50)) == {0}


def test_two_degrees_flatten() -> None:
    expected = {token: float(np.sqrt(p)) for token, p in enumerate([0.5, 0.25, 0.15, 0.1])}
    total = sum(expected.values())
    assert shares(drawn(SamplingRules(temperature=2.0))) == pytest.approx(
        {token: value / total for token, value in expected.items()}, abs=0.045
    )


@pytest.mark.parametrize(
    ("rules", "left"),
    [
        ({"top_p": 0.0}, {0}),
        ({"top_p": 0.5}, {0}),
        ({"top_p": 0.51}, {0, 1}),
        ({"top_p": 0.9}, {0, 1, 2}),
        ({"top_p": 0.95}, {0, 1, 2, 3}),
        ({"top_k": 1}, {0}),
        ({"top_k": 3}, {0, 1, 2}),
        ({"top_k": 9}, {0, 1, 2, 3}),
        ({"min_p": 0.29}, {0, 1, 2}),
        ({"min_p": 1.0}, {0}),
        ({"min_p": 0.29, "top_k": 2}, {0, 1}),
        ({"top_k": 2, "top_p": 0.6}, {0}),  # 0.5 of 0.75
        ({"temperature": 0.5, "top_p": 0.7}, {0}),  # squared, the first has 0.725
    ],
)
def test_what_may_be_drawn(rules, left) -> None:
    assert set(drawn(SamplingRules(**rules))) == left


def test_top_p_over_many_equal_tokens() -> None:
    logits = np.zeros(5000, dtype=np.float32)
    found = drawn(SamplingRules(top_p=0.5), logits)
    assert len(found) > 1000  # more than the first look
    assert max(found) - min(found) >= 2400


def test_penalties() -> None:
    sampler = Sampler(SamplingRules(temperature=0, frequency_penalty=0.5), (), seed=None)
    chosen = []
    for _ in range(4):
        token = sampler.choose(LOGITS)
        sampler.accept(token)
        chosen.append(token)
    # log 0.5 is 0.69 above log 0.25 and 1.2 above log 0.15; each use takes 0.5 off
    assert chosen == [0, 0, 1, 0]


def test_presence_counts_once() -> None:
    sampler = Sampler(SamplingRules(temperature=0, presence_penalty=0.6), (), seed=None)
    for _ in range(5):
        assert sampler.choose(LOGITS) == 0
        sampler.accept(0)


def test_the_repeat_penalty_on_both_sides_of_zero() -> None:
    logits = np.array([2.0, 1.5, -1.0, -1.4], dtype=np.float32)
    rules = SamplingRules(temperature=0, repeat_penalty=2.0)
    assert Sampler(rules, (0,), None).choose(logits) == 1
    assert Sampler(rules, (0, 1), None).choose(logits) == 0
    down = np.array([-1.0, -1.5], dtype=np.float32)
    assert Sampler(rules, (0,), None).choose(down) == 1


def test_the_models_own_scores_are_left_as_they_are() -> None:
    logits = LOGITS.copy()
    rules = SamplingRules(logit_bias={1: 3.0}, repeat_penalty=1.5, presence_penalty=1)
    sampler = Sampler(rules, (2,), seed=1)
    for _ in range(3):
        token = sampler.choose(logits)
        sampler.accept(token)
    assert (logits == LOGITS).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_scores_that_are_no_numbers(bad) -> None:
    logits = LOGITS.copy()
    logits[2] = bad
    with pytest.raises(EvaluationError, match="no numbers"):
        Sampler(SamplingRules(), (), 1).choose(logits)


def test_seeds() -> None:
    def first_ten(seed):
        sampler = Sampler(SamplingRules(), (), seed)
        return [sampler.choose(LOGITS) for _ in range(10)]

    assert first_ten(3) == first_ten(3)
    assert first_ten(-3) != first_ten(3)
    assert len({tuple(first_ten(None)) for _ in range(5)}) > 1


class Fake:
    """A grammar of token ids."""

    def __init__(self, *allowed: int) -> None:
        self.allowed = set(allowed)
        self.accepted: list[int] = []

    def allows(self, token: int) -> bool:
        return token in self.allowed

    def masked(self, scores):
        return np.where([n in self.allowed for n in range(len(scores))], scores, -np.inf)

    def accept(self, token: int) -> None:
        self.accepted.append(token)


def test_a_grammar_keeps_the_shares_of_the_allowed() -> None:
    sampler = Sampler(SamplingRules(), (), 1, Fake(1, 3))
    found = Counter(sampler.choose(LOGITS) for _ in range(2000))
    assert shares(found) == pytest.approx({1: 0.25 / 0.35, 3: 0.1 / 0.35}, abs=0.045)


def test_a_grammar_that_allows_nothing() -> None:
    assert Sampler(SamplingRules(), (), 1, Fake()).choose(LOGITS) is None
