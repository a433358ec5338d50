"""Reading ``Authorization: Bearer KEY``."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from caesar_server.errors import InvalidKeyError, MissingKeyError
from caesar_server.web.access.header import bearer_key
from caesar_server.web.access.keys import MAX_KEY_LENGTH, generate_key

#: What WSGI can hand over: each character is a byte.
BYTES = st.text(st.characters(max_codepoint=255))
KEY_CHARACTERS = "".join(c for c in map(chr, range(0x21, 0x7F)) if c != ",")
KEYS = st.text(KEY_CHARACTERS, min_size=1, max_size=100)
SPACES = st.text(" \t", max_size=3)


@given(KEYS, st.sampled_from(["Bearer", "bearer", "BEARER", "bEaReR"]), SPACES, SPACES, SPACES)
def test_a_key_comes_out_as_it_was_sent(key, scheme, before, between, after) -> None:
    assert bearer_key(f"{before}{scheme} {between}{key}{after}") == key
    assert bearer_key(f"{before}{scheme}\t{between}{key}{after}") == key


@given(st.none() | BYTES | BYTES.map("Bearer {}".format))
@example("Bearer \x00")
@example("Bearer a\x85b")
@example("Bearer\xa0abc")
@example("\x1fBearer abc")
def test_anything_is_a_key_or_one_of_the_two_refusals(header) -> None:
    try:
        key = bearer_key(header)
    except InvalidKeyError:
        return
    assert set(key) <= set(KEY_CHARACTERS)
    assert key in header


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "   ",
        "\t",
        "Bearer",
        "Bearer ",
        "bearer \t ",
        "Basic dXNlcjpwYXNz",
        "Token abc",
        "Bearerabc",
        "csk-without-a-scheme",
        ",",
        "Bearer,abc",
        "Basic abc, Bearer abc",
    ],
)
def test_without_a_bearer_key_it_is_missing(header) -> None:
    with pytest.raises(MissingKeyError, match=r"^Missing API key$"):
        bearer_key(header)


@pytest.mark.parametrize(
    "header",
    [
        "Bearer a b",
        "Bearer abc,Bearer abc",
        "Bearer abc, Bearer def",
        "Bearer abc,",
        "Bearer k\xe9y",
        "Bearer abc\x00",
        "Bearer abc\x0bdef",
        "Bearer " + "x" * (MAX_KEY_LENGTH + 1),
        "Bearer " + "x" * 1_000_000,
    ],
)
def test_what_can_be_no_key_is_invalid(header) -> None:
    with pytest.raises(InvalidKeyError, match=r"^Invalid API key$") as caught:
        bearer_key(header)
    assert caught.value.code == "invalid_api_key"


def test_longest_key_and_generated_ones_are_taken() -> None:
    assert bearer_key("Bearer " + "x" * MAX_KEY_LENGTH)
    key = generate_key()
    assert bearer_key(f"Bearer {key}") == key
