"""A running server follows its file of keys."""

from __future__ import annotations

import logging
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

from caesar_server.errors import SettingsError
from caesar_server.settings import Settings
from caesar_server.testing import FakeClock
from caesar_server.web.access import keyring as keyring_module
from caesar_server.web.access.key_file import edit_key_file
from caesar_server.web.access.keyring import Keyring, Latch, configured_keys
from caesar_server.web.access.keys import Key, given_keys, hash_key


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


def add(path: Path, secret: str, **fields) -> None:
    key = Key(id=f"key-{secret}", sha256=hash_key(secret), account="acme", **fields)
    edit_key_file(path, lambda keys: (*keys, key))


def remove_all(path: Path) -> None:
    edit_key_file(path, lambda _: ())


def test_new_and_removed_keys_count_within_a_second(path, clock) -> None:
    add(path, "one")
    keyring = Keyring(path, (), clock)
    assert keyring.find("one").account == "acme"
    add(path, "two")
    assert keyring.find("two") is None
    clock.advance(1)
    assert keyring.find("two") is not None
    remove_all(path)
    clock.advance(1)
    assert keyring.find("one") is None
    assert keyring.required


def test_the_file_is_looked_at_once_a_second_and_read_only_when_it_changed(
    path, clock, monkeypatch
) -> None:
    add(path, "one")
    looks, reads = [], []
    stamp_of, read = keyring_module.stamp_of, keyring_module.read_key_file
    monkeypatch.setattr(keyring_module, "stamp_of", lambda p: (looks.append(p), stamp_of(p))[1])
    monkeypatch.setattr(keyring_module, "read_key_file", lambda p: (reads.append(p), read(p))[1])
    keyring = Keyring(path, (), clock)
    for _ in range(100):
        assert keyring.find("one") is not None
    assert (len(looks), len(reads)) == (1, 1)
    for _ in range(3):
        clock.advance(1)
        keyring.find("one")
        keyring.find("one")
    assert (len(looks), len(reads)) == (4, 1)


def test_an_open_server_asks_for_keys_once_there_is_a_file(path, clock) -> None:
    keyring = Keyring(path, (), clock)
    assert not keyring.required
    add(path, "one")
    clock.advance(1)
    assert keyring.required
    assert keyring.find("one") is not None


def test_a_successor_asks_for_keys_although_their_file_is_gone(path, clock, caplog) -> None:
    required = Latch()
    open_yet = Keyring(path, (), clock, required)
    assert not open_yet.required
    add(path, "one")
    clock.advance(1)
    assert open_yet.required
    path.unlink()
    successor = Keyring(path, (), clock, required)
    assert successor.required
    assert successor.find("one") is None
    assert f"{path} is not there" in caplog.text
    add(path, "two")
    clock.advance(1)
    assert successor.find("two") is not None


@pytest.mark.parametrize(
    ("settings", "required"),
    [
        ({"host": "0.0.0.0"}, True),
        ({"host": "0.0.0.0", "insecure": True}, False),
        ({"host": "127.0.0.1"}, False),
    ],
)
def test_what_other_machines_can_reach_asks_for_keys_even_if_there_are_none(
    path, clock, settings, required
) -> None:
    assert Keyring.of(Settings(keys_file=str(path), **settings), clock).required is required


def break_json(path: Path) -> None:
    path.write_text('{"version": 1, "keys": [')


def open_to_all(path: Path) -> None:
    path.chmod(0o644)


def remove(path: Path) -> None:
    path.unlink()


def replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (break_json, "is no file of keys"),
        (open_to_all, "chmod 600"),
        (remove, "is gone"),
        (replace_by_folder, "is no regular file"),
    ],
)
def test_a_spoilt_file_leaves_the_keys_as_they_were(path, clock, caplog, spoil, reason) -> None:
    caplog.set_level(logging.ERROR)
    add(path, "one")
    keyring = Keyring(path, (), clock)
    spoil(path)
    for _ in range(5):
        clock.advance(1)
        assert keyring.find("one") is not None
        assert keyring.find("two") is None
        assert keyring.required
    # told once, not each second
    (record,) = caplog.records
    assert reason in record.getMessage()
    assert "as they were before" in record.getMessage()
    # and mended
    if path.is_dir():
        path.rmdir()
    path.unlink(missing_ok=True)
    add(path, "two")
    clock.advance(1)
    assert keyring.find("two") is not None
    assert keyring.find("one") is None


def test_chmod_alone_mends_a_file(path, clock) -> None:
    add(path, "one")
    path.chmod(0o644)
    keyring = Keyring(path, (), clock)
    assert keyring.required
    assert keyring.find("one") is None
    path.chmod(0o600)
    clock.advance(1)
    assert keyring.find("one") is not None


def test_a_file_that_is_broken_from_the_start_lets_nobody_in(path, clock, caplog) -> None:
    path.write_text("nonsense")
    path.chmod(0o600)
    keyring = Keyring(path, given_keys(["given-key-of-some-length"]), clock)
    assert keyring.required
    assert keyring.find("anything") is None
    assert keyring.find("given-key-of-some-length") is not None
    assert "is no file of keys" in caplog.text


def test_a_folder_that_may_not_be_entered_lets_nobody_in(clock, caplog, monkeypatch) -> None:
    def refuse(_: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(keyring_module, "stamp_of", refuse)
    keyring = Keyring(Path("keys.json"), (), clock)
    clock.advance(1)
    assert keyring.required
    assert caplog.text.count("Permission denied") == 1


def test_the_files_word_counts_for_a_key_that_is_given_too(path, clock) -> None:
    secret = "given-key-of-some-length"
    keyring = Keyring(path, given_keys([secret]), clock)
    assert keyring.find(secret).id.startswith("given-")
    add(path, secret, revoked_at=datetime(2020, 1, 1, tzinfo=UTC))
    clock.advance(1)
    assert keyring.find(secret) is None


def test_what_is_no_key_is_found_nowhere(path, clock) -> None:
    add(path, "one")
    keyring = Keyring(path, (), clock)
    for text in ("", "two", "onee", "on", hash_key("one"), "\xfc", "\ud800", "x" * 100_000):
        assert keyring.find(text) is None


def test_threads_that_ask_while_the_file_changes_always_find_a_key_that_stays(path) -> None:
    """With the real clock and a look at each call, so that reading and finding overlap."""
    add(path, "stays")
    ticks = iter(range(10**9))

    class Hurried:
        def time(self) -> float:
            return 0.0

        def monotonic(self) -> float:
            return float(next(ticks))

    keyring = Keyring(path, (), Hurried())
    lost, stop = [], threading.Event()

    def ask() -> None:
        while not stop.is_set():
            if keyring.find("stays") is None or not keyring.required:
                lost.append(1)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for number in range(30):
            add(path, f"other-{number}")
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(interval)
    assert lost == []
    assert keyring.find("other-29") is not None


def test_configured_keys_are_those_of_file_and_settings(path) -> None:
    given = "given-key-of-some-length"
    assert configured_keys(Settings()) is None
    assert configured_keys(Settings(keys_file=str(path))) is None
    assert len(configured_keys(Settings(api_keys=(given,)))) == 1
    add(path, "one")
    assert len(configured_keys(Settings(keys_file=str(path), api_keys=(given,)))) == 2
    remove_all(path)
    # a file without keys is not the same as no file
    assert configured_keys(Settings(keys_file=str(path))) == ()
    path.chmod(0o666)
    with pytest.raises(SettingsError, match="chmod 600"):
        configured_keys(Settings(keys_file=str(path)))
