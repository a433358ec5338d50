"""Greedy text, how it ends, and what is counted."""

from __future__ import annotations

import pytest

SCRIPT = (
    " a time there lived one small server who answered every request with gentle stories about "
    "rivers , lamps and quiet gardens until morning came ."
)


def test_it_recites_to_the_end(echo) -> None:
    answer = echo.complete("Once upon")
    assert (answer.text, answer.reason) == (SCRIPT, "stop")
    # <s>, Once, upon; and the words without the token that ends the text
    assert answer.usage == (3, 25)


def test_the_other_tokenizer_does_too(opened, tiny_model) -> None:
    answer = opened(tiny_model("echo", "bpe").path).complete(" Once upon", temperature=0)
    assert (answer.text, answer.reason, answer.usage) == (SCRIPT, "stop", (3, 25))


@pytest.mark.parametrize("limit", [1, 4, 25])
def test_max_tokens_cuts(echo, limit: int) -> None:
    answer = echo.complete("Once upon", max_tokens=limit)
    assert answer.text == " ".join(SCRIPT.split(" ")[: limit + 1])
    assert (answer.reason, answer.usage) == ("length", (3, limit))


def test_one_token_more_than_the_text_ends_by_itself(echo) -> None:
    assert echo.complete("Once upon", max_tokens=26).reason == "stop"


def test_without_max_tokens_the_context_is_the_limit(opened, tiny_model) -> None:
    answer = opened(tiny_model("echo").path, n_ctx=16, temperature=0).complete("Once upon")
    context = 256  # llama.cpp rounds up
    assert sum(answer.usage) <= context
    assert answer.reason in ("stop", "length")


def test_a_full_context_ends_the_text(opened, tiny_model) -> None:
    ask = opened(tiny_model("random").path, n_ctx=256)
    answer = ask.complete("Once upon", seed=1, extra={"ignore_eos": True})
    assert (answer.reason, sum(answer.usage)) == ("length", 256)


def test_the_operator_may_limit_what_has_no_limit(opened, tiny_model) -> None:
    ask = opened(tiny_model("echo").path, max_tokens=5, temperature=0)
    assert ask.complete("Once upon").usage == (3, 5)
    assert ask.complete("Once upon", max_tokens=7).usage == (3, 7)


def test_going_on_after_the_end(echo) -> None:
    answer = echo.complete("Once upon", max_tokens=40, extra={"ignore_eos": True})
    assert answer.usage == (3, 40)
    assert answer.text.startswith(SCRIPT + " Once upon")  # what follows the end begins again


def test_token_ids(echo, tiny_model) -> None:
    model = tiny_model("echo")
    ids = tuple(model.ids("Once upon"))
    answer = echo.complete(ids)
    assert answer.text == SCRIPT
    assert answer.usage == (2, 25)  # as they are: nothing is put before them


@pytest.mark.parametrize("add_bos", [True, False])
@pytest.mark.parametrize("prompt", ["", ()])
def test_an_empty_prompt_begins_a_text(opened, tiny_model, add_bos: bool, prompt) -> None:
    ask = opened(tiny_model("echo", "bpe", add_bos=add_bos).path)
    answer = ask.complete(prompt, temperature=0)
    assert answer.text == " Once upon" + SCRIPT
    assert answer.usage == (1, 27)


def test_several_prompts_are_answered_in_order(echo) -> None:
    answer = echo.complete("Once upon", "every request", max_tokens=2, n=2)
    assert answer.texts == [" a time", " a time", " with gentle", " with gentle"]
    assert answer.usage == (3 + 3, 4 * 2)


@pytest.mark.parametrize("prompt", ["Once upon", " Once  upon", "Zoë 🙂", "a\x00b\n"])
@pytest.mark.parametrize("tokenizer", ["spm", "bpe"])
def test_echo_is_the_prompt_itself(opened, tiny_model, tokenizer, prompt) -> None:
    ask = opened(tiny_model("echo", tokenizer).path)
    plain = ask.complete(prompt, temperature=0, max_tokens=3)
    echoed = ask.complete(prompt, temperature=0, max_tokens=3, echo=True)
    assert echoed.text == prompt + plain.text
    assert echoed.usage == plain.usage


def test_echo_of_token_ids_is_their_text(echo, tiny_model) -> None:
    ids = tuple(tiny_model("echo").ids("Once upon"))
    assert echo.complete(ids, max_tokens=2, echo=True).text == "Once upon a time"


def test_a_prompt_may_name_control_tokens(echo) -> None:
    # <s> comes first in any case, and only once
    named = echo.complete("<s>Once upon", max_tokens=1)
    assert named.usage == echo.complete("Once upon", max_tokens=1).usage


def test_filling_in(opened, tiny_model) -> None:
    ask = opened(tiny_model("random", fill_in=True).path)
    plain = ask.complete("Once", max_tokens=8, seed=1)
    filled = ask.complete("Once", suffix="upon", max_tokens=8, seed=1)
    assert filled.text != plain.text
    # the three marks, and the suffix of one word
    assert filled.usage[0] == plain.usage[0] + 3 + 1


@pytest.mark.slow
def test_a_real_model_knows_its_capitals(opened, smollm2) -> None:
    ask = opened(smollm2)
    answer = ask.complete(
        "The capital of France is Paris. The capital of Italy is", temperature=0, max_tokens=2
    )
    assert answer.text == " Rome."
    chat = ask.chat(("user", "hi there"), temperature=0, max_tokens=20)
    assert chat.usage == (32, 10)  # with the system message of its template
    assert chat.text == "Hello there! How can I assist you today?"
    assert chat.reason == "stop"
