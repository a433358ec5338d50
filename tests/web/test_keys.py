"""Keys as values."""

from __future__ import annotations

import base64
import re
from datetime import UTC, datetime

import pytest

from caesar_server.errors import SettingsError
from caesar_server.settings import Settings
from caesar_server.web.access.keys import (
    Key,
    KeyLimits,
    effective_limits,
    generate_id,
    generate_key,
    given_keys,
    hash_key,
)

DIGEST = hash_key("x" * 20)


def test_a_key_is_32_random_bytes_in_base64url() -> None:
    keys = {generate_key() for _ in range(50)}
    assert len(keys) == 50
    for key in keys:
        assert re.fullmatch(r"csk-[A-Za-z0-9_-]{43}", key)
        assert len(base64.urlsafe_b64decode(key.removeprefix("csk-") + "=")) == 32


def test_an_id_is_never_given_twice(monkeypatch) -> None:
    drawn = iter(["aa", "aa", "bb"])
    monkeypatch.setattr("secrets.token_hex", lambda _: next(drawn))
    assert generate_id(["key-aa"]) == "key-bb"


def test_status_of_a_key() -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    now = moment.timestamp()
    key = Key(id="k", sha256=DIGEST, account="a", expires_at=moment)
    assert key.status(now - 0.001) == "active"
    assert key.status(now) == "expired"
    revoked = Key(id="k", sha256=DIGEST, account="a", expires_at=moment, revoked_at=moment)
    assert revoked.status(now - 1) == "revoked"


def test_repr_shows_neither_key_nor_hash() -> None:
    key = Key(id="key-1", sha256=DIGEST, account="acme")
    assert repr(key) == "<Key key-1 of 'acme'>"
    assert DIGEST not in repr([key])


def test_given_keys_are_named_by_their_hash_and_counted_once() -> None:
    plain = "x" * 20
    keys = given_keys([plain, f"sha256:{DIGEST}", f"sha256:{DIGEST.upper()}"])
    assert [(key.id, key.sha256, key.account) for key in keys] == [
        (f"given-{DIGEST[:8]}", DIGEST, "default")
    ]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("too-short", "9 characters, expected 16 to 1024"),
        ("x" * 2000, "2000 characters"),
        ("with a space in between", "visible ASCII"),
        ("umlaut-is-bad-\xfc-\xfc-\xfc", "visible ASCII"),
        ("sha256:abc", "64 hexadecimal digits"),
        ("sha256:" + "g" * 64, "64 hexadecimal digits"),
    ],
)
def test_what_can_be_no_key_is_told_without_quoting_it(value, words) -> None:
    with pytest.raises(SettingsError) as caught:
        given_keys(["good-enough-key-1", value])
    (problem,) = caught.value.problems
    assert problem.startswith("api_keys: number 2 ")
    assert words in problem
    assert value not in problem


def test_all_bad_keys_are_told_at_once() -> None:
    with pytest.raises(SettingsError) as caught:
        given_keys(["a", "b"])
    assert len(caught.value.problems) == 2


def test_settings_stand_in_for_limits_that_a_key_has_not() -> None:
    settings = Settings(
        key_requests_per_minute=7,
        key_streams=2,
        account_jobs_in_progress=3,
        account_loops_per_month=0,
    )
    assert effective_limits(KeyLimits(), settings) == KeyLimits(
        requests_per_minute=7, streams=2, jobs_in_progress=3
    )
    own = KeyLimits(requests_per_minute=100, streams=1, jobs_in_progress=5, loops_per_month=200)
    assert effective_limits(own, settings) == own
    assert effective_limits(KeyLimits(), Settings()) == KeyLimits(
        jobs_in_progress=5, loops_per_month=200
    )
