"""Chance: shares, seeds, bias, penalties, n and best_of."""

from __future__ import annotations

from collections import Counter

import pytest


def test_words_come_as_often_as_the_model_says(opened, cats) -> None:
    ask = opened(cats.path)
    words: Counter[str] = Counter()
    for seed in range(5):
        answer = ask.complete("the cat", n=120, seed=1000 * seed, max_tokens=1)
        words.update(answer.texts)
    assert set(words) == {" ran", " sat"}
    # 600 draws with p = 2/3: four standard deviations are 0.077
    assert words[" ran"] / 600 == pytest.approx(2 / 3, abs=0.077)


def test_the_temperature_sharpens(opened, cats) -> None:
    answer = opened(cats.path).complete("the cat", n=100, seed=1, temperature=0.2, max_tokens=1)
    # 2^5 to 1
    assert answer.texts.count(" ran") >= 90


def test_the_same_seed_gives_the_same_text_whatever_was_asked_before(chance) -> None:
    ask = {"seed": 7, "max_tokens": 40}
    first = chance.complete("Once upon a time", **ask)
    others = [chance.complete("Once upon a time", seed=n, max_tokens=40).text for n in range(3)]
    chance.complete("Something else", max_tokens=20)
    again = [chance.complete("Once upon a time", **ask).text for _ in range(5)]
    assert again == [first.text] * 5
    assert len({first.text, *others}) == 4


@pytest.mark.parametrize("seed", [-1, -(2**63), 2**63 - 1, 2**32 - 1])
def test_every_seed_is_one(chance, seed: int) -> None:
    # 2^32 - 1 means "by chance" to llama.cpp
    texts = {chance.complete("Once", seed=seed, max_tokens=20).text for _ in range(3)}
    assert len(texts) == 1


def test_without_a_seed_texts_differ(chance) -> None:
    assert len({chance.complete("Once", max_tokens=30).text for _ in range(3)}) == 3


def test_choices_have_the_seeds_that_follow(chance) -> None:
    several = chance.complete("Once upon", n=3, seed=5, max_tokens=30)
    alone = [chance.complete("Once upon", seed=5 + k, max_tokens=30).text for k in range(3)]
    assert several.texts == alone
    assert several.usage[0] == chance.complete("Once upon", max_tokens=1).usage[0]


def test_prompts_are_answered_as_if_alone(chance) -> None:
    both = chance.complete("Once", "upon a time", seed=3, max_tokens=20)
    alone = [chance.complete(p, seed=3, max_tokens=20).text for p in ("Once", "upon a time")]
    assert both.texts == alone


def test_best_of_returns_the_likeliest(chance) -> None:
    asked = {"seed": 11, "max_tokens": 12}
    one_by_one = [
        chance.complete("Once upon", **{**asked, "seed": 11 + k}, logprobs=0) for k in range(6)
    ]

    def quality(answer) -> float:
        found = [token.logprob for token in answer.tokens()]
        return sum(found) / len(found)

    ranked = sorted(
        (answer for answer in one_by_one if answer.reason == "length"), key=quality, reverse=True
    )
    assert len(ranked) == 6  # no candidate ended by itself, which would count too
    best = chance.complete("Once upon", best_of=6, n=2, **asked)
    assert best.texts == [ranked[0].text, ranked[1].text]
    assert best.usage[1] == 6 * 12  # the candidates that lost were generated, too


def test_bias_decides(opened, cats) -> None:
    ask = opened(cats.path, temperature=0)
    assert ask.complete("the cat", max_tokens=1).text == " ran"
    assert ask.complete("the cat", max_tokens=1, logit_bias={cats.words["sat"]: 5}).text == " sat"
    banned = {cats.words["ran"]: -100, cats.words["sat"]: -100}
    assert ask.complete("the cat", max_tokens=1, logit_bias=banned).text not in (" ran", " sat")


def test_bias_does_not_change_logprobs(opened, cats) -> None:
    ask = opened(cats.path, temperature=0)
    answer = ask.complete("the cat", max_tokens=1, logit_bias={cats.words["sat"]: 5}, logprobs=1)
    (token,) = answer.tokens()
    assert token.logprob == pytest.approx(cats.logprob("cat", "sat"), abs=0.01)
    assert token.top[0].token == " ran"


@pytest.fixture
def loop(opened, tiny_model):
    """A model that says a or b after each a and b, mostly a."""
    model = tiny_model("bigram", text="a a a a a a a b a b")
    return opened(model.path, temperature=0)


@pytest.mark.parametrize("penalty", ["frequency_penalty", "presence_penalty"])
def test_penalties_count_what_was_generated(loop, penalty: str) -> None:
    assert loop.complete("a", max_tokens=3).text == " a a a"
    punished = loop.complete("a a a a", max_tokens=3, **{penalty: 2.0}).text
    # the first is as likely as ever, though the prompt is full of it
    assert punished.startswith(" a b")
    rewarded = loop.complete("a", max_tokens=8, **{penalty: -2.0}).text
    assert rewarded == " a" * 8


def test_the_repeat_penalty_counts_the_prompt(loop, opened, tiny_model) -> None:
    # log P is below 0, so that it is multiplied
    assert loop.complete("a", max_tokens=1, extra={"repeat_penalty": 20.0}).text == " b"
    assert loop.complete("a", max_tokens=1, extra={"repetition_penalty": 20.0}).text == " b"
    assert loop.complete("a", max_tokens=1, extra={"repeat_penalty": 1.0}).text == " a"


@pytest.mark.parametrize(
    "narrow",
    [{"top_p": 0.5}, {"top_p": 0.0}, {"extra": {"top_k": 1}}, {"extra": {"min_p": 0.9}}],
)
def test_narrow_choices(opened, cats, narrow) -> None:
    answer = opened(cats.path).complete("the cat", n=30, seed=1, max_tokens=1, **narrow)
    assert set(answer.texts) == {" ran"}


def test_top_p_reaches_its_share(opened, cats) -> None:
    answer = opened(cats.path).complete("the cat", n=60, seed=1, max_tokens=1, top_p=0.9)
    assert set(answer.texts) == {" ran", " sat"}


def test_the_operator_sets_what_requests_leave_open(opened, cats) -> None:
    ask = opened(cats.path, temperature=0)
    assert set(ask.complete("the cat", n=20, max_tokens=1).texts) == {" ran"}
    assert len(set(ask.complete("the cat", n=20, seed=1, max_tokens=1, temperature=1).texts)) == 2
