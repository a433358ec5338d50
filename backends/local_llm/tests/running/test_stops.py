"""Stop sequences and characters that span tokens."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(
    ("stop", "text", "tokens"),
    [
        (" there", " a time", 3),  # one whole token, which is counted and not shown
        ("me the", " a ti", 3),  # from inside of one into the next
        ("time there lived", " a ", 4),
        ("t", " a ", 2),
        ("nowhere", None, 25),
        (" .X", None, 25),  # what is held back at the end comes out
    ],
)
@pytest.mark.parametrize("logprobs", [None, 1])
def test_stops_over_tokens(echo, stop, text, tokens, logprobs) -> None:
    whole = echo.complete("Once upon")
    answer = echo.complete("Once upon", stop=(stop,), logprobs=logprobs)
    assert answer.text == (whole.text if text is None else text)
    assert answer.reason == "stop"
    assert answer.usage == (3, tokens)
    if logprobs is not None:
        assert "".join(token.token for token in answer.tokens()) == answer.text


def test_the_first_of_several_stops(echo) -> None:
    assert echo.complete("Once upon", stop=("lived", "time")).text == " a "


def test_a_stop_in_the_prompt_ends_nothing(echo) -> None:
    answer = echo.complete("Once upon", stop=("upon",), echo=True, max_tokens=2)
    assert answer.text == "Once upon a time"


def test_a_stop_is_better_than_a_limit(echo) -> None:
    answer = echo.complete("Once upon", stop=("time",), max_tokens=2)
    assert (answer.text, answer.reason) == (" a ", "stop")


@pytest.mark.parametrize("tokenizer", ["spm", "bpe"])
@pytest.mark.parametrize("logprobs", [None, 0, 2])
@pytest.mark.parametrize("character", ["é", "🙂"])
def test_characters_come_whole(opened, tiny_model, tokenizer, logprobs, character) -> None:
    model = tiny_model("echo", tokenizer, text=f"say {character} now")
    size = len(character.encode())
    ask = opened(model.path, temperature=0)
    answer = ask.complete(" say", logprobs=logprobs)
    assert answer.text == f" {character} now"
    assert answer.usage[1] == 1 + size + 1
    deltas = [event.text for event in answer.events if hasattr(event, "text")]
    assert not any("\ufffd" in delta for delta in deltas)
    if logprobs is not None:
        shown = [" ", *[""] * (size - 1), character, " now"]
        assert [token.token for token in answer.tokens()] == shown


def test_invalid_bytes_are_marked_the_same_in_deltas_and_logprobs(opened, tiny_model) -> None:
    model = tiny_model("echo", text="say <0xFF> <0xF0> now <0xC3>")
    answer = opened(model.path, temperature=0).complete(" say", logprobs=1)
    assert answer.text == "\ufffd\ufffd now\ufffd"
    assert "".join(token.token for token in answer.tokens()) == answer.text
    assert answer.usage[1] == len(answer.tokens())


def test_a_stop_inside_of_a_character_cuts_before_it(opened, tiny_model) -> None:
    model = tiny_model("echo", text="say 🙂 now")
    answer = opened(model.path, temperature=0).complete(" say", stop=("🙂",), logprobs=0)
    assert answer.text == " "
    assert [token.token for token in answer.tokens()] == [" "]
