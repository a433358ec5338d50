"""Scopes follow their files."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from caesar_server.mock.files import FixturesError, Reloader, load_into
from caesar_server.mock.model.call import Call
from caesar_server.mock.model.reply import Reply
from caesar_server.mock.model.rule import Rule
from caesar_server.mock.scope import Manner, Scope
from caesar_server.mock.scopes import Scopes
from caesar_server.testing import FakeClock

WriteFile = Callable[[str, str], Path]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def call(prompt: str = "Hello") -> Call:
    return Call(prompt=prompt, body={}, method="POST", path="/compat/completions")


def answer(scope: Scope, prompt: str = "Hello") -> str:
    reply = scope.decide(call(prompt)).reply
    assert isinstance(reply, Reply)
    return reply.text_of(0)


def test_files_are_for_all_scopes_also_later_ones(write_file: WriteFile) -> None:
    scopes = Scopes()
    early = scopes.get("early")
    reloader = load_into(scopes, write_file("a.yaml", "seed: 7\nrules: [{reply: Hi}]"))
    assert scopes.reloader is reloader
    assert (reloader.loaded.rules, reloader.loaded.problems) == (1, ())
    for scope in (early, scopes.get(), scopes.get("late")):
        assert (answer(scope), scope.seed) == ("Hi", 7)


def test_one_scope_may_have_files_of_its_own(write_file: WriteFile) -> None:
    scopes = Scopes()
    load_into(scopes.get("one"), write_file("a.yaml", "rules: [{reply: Hi}]"))
    assert answer(scopes.get("one")) == "Hi"
    assert answer(scopes.get("other")) == "Hello"
    assert scopes.reloader is None


def test_a_changed_file_is_read_again(write_file: WriteFile, clock: FakeClock) -> None:
    scope = Scope()
    path = write_file("a.yaml", "rules: [{reply: Hi}]")
    reloader = Reloader(scope, path, monotonic=clock.monotonic)
    reloader.load()
    write_file("a.yaml", "rules: [{reply: Ho}]")  # of the same size, at nearly the same time
    reloader.check()
    assert answer(scope) == "Ho"
    write_file("a.yaml", "rules: [{reply: Hu}]")
    clock.advance(0.1)
    reloader.check()
    assert answer(scope) == "Ho"  # it has just been looked at
    clock.advance(0.2)
    reloader.check()
    assert answer(scope) == "Hu"


def test_files_may_come_and_go(write_file: WriteFile, clock: FakeClock, tmp_path: Path) -> None:
    scope = Scope()
    write_file("b.yaml", "rules: [{reply: b}]")
    reloader = Reloader(scope, tmp_path, monotonic=clock.monotonic)
    reloader.load()
    write_file("a.yaml", "rules: [{reply: a}]")
    reloader.check()
    assert answer(scope) == "a"
    (tmp_path / "a.yaml").unlink()
    clock.advance(1)
    reloader.check()
    assert answer(scope) == "b"


def test_rules_that_did_not_change_keep_their_counters(
    write_file: WriteFile, clock: FakeClock
) -> None:
    scope = Scope()
    rules = "rules: [{name: one, reply: first, times: 1}, {name: two, reply: %s}]"
    reloader = Reloader(scope, write_file("a.yaml", rules % "x"), monotonic=clock.monotonic)
    reloader.load()
    assert answer(scope) == "first"
    assert answer(scope) == "x"
    write_file("a.yaml", rules % "y")
    reloader.check()
    assert answer(scope) == "y"
    assert (scope.uses("a.yaml:one"), scope.uses("a.yaml:two")) == (1, 1)


def test_a_broken_file_changes_nothing_and_is_told_once(
    write_file: WriteFile, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    scope = Scope()
    reloader = Reloader(
        scope, write_file("a.yaml", "rules: [{reply: Hi}]"), monotonic=clock.monotonic
    )
    reloader.load()
    write_file("a.yaml", "rules: [{repli: Ho}]")
    with caplog.at_level(logging.ERROR):
        for _ in range(5):
            reloader.check()
            clock.advance(1)
    assert answer(scope) == "Hi"
    (record,) = caplog.records
    said = "a.yaml:1:10: rules[0].repli: unknown field; did you mean 'replies'?"
    assert said in record.getMessage()
    assert [problem.field for problem in reloader.loaded.problems] == ["rules[0].repli"]
    assert reloader.loaded.rules == 1
    with pytest.raises(FixturesError):
        reloader.load()
    write_file("a.yaml", "rules: [{reply: Ha}]")
    reloader.check()
    assert answer(scope) == "Ha"
    assert reloader.loaded.problems == ()


def test_a_touched_file_is_not_news(
    write_file: WriteFile, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    scope = Scope()
    path = write_file("a.yaml", "rules: [{reply: Hi}]")
    reloader = Reloader(scope, path, monotonic=clock.monotonic)
    reloader.load()
    os.utime(path, (1, 1))
    put = []
    monkeypatch.setattr(scope, "set_files", put.append)
    reloader.check()
    assert put == []


def test_settings_that_leave_a_file_are_as_before(write_file: WriteFile, clock: FakeClock) -> None:
    scopes = Scopes(Manner(seed=1))
    path = write_file("a.yaml", "seed: 7\nstrict: true\nrules: []")
    reloader = Reloader(scopes, path, monotonic=clock.monotonic)
    reloader.load()
    scope = scopes.get()
    scope.strict = False
    write_file("a.yaml", "strict: true\nrules: []")
    reloader.check()
    assert scope.seed == 1
    assert scope.strict is False  # what a test has set is not touched by another field
    assert scopes.get("new").strict is True


def test_what_is_given_wins_over_files(write_file: WriteFile, clock: FakeClock) -> None:
    scope = Scope()
    path = write_file("a.yaml", "seed: 7\nrules: []")
    reloader = Reloader(scope, path, over={"seed": 3}, monotonic=clock.monotonic)
    reloader.load()
    assert scope.seed == 3
    write_file("a.yaml", "seed: 8\nrules: []")
    reloader.check()
    assert scope.seed == 3


def test_own_rules_stay(write_file: WriteFile, clock: FakeClock) -> None:
    scope = Scope()
    scope.add(Rule(replies=(Reply(text="own"),), times=1))
    reloader = Reloader(
        scope, write_file("a.yaml", "rules: [{reply: Hi}]"), monotonic=clock.monotonic
    )
    reloader.load()
    assert answer(scope) == "own"
    assert answer(scope) == "Hi"


def test_a_file_that_cannot_be_used_at_first_is_an_error(write_file: WriteFile) -> None:
    scopes = Scopes()
    with pytest.raises(FixturesError, match=r"a.yaml:1:9: rules\[0\]: needs one of"):
        load_into(scopes, write_file("a.yaml", "rules: [{}]"))
    assert scopes.reloader is None
    assert answer(scopes.get()) == "Hello"


def test_one_thread_looks_while_the_others_go_on(
    write_file: WriteFile, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    scope = Scope()
    path = write_file("a.yaml", "rules: [{reply: Hi}]")
    reloader = Reloader(scope, path, monotonic=clock.monotonic)
    reloader.load()
    write_file("a.yaml", "rules: [{reply: Ho, name: a}]")
    looking, go_on = threading.Event(), threading.Event()

    def wait(rules: object) -> None:
        looking.set()
        assert go_on.wait(60)

    monkeypatch.setattr(scope, "set_files", wait)
    thread = threading.Thread(target=reloader.check)
    thread.start()
    try:
        assert looking.wait(60)
        reloader.check()  # would wait for ever
    finally:
        go_on.set()
        thread.join()
