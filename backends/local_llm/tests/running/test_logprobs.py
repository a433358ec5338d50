"""Log probabilities, known beforehand."""

from __future__ import annotations

import math

import pytest

#: What half floats in the file make of the numbers.
CLOSE = 0.002


def test_of_generated_tokens(opened, cats) -> None:
    answer = opened(cats.path).complete("the cat", max_tokens=1, temperature=0, logprobs=2)
    (token,) = answer.tokens()
    assert (token.token, token.logprob) == (" ran", pytest.approx(math.log(2 / 3), abs=CLOSE))
    assert [top.token for top in token.top] == [" ran", " sat"]
    assert token.top[1].logprob == pytest.approx(math.log(1 / 3), abs=CLOSE)


@pytest.mark.parametrize("count", [0, 1, 5, 20])
def test_so_many_alternatives(opened, cats, count: int) -> None:
    answer = opened(cats.path).complete("the cat", max_tokens=2, seed=1, logprobs=count)
    for token in answer.tokens():
        assert len(token.top) == count
        assert [top.logprob for top in token.top] == sorted(
            (top.logprob for top in token.top), reverse=True
        )
        assert type(token.logprob) is float


def test_they_are_those_of_the_model_at_any_temperature(opened, cats) -> None:
    answer = opened(cats.path).complete(
        "the cat", max_tokens=1, n=4, seed=1, temperature=0.5, logprobs=0
    )
    for choice in range(4):
        (token,) = answer.tokens(choice)
        expected = cats.logprob("cat", token.token.strip())
        assert token.logprob == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize("tokenizer", ["spm", "bpe"])
def test_of_the_prompt(opened, tiny_model, tokenizer) -> None:
    model = tiny_model("bigram", tokenizer, text="the cat ran\nthe cat ran\nthe cat sat")
    prompt = "the cat sat" if tokenizer == "spm" else " the cat sat"
    answer = opened(model.path).complete(prompt, max_tokens=1, temperature=0, logprobs=1, echo=True)
    assert answer.text.startswith(prompt)
    tokens = answer.tokens()
    assert "".join(token.token for token in tokens) == answer.text
    # an entry for each token of the prompt, as usage counts them; and the text has ended there
    assert len(tokens) == sum(answer.usage) == 4
    assert [token.token.strip() for token in tokens] == ["", "the", "cat", "sat"]
    assert (tokens[0].logprob, tokens[0].top) == (None, ())
    expected = [math.log(1), math.log(1), math.log(1 / 3)]
    assert [token.logprob for token in tokens[1:]] == pytest.approx(expected, abs=CLOSE)


def test_of_a_prompt_of_token_ids(opened, cats) -> None:
    answer = opened(cats.path).complete(
        tuple(cats.ids("the cat")), max_tokens=1, temperature=0, logprobs=0, echo=True
    )
    assert [token.token for token in answer.tokens()] == ["the", " cat", " ran"]
    assert answer.tokens()[0].logprob is None


@pytest.mark.parametrize("length", [1, 127, 128, 129, 300])
def test_a_long_prompt_is_scored_batch_by_batch(chance, length: int) -> None:
    ids = tuple((7 * number) % 250 + 3 for number in range(length))
    scored = chance.complete(ids, max_tokens=8, seed=1, logprobs=0, echo=True)
    assert len(scored.tokens()) == length + scored.usage[1]
    # scoring looks at all rows of a batch, and must not change what comes after
    plain = chance.complete(ids, max_tokens=8, seed=1)
    assert scored.text.endswith(plain.text)
    # the score of a token does not depend on what comes after it
    if length > 1:
        shorter = chance.complete(ids[:-1], max_tokens=1, seed=1, logprobs=0, echo=True)
        found = [token.logprob for token in scored.tokens()[1 : length - 1]]
        assert [t.logprob for t in shorter.tokens()[1 : length - 1]] == pytest.approx(
            found, abs=1e-3
        )


@pytest.mark.parametrize("prompt", ["Zoë 🙂", "a\ud800b", " ", "<s>Once", "\x00"])
@pytest.mark.parametrize("tokenizer", ["spm", "bpe"])
def test_of_any_prompt_the_tokens_join_to_it(opened, tiny_model, tokenizer, prompt) -> None:
    ask = opened(tiny_model("echo", tokenizer).path, temperature=0)
    answer = ask.complete(prompt, max_tokens=1, logprobs=0, echo=True)
    assert answer.text.startswith(prompt)
    assert "".join(token.token for token in answer.tokens()) == answer.text
    assert len(answer.tokens()) == sum(answer.usage)


def test_alternatives_that_are_no_text_are_named(opened, tiny_model) -> None:
    model = tiny_model("bigram", text="say <0xFF>\nsay <0xFE>")
    answer = opened(model.path).complete(" say", max_tokens=1, temperature=0, logprobs=2)
    assert {top.token for top in answer.tokens()[0].top} == {"bytes:\\xff", "bytes:\\xfe"}
