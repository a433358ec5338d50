"""Requests per minute, counted in memory or by the library ``limits``."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from limits.storage import MemoryStorage, Storage

from caesar_server.errors import SettingsError
from caesar_server.settings import Settings
from caesar_server.testing import FakeClock
from caesar_server.web.access.keys import Key, KeyLimits, hash_key
from caesar_server.web.limiting.limits import window_headers
from caesar_server.web.limiting.rates import Rates, check_limits
from caesar_server.web.limiting.windows import Window


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def test_no_60_seconds_have_more_than_allowed(clock) -> None:
    rates = Rates(monotonic=clock.monotonic)
    assert rates.hit("a", 3) == Window(3, 2, 60.0)
    clock.advance(20)
    assert rates.hit("a", 3) == Window(3, 1, 40.0)
    assert rates.hit("a", 3) == Window(3, 0, 40.0)
    assert rates.hit("a", 3) == Window(3, 0, 40.0, allowed=False)
    # a refused one does not count, nor does a look
    assert rates.look("a", 3) == Window(3, 0, 40.0)
    clock.advance(40.001)
    again = rates.hit("a", 3)
    assert (again.allowed, again.remaining) == (True, 0)
    assert again.reset_s == pytest.approx(19.999)


def test_keys_do_not_share_a_window(clock) -> None:
    rates = Rates(monotonic=clock.monotonic)
    assert rates.hit("a", 1).allowed
    assert not rates.hit("a", 1).allowed
    assert rates.hit("b", 1).allowed


def test_a_key_that_was_never_seen_has_all_left(clock) -> None:
    assert Rates(monotonic=clock.monotonic).look("a", 3) == Window(3, 3, 0.0)
    rates = Rates(monotonic=clock.monotonic)
    rates.hit("a", 3)
    clock.advance(1000)
    assert rates.look("a", 3) == Window(3, 3, 0.0)


@pytest.mark.parametrize("storage", ["memory://", "flaky://"])
def test_a_clock_that_is_put_back_locks_nobody_out(storage, monkeypatch) -> None:
    """A key that has used up its minute waits no longer than one, whatever the time of day is."""
    real = time.time
    rates = Rates(storage)
    assert rates.hit("a", 1).allowed
    monkeypatch.setattr(time, "time", lambda: real() - 7200)
    refused = rates.hit("a", 1)
    assert not refused.allowed
    assert 0 < refused.reset_s <= 60


def test_a_minute_ends_also_if_the_clock_was_put_back(clock, monkeypatch) -> None:
    real = time.time
    rates = Rates(monotonic=clock.monotonic)
    assert rates.hit("a", 1).allowed
    monkeypatch.setattr(time, "time", lambda: real() - 7200)
    clock.advance(60)
    assert rates.hit("a", 1).allowed


@pytest.mark.parametrize("quiet", [False, True], ids=["first", "after a pause"])
def test_50_at_once_get_exactly_what_is_allowed(clock, quiet) -> None:
    rates = Rates(monotonic=clock.monotonic)
    if quiet:
        rates.hit("a", 20)
        clock.advance(100)
    barrier = threading.Barrier(50)

    def hit(_: int) -> Window:
        barrier.wait()
        return rates.hit("a", 20)

    with ThreadPoolExecutor(50) as pool:
        windows = list(pool.map(hit, range(50)))
    assert sum(window.allowed for window in windows) == 20
    allowed = sorted(window.remaining for window in windows if window.allowed)
    assert allowed == list(range(20))


class Flaky(MemoryStorage):
    """A storage that another machine could be, and that a test can break."""

    STORAGE_SCHEME = ["flaky"]  # noqa: RUF012 - the library's
    broken: Callable[[], bool] = staticmethod(lambda: False)
    calls = 0

    @property
    def base_exceptions(self) -> type[Exception]:
        return ConnectionError

    def acquire_entry(self, *args: Any, **kwargs: Any) -> bool:
        type(self).calls += 1
        if self.broken():
            raise ConnectionError("nobody there")
        return super().acquire_entry(*args, **kwargs)


def test_while_the_storage_fails_the_process_counts_alone(monkeypatch, caplog) -> None:
    monkeypatch.setattr(Flaky, "broken", staticmethod(lambda: True))
    monkeypatch.setattr(Flaky, "calls", 0)
    rates = Rates("flaky://user:secret@host")
    assert [rates.hit("a", 2).allowed for _ in range(4)] == [True, True, False, False]
    # asked once, told once, not once a request
    assert Flaky.calls == 1
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert "nobody there" in record.getMessage()
    assert "secret" not in caplog.text


def test_a_storage_that_cannot_even_be_asked_fails_no_request(caplog) -> None:
    """Redis's client takes any parameter of a URI, and cannot use it with the first command."""
    pytest.importorskip("redis")
    rates = Rates("redis://:secret@127.0.0.1:1/0?timeout=5")
    assert [rates.hit("a", 2).allowed for _ in range(3)] == [True, True, False]
    (record,) = caplog.records
    assert "counts alone" in record.getMessage()
    assert "'timeout'" in record.getMessage()
    assert "secret" not in caplog.text


