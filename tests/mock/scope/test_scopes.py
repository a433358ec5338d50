"""All scopes of a server."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from caesar_server.mock.calls import call_from_http
from caesar_server.mock.matching import conditions
from caesar_server.mock.model.reply import Reply
from caesar_server.mock.model.rule import Decision, Rule
from caesar_server.mock.scope import Manner
from caesar_server.mock.scopes import LONGEST_NAME, Held, Scopes, ScopesFullError
from caesar_server.settings import Settings

FILE_RULE = Rule(id="file", replies=(Reply(text="from a file"),))
CALL = call_from_http(method="POST", path="/", headers={}, body=b"{}", call_id="c-1")


def test_a_scope_is_made_when_it_is_first_used() -> None:
    scopes = Scopes()
    assert scopes.names() == ("",)
    assert scopes.find("a") is None
    made = scopes.get("a")
    assert scopes.get("a") is scopes.find("a") is made
    assert scopes.names() == ("", "a")


def test_scopes_know_nothing_of_each_other() -> None:
    scopes = Scopes()
    one, other = scopes.get("a"), scopes.get("b")
    one.add(Rule(replies=(Reply(text="x"),), times=1))
    one.clock.advance(5)
    assert other.rules == ()
    assert (other.clock.stopped, other.clock.turned_s) == (False, 0)
    assert one.stamp()[0] != other.stamp()[0]


def test_all_have_the_rules_of_files_each_with_its_own_counters() -> None:
    scopes = Scopes(Manner(seed=5), [FILE_RULE])
    scopes.get("a").decide(CALL)
    assert [scopes.get(name).uses("file") for name in ("", "a", "b")] == [0, 1, 0]
    assert scopes.get("b").seed == 5
    other = Rule(id="other", conditions=conditions(prompt="p"), replies=(Reply(),))
    scopes.set_files([other])
    assert [scopes.get(name).rules for name in ("", "a", "new")] == [(other,)] * 3


def test_wrong_rules_of_files_change_nothing() -> None:
    with pytest.raises(ValueError, match="expected either replies or faults"):
        Scopes(rules=[Rule()])
    scopes = Scopes(rules=[FILE_RULE])
    scopes.get("a").add(Rule(id="own", replies=(Reply(),)))
    with pytest.raises(ValueError, match="there is a rule 'x' already"):
        scopes.set_files([Rule(id="x", replies=(Reply(),)), Rule(id="x", replies=(Reply(),))])
    assert scopes.get("").rules == (FILE_RULE,)
    scopes.set_files([Rule(id="own", replies=(Reply(text="hidden"),)), FILE_RULE])
    assert [rule.id for rule in scopes.get("a").rules] == ["own", "file"]
    assert scopes.get("a").rules[0].replies == (Reply(),)


def test_another_manner_reaches_old_and_new_scopes() -> None:
    scopes = Scopes()
    old = scopes.get("old")
    scopes.set_manner(Manner(strict=True))
    assert (old.strict, scopes.get("new").strict, scopes.manner) == (
        True,
        True,
        Manner(strict=True),
    )


def test_who_asks_for_a_new_scope_shares_it_with_nobody() -> None:
    scopes = Scopes(limit=40)
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(scopes.make, ["a"] * 39))
    assert {scope.name for scope in made} == {"a", *(f"a-{number}" for number in range(2, 40))}
    assert all(scopes.find(scope.name) is scope for scope in made)
    with pytest.raises(ScopesFullError):
        scopes.make("a")


def test_a_scope_is_removed_and_the_default_one_emptied() -> None:
    scopes = Scopes()
    scopes.get("a")
    assert (scopes.remove("a"), scopes.remove("a")) == (True, False)
    scopes.get().add(Rule(replies=(Reply(),)))
    assert scopes.remove("")
    assert (scopes.names(), scopes.get().rules) == (("",), ())


def test_their_number_and_names_are_bounded() -> None:
    scopes = Scopes(limit=2)
    scopes.get("a")
    with pytest.raises(ScopesFullError, match="There are 2 scopes already"):
        scopes.get("b")
    scopes.remove("a")
    scopes.get("b")
    with pytest.raises(ValueError, match="expected at most 200 characters, got 201"):
        scopes.get("n" * (LONGEST_NAME + 1))


def test_they_are_as_the_settings_want_them() -> None:
    scopes = Scopes.of(
        Settings(mock_seed=4, mock_strict=True, mock_fallback="error", mock_scopes=1)
    )
    assert scopes.manner == Manner(seed=4, strict=True, fallback="error")
    with pytest.raises(ScopesFullError):
        scopes.get("a")


def test_a_call_is_held_until_it_is_answered() -> None:
    scopes = Scopes()
    held = Held(CALL, Decision(), scopes.get())
    scopes.hold(held)
    assert scopes.find_call("c-1") is held
    scopes.release("c-1")
    scopes.release("c-1")
    assert scopes.find_call("c-1") is None


def test_each_scope_has_an_owner_of_its_own_also_after_its_removal() -> None:
    def owners() -> list[str]:
        scopes = Scopes()
        found = [scopes.get(name).owner for name in ("", "a", "b")]
        scopes.remove("a")
        scopes.remove("")
        return [*found, scopes.get("a").owner, scopes.get().owner]

    assert owners() == owners()
    assert len(set(owners())) == 5
    assert owners()[0] == ""


def test_a_scope_that_is_removed_ends_the_waits_for_its_clock() -> None:
    scopes = Scopes()
    clock = scopes.get("t").clock
    clock.stop()
    before, event = clock.pause(60), threading.Event()
    scopes.remove("t")
    assert before.is_over
    assert before.wait()
    assert clock.pause(60).wait()
    assert not clock.wait(event, 60)
