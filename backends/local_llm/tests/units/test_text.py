"""Pieces to deltas, without a model."""

from __future__ import annotations

import pytest

from caesar_backend_local_llm.generation.text import ChoiceText
from caesar_server.contract import LogprobToken


def fed(pieces: list[bytes], stops=(), *, logprobs: bool):
    text = ChoiceText(3, stops, with_logprobs=logprobs)
    deltas = []
    for number, piece in enumerate(pieces):
        token = LogprobToken("?", -float(number)) if logprobs else None
        deltas.append(text.feed(piece, token))
        if text.stopped:
            break
    deltas.append(text.finish())
    return [delta for delta in deltas if delta is not None]


CASES = [
    ([b"ab", b"cd", b"ef"], (), ["ab", "cd", "ef"]),
    ([b"ab", b"cd", b"ef"], ("d",), ["ab", "c"]),
    ([b"ab", b"cd", b"ef"], ("bcde",), ["a"]),
    ([b"ab", b"cd", b"ef"], ("bcdX",), ["ab", "cd", "ef"]),
    ([b"ab", b"cd"], ("dX",), ["ab", "cd"]),
    ([b"ab", b"cd"], ("ab",), []),
    ([b"a\xc3", b"\xa9b"], (), ["a", "éb"]),
    ([b"\xc3", b"\xa9"], (), ["", "é"]),
    ([b"\xc3", b"\xa9x"], ("x",), ["", "é"]),
    ([b"\xc3", b"x"], (), ["", "\ufffdx"]),
    ([b"x", b"\xc3"], (), ["x", "\ufffd"]),
    ([b"x", b""], (), ["x", ""]),
    ([b"", b"x"], (), ["", "x"]),
    ([], ("x",), []),
]


@pytest.mark.parametrize(("pieces", "stops", "tokens"), CASES)
def test_cases(pieces, stops, tokens) -> None:
    plain = fed(pieces, stops, logprobs=False)
    assert "".join(delta.text for delta in plain) == "".join(tokens)
    assert all(delta.text and delta.logprobs is None for delta in plain)
    described = fed(pieces, stops, logprobs=True)
    found = [token for delta in described for token in delta.logprobs]
    assert [token.token for token in found] == tokens
    assert [token.logprob for token in found] == [-float(n) for n in range(len(tokens))]
    for delta in described:
        assert "".join(token.token for token in delta.logprobs) == delta.text
        assert delta.choice == 3


def test_what_is_certain_comes_at_once() -> None:
    text = ChoiceText(0, ("stop",), with_logprobs=False)
    assert text.feed(b"a st").text == "a "
    assert text.feed(b"ill").text == "still"