def test_a_storage_that_answers_is_the_one_that_counts(monkeypatch) -> None:
    monkeypatch.setattr(Flaky, "calls", 0)
    rates = Rates("flaky://")
    assert [rates.hit("a", 2).allowed for _ in range(3)] == [True, True, False]
    assert Flaky.calls == 3


class Windowless(Storage):
    """A storage that cannot do what is needed."""

    STORAGE_SCHEME = ["windowless"]  # noqa: RUF012 - the library's

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    base_exceptions = ValueError

    def incr(self, *_: Any, **__: Any) -> int:
        raise NotImplementedError

    get = get_expiry = check = reset = clear = incr


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("redsi://:secret@host", "redsi is no kind of storage"),
        ("secret", "the value is no kind of storage"),
        ("async+memory://secret", "cannot count in a moving window"),
        ("windowless://secret", "cannot count in a moving window"),
        ("memcached://secret:1", "prerequisite not available"),
    ],
)
def test_unusable_storage_is_told_without_its_uri(uri, words) -> None:
    with pytest.raises(SettingsError) as caught:
        check_limits(Settings(limits_storage=uri), ())
    (problem,) = caught.value.problems
    assert problem.startswith("limits_storage: ")
    assert words in problem
    assert "secret" not in problem


def test_several_workers_that_count_alone_are_told() -> None:
    plain = Key(id="a", sha256=hash_key("a"), account="a")
    limited = Key(
        id="b", sha256=hash_key("b"), account="b", limits=KeyLimits(requests_per_minute=1)
    )
    assert check_limits(Settings(workers=4), ()) == []
    assert check_limits(Settings(workers=4), (plain,)) == []
    assert check_limits(Settings(workers=1), (limited,)) == []
    (sentence,) = check_limits(Settings(workers=4), (plain, limited))
    assert "4 workers" in sentence
    assert "limits_storage" in sentence
    assert check_limits(Settings(workers=4, key_requests_per_minute=9), (plain,)) != []
    assert check_limits(Settings(workers=4, limits_storage="flaky://"), (limited,)) == []


def test_no_thread_before_the_first_count() -> None:
    before = set(threading.enumerate())
    Rates()
    assert set(threading.enumerate()) == before


@pytest.mark.parametrize(
    ("reset_s", "text"),
    [(0.0, "0s"), (59.9991, "60s"), (1.5, "1.5s"), (0.0004, "0.001s"), (12.345, "12.345s")],
)
def test_time_to_the_reset_is_written_as_openai_does(reset_s, text) -> None:
    headers = window_headers(Window(10, 3, reset_s))
    assert headers == {
        "x-ratelimit-limit-requests": "10",
        "x-ratelimit-remaining-requests": "3",
        "x-ratelimit-reset-requests": text,
    }
