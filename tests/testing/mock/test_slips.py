"""What a tester gets wrong is told at once, in words of the place where it was written."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Callable

import pytest

from caesar_server.mock.model.reply import Reply
from caesar_server.testing import CaesarMock, absent, anything, mock_server


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda mock: mock.on().reply(3), "reply: expected a text, several texts or a Reply"),
        (lambda mock: mock.on().reply(None), "reply: expected a text, .* got None"),
        (lambda mock: mock.on().reply(b"Hi"), "reply: expected a text, .* got b'Hi'"),
        (lambda mock: mock.on().reply("Hi", pacing=3), "pacing"),
        (
            lambda mock: mock.on().reply({"txt": "Hi"}),
            "reply: txt: unknown field; did you mean 'te",
        ),
        (lambda mock: mock.on().reply("Hi", chunks="3"), "reply: chunks: expected a whole number"),
        (
            lambda mock: mock.on().reply("Hi", results=[{"title": "a"}]),
            r"results\[0\].url: is mi",
        ),
        (lambda mock: mock.on().replies(["a", "b"]), "replies: expected them one by one, got one"),
        (
            lambda mock: mock.on(prompt=re.compile("a")),
            r"got re.compile\('a'\); write regex\(...\)",
        ),
        (lambda mock: mock.on(query=str.isupper), r"isupper.*; write predicate\(...\)"),
        (lambda mock: mock.on(model=absent), r"absent.*; write absent\(\)"),
        (lambda mock: mock.on(headers={"a": anything}), r"anything.*; write anything\(\)"),
        (lambda mock: mock.on(body={"a": re.compile("a")}), r"; write regex\(...\)"),
        (lambda mock: mock.on().fault("rest"), "fault: kind: unknown value 'rest'; did you mean"),
        (lambda mock: mock.on().fail(retry_after=1), "fault: retry_after: unknown field; did you"),
        (
            lambda mock: mock.on().fail(body=b"<html>"),
            "body: expected text or a JSON value: .* bytes",
        ),
        (lambda mock: mock.on().reply("\ud83d"), "reply: text: has half a surrogate pair"),
        (lambda mock: mock.on().fail("503"), "fault: status: expected a whole number .* got '503'"),
        (lambda mock: mock.on().times(-1), "times: expected a whole number of 0 or more, got -1"),
        (lambda mock: mock.on().times(1.5), "times: expected a whole number of 0 or more, got 1.5"),
        (lambda mock: mock.on().times(True), "times: expected a whole number .* got True"),
        (lambda mock: mock.on().times("2"), "times: expected a whole number .* got '2'"),
        (lambda mock: mock.on().skip(1.5), "skip: expected a whole number of 0 or more, got 1.5"),
        (lambda mock: mock.on().priority("x"), "priority: expected a whole number, got 'x'"),
        (lambda mock: mock.on().named(5), "name: expected a text, got 5"),
        (lambda mock: mock.on().fail_first("2"), "n: expected a whole number of 0 or more"),
        (lambda mock: mock.on().assert_used("2"), "times: expected a whole number of 0 or more"),
        (lambda mock: mock.assert_requested(times=1.5), "times: expected a whole number"),
        (lambda mock: mock.assert_requested(status="200"), "status: expected a whole number"),
        (lambda mock: mock.assert_not_requested(fault="rest"), "fault: unknown value 'rest'; did"),
        (lambda mock: mock.wait_for(1, ended="complete"), "ended: unknown value 'complete'; did"),
        (lambda mock: mock.wait_for("1"), "n: expected a whole number of 0 or more, got '1'"),
        (lambda mock: mock.wait_for(1, "5"), "timeout_s: expected seconds, .* got '5'"),
        (lambda mock: mock.on().faults("reset"), "fault: expected a Fault or its fields"),
        (lambda mock: mock.reset("jurnal"), "what: expected one of all, journal, counters"),
        (lambda mock: mock.export("xml"), "form: expected 'json' or 'har', got 'xml'"),
        (lambda mock: mock.scope(5), "scope: expected a text, got 5"),
        (lambda mock: mock.scope("a/b"), "scope: expected a name without '/', got 'a/b'"),
        (lambda mock: mock.scope(".."), r"scope: expected a name without '/', got '\.\.'"),
    ],
)
def test_a_wrong_argument_is_named(caesar_mock, wrong: Callable[[CaesarMock], object], told: str):
    with pytest.raises(ValueError, match=told):
        wrong(caesar_mock)
    caesar_mock.reset()


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda mock: mock.assert_requested(time=1), "'time'; did you mean 'times'?"),
        (lambda mock: mock.assert_requested(2), "expected a function, got 2; write times=2"),
        (lambda mock: mock.wait_for(1, timeout=5), "'timeout'; did you mean 'timeout_s'?"),
        (lambda mock: mock.assert_not_requested(statuz=5), "'statuz'; did you mean 'status'?"),
        (lambda mock: mock.assert_requested(promt="a"), "'promt'; did you mean 'prompt'?"),
        (lambda mock: mock.assert_requested(colour=5), "unknown condition 'colour'; known: "),
    ],
)
def test_a_wrong_name_is_told(caesar_mock, wrong: Callable[[CaesarMock], object], told: str):
    with pytest.raises(TypeError, match=re.escape(told)):
        wrong(caesar_mock)


@pytest.mark.parametrize("function", [lambda: "Hi", lambda call, more: "Hi", Reply])
def test_a_reply_function_takes_the_call(caesar_mock, function: Callable[..., object]):
    with pytest.raises(TypeError, match="reply: expected a function that takes the call, got"):
        caesar_mock.on().reply(function)


@pytest.mark.parametrize("function", [lambda call: "Hi", lambda *calls: "Hi", str])
def test_a_reply_function_may_be_any_that_takes_it(caesar_mock, function: Callable[..., object]):
    caesar_mock.on().reply(function)


def test_a_rule_that_a_reset_has_removed_is_left_alone(caesar_mock, ask):
    old = caesar_mock.on(prompt="Hi").reply("old")
    caesar_mock.reset()
    new = caesar_mock.on(prompt="Hi").reply("new")
    with pytest.raises(RuntimeError, match=r"test_slips.py:\d+ is not in force any more"):
        old.times(1)
    assert ask(caesar_mock, "Hi") == "new"
    assert (old.used, len(old.requests), old.rules) == (0, 0, ())
    assert (new.used, len(new.requests)) == (1, 1)
    old.remove()
    assert caesar_mock.rules == new.rules


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("strict", "no", "strict: expected True or False, got 'no'"),
        ("seed", "7", "seed: expected a whole number, got '7'"),
        ("seed", True, "seed: expected a whole number, got True"),
        ("pacing", 3, "pacing: expected a Pacing or its fields, got 3"),
        ("faults", {"kind": "reset"}, "faults: expected a list of faults"),
        ("faults", "reset", "faults: expected a list of faults, got 'reset'"),
    ],
)
def test_a_wrong_setting_is_named(caesar_mock, name: str, value: object, told: str):
    before = getattr(caesar_mock, name)
    with pytest.raises(ValueError, match=told):
        setattr(caesar_mock, name, value)
    assert getattr(caesar_mock, name) == before


def test_a_misspelt_setting_is_none(caesar_mock):
    with pytest.raises(AttributeError, match="strikt"):
        caesar_mock.strikt = True


def test_the_name_of_a_scope_may_be_any_text(caesar_mock):
    with caesar_mock.scope("größe, a b?#%") as mock:
        mock.on(prompt="Hi").reply("Hello")
        body = json.dumps({"model": "any", "prompt": "Hi"}).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{mock.base_url}/compat/completions", body, headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert json.load(answer)["choices"][0]["text"] == "Hello"
        mock.assert_requested(times=1)


def test_a_path_may_be_written_as_the_client_has_it(caesar_mock, ask):
    caesar_mock.on(path="/v1/completions", prompt="one").reply("1")
    caesar_mock.on(path="/v1/*", prompt="two").reply("2")
    assert [ask(caesar_mock, prompt) for prompt in ("one", "two")] == ["1", "2"]
    caesar_mock.assert_requested(path="/v1/completions", times=2)


def test_each_prompt_of_a_request_was_asked(caesar_mock, ask):
    ask(caesar_mock, ["one", "two"])
    caesar_mock.assert_requested(prompt="two", times=1)
    with pytest.raises(AssertionError, match="never of: prompt 'two'"):
        caesar_mock.assert_not_requested(prompt="two")
    with pytest.raises(AssertionError, match="wanted 'three', got 'one'"):
        caesar_mock.assert_requested(prompt="three")


def test_settings_of_the_mock_hold_for_it(ask):
    settings = {"mock_journal_entries": 2, "mock_strict": True, "mock_seed": 7, "mock_scopes": 1}
    with mock_server(settings=settings, strict=False) as mock:
        assert (mock.seed, mock.strict) == (7, False)
        for number in range(3):
            ask(mock, str(number))
        assert [entry.call.prompt for entry in mock.requests] == ["1", "2"]
        with pytest.raises(
            AssertionError, match="1 older requests, which may count, are not kept any more"
        ):
            mock.assert_requested(times=3)
        with pytest.raises(Exception, match="1 scopes already"):
            mock.scope("other")


def test_settings_win_over_fixture_files(tmp_path):
    (tmp_path / "rules.json").write_text('{"seed": 1, "strict": true, "rules": []}')
    with mock_server(settings={"mock_seed": 2}, fixtures=tmp_path) as mock:
        assert (mock.seed, mock.strict) == (2, True)


def test_nobody_can_tell_what_is_not_kept(ask):
    with mock_server(settings={"mock_journal_entries": 2}) as mock:
        mock.on().reply("Hello")
        for prompt in ("a", "b", "b"):
            ask(mock, prompt)
        for check in (
            lambda: mock.assert_not_requested(prompt="a"),
            lambda: mock.assert_requested(prompt="b", times=2),
            mock.assert_all_matched,
        ):
            with pytest.raises(AssertionError, match="1 older requests, which may count, are not"):
                check()
        mock.assert_requested(prompt="b")
        mock.reset("journal")
        ask(mock, "b")
        mock.assert_requested(prompt="b", times=1)
        mock.assert_not_requested(prompt="a")
        mock.assert_all_matched()


def test_a_mock_that_has_ended_can_still_be_shown(ask):
    with mock_server() as mock:
        ask(mock, "Hi")
        other = mock.scope("blue")
        assert repr(mock) == f"<CaesarMock {mock.base_url}>"
    assert (repr(mock), repr(other)) == (
        "<CaesarMock /, not running>",
        "<CaesarMock /t/blue, not running>",
    )
    assert "'Hi'  200" in mock.describe_requests()
    with pytest.raises(RuntimeError, match="not running"):
        mock.base_url  # noqa: B018 - what it raises is the test
