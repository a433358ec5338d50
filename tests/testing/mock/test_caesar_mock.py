"""What a tester writes: rules, replies, failures, and what is asked of the requests afterwards."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import openai
import pytest

from caesar_server.mock.model.fault import Fault
from caesar_server.mock.model.reply import MockError, Reply
from caesar_server.testing import CaesarMock, SseClient, contains, mock_server, predicate, regex


def run_my_app(base_url: str, api_key: str) -> str:
    """Stand for the tester's program: it streams a completion and retries as its SDK does."""
    with openai.OpenAI(base_url=base_url, api_key=api_key, max_retries=2) as client:
        asked = {"model": "caesar-research", "prompt": "What is new in quantum computing?"}
        chunks = client.completions.create(**asked, stream=True)
        return "|".join(text for chunk in chunks if (text := chunk.choices[0].text))


def test_my_app(caesar_mock):
    caesar_mock.on(prompt=contains("quantum")).reply("Error correction improved [1].", chunks=5)
    caesar_mock.on(path="/compat/completions").fail_first(2, status=429, retry_after_s=0)
    told = run_my_app(base_url=caesar_mock.base_url + "/compat", api_key="test")
    caesar_mock.assert_requested(times=3, prompt=contains("quantum"))

    assert told.replace("|", "") == "Error correction improved [1]."
    assert told.count("|") == 4
    statuses = [entry.status for entry in caesar_mock.requests]
    assert statuses == [429, 429, 200]
    assert [len(attempts) for attempts in caesar_mock.journal.attempts()] == [3]


def test_what_no_rule_answers_is_repeated(caesar_mock, ask):
    assert ask(caesar_mock, "To be") == "To be"


def test_a_plain_value_must_be_met_exactly(caesar_mock, ask):
    caesar_mock.on(prompt="Hi").reply("Hello")
    assert ask(caesar_mock, "Hi") == "Hello"
    assert ask(caesar_mock, "Hi!") == "Hi!"


def test_conditions_are_met_together(caesar_mock, ask):
    caesar_mock.on(prompt=regex("^Hi"), stream=True, metadata={"team": "blue"}).reply("Hello")
    metadata = {"extra_body": {"metadata": {"team": "blue"}}}
    assert ask(caesar_mock, "Hi there", stream=True, **metadata) == "Hello"
    assert ask(caesar_mock, "Hi there", **metadata) == "Hi there"
    assert ask(caesar_mock, "Hi there", stream=True) == "Hi there"


def test_a_condition_may_be_any_function_of_the_call(caesar_mock, ask):
    caesar_mock.on(predicate(lambda call: len(call.prompt) > 5)).reply("long")
    assert [ask(caesar_mock, "1234"), ask(caesar_mock, "123456")] == ["1234", "long"]


def test_an_unknown_condition_is_refused_by_its_name(caesar_mock):
    with pytest.raises(TypeError, match="prompt"):
        caesar_mock.on(promt="Hi")


def test_replies_come_in_turn_and_the_last_one_stays(caesar_mock, ask):
    caesar_mock.on(prompt="Hi").replies("one", Reply(text="two"), lambda call: "three")
    assert [ask(caesar_mock, "Hi") for _ in range(4)] == ["one", "two", "three", "three"]


def test_times_skip_and_priority(caesar_mock, ask):
    caesar_mock.on(prompt="Hi").reply("usual")
    caesar_mock.on(prompt="Hi").priority(1).times(1).reply("first")
    caesar_mock.on(prompt="Hi").priority(2).skip(2).reply("third")
    assert [ask(caesar_mock, "Hi") for _ in range(3)] == ["first", "usual", "third"]


def test_a_limit_may_follow_the_reply(caesar_mock, ask):
    rule = caesar_mock.on(prompt="Hi").reply("once").times(1)
    assert [ask(caesar_mock, "Hi") for _ in range(2)] == ["once", "Hi"]
    assert rule.used == 1


def test_a_rule_knows_the_requests_that_it_let_fail(caesar_mock, ask):
    rule = caesar_mock.on(prompt="Hi").fail_first(1).named("down").reply("Hello")
    with pytest.raises(openai.InternalServerError):
        ask(caesar_mock, "Hi")
    assert [ask(caesar_mock, prompt) for prompt in ("Hi", "Ho")] == ["Hello", "Ho"]
    assert [entry.status for entry in rule.requests] == [500, 200]
    caesar_mock.assert_requested(rule="down", times=1, status=500)


def test_a_reply_may_be_a_function_of_the_call(caesar_mock, ask):
    caesar_mock.on().reply(lambda call: f"{call.model} was asked {call.prompt}")
    assert ask(caesar_mock, "Hi") == "any was asked Hi"


def test_a_reply_may_say_everything_that_a_reply_can(caesar_mock):
    caesar_mock.on(prompt="news").reply(
        "Not much [1].",
        results=[{"title": "News", "url": "https://example.org/", "citation_index": 1}],
        statuses=["searching", "summarizing"],
        usage={"prompt_tokens": 11, "completion_tokens": 22},
        finish_reason="length",
    )
    with openai.OpenAI(base_url=f"{caesar_mock.base_url}/v1", api_key="test") as client:
        answer = client.completions.create(model="any", prompt="news")
    assert answer.choices[0].text.startswith("Not much [1].")
    assert "https://example.org/" in answer.choices[0].text
    assert answer.choices[0].finish_reason == "length"
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (11, 22)


def test_several_choices_of_one_prompt(caesar_mock):
    caesar_mock.on(prompt="two").reply(["One", "Two"])
    with openai.OpenAI(base_url=f"{caesar_mock.base_url}/compat", api_key="test") as client:
        answer = client.completions.create(model="any", prompt="two", n=2)
    assert [choice.text for choice in answer.choices] == ["One", "Two"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"chunks": 0}, "chunks"),
        ({"results": [{"title": "News"}]}, "url"),
        ({"usage": {"tokens": 1}}, "usage"),
        ({"chunk": 3}, "chunk"),
        ({"template": "{{ call.prompt }}"}, "template"),
    ],
)
def test_what_is_wrong_with_a_reply_is_told_where_it_is_written(caesar_mock, arguments, words):
    with pytest.raises((TypeError, ValueError), match=words):
        caesar_mock.on(prompt="Hi").reply("Hello", **arguments)
    assert caesar_mock.rules == ()
    caesar_mock.reset()  # Python itself refuses some of them, so that the mock never saw a reply


def test_chats(caesar_mock):
    caesar_mock.on(path="/compat/chat/completions", turn=2).reply("As I said")
    caesar_mock.on(messages=contains("Rome")).reply("Veni")
    messages = [{"role": "user", "content": "Rome?"}]
    with openai.OpenAI(base_url=f"{caesar_mock.base_url}/compat", api_key="test") as client:
        first = client.chat.completions.create(model="any", messages=messages)
        messages += [{"role": "assistant", "content": "Veni"}, {"role": "user", "content": "?"}]
        second = client.chat.completions.create(model="any", messages=messages)
    assert first.choices[0].message.content == "Veni"
    assert second.choices[0].message.content == "As I said"


# --- failures


def test_fail_answers_with_an_error_each_time(caesar_mock, ask):
    rule = caesar_mock.on(prompt="Hi").fail(503, message="Gone fishing", code="fishing")
    for _ in range(2):
        with pytest.raises(openai.InternalServerError, match="Gone fishing") as caught:
            ask(caesar_mock, "Hi")
        assert caught.value.code == "fishing"
    assert rule.used == 2


def test_failures_come_before_replies_whatever_their_order(caesar_mock, ask):
    caesar_mock.on(prompt="Hi").reply("Hello").fail_first(1, status=500)
    with pytest.raises(openai.InternalServerError):
        ask(caesar_mock, "Hi")
    assert ask(caesar_mock, "Hi") == "Hello"


def test_a_failure_may_carry_headers_and_a_body_of_its_own(caesar_mock, ask):
    caesar_mock.on().fail(418, body={"teapot": True}, headers={"x-pot": "tea"})
    with pytest.raises(openai.APIStatusError) as caught:
        ask(caesar_mock, "Hi")
    assert caught.value.response.headers["x-pot"] == "tea"
    assert caught.value.response.json() == {"teapot": True}


def test_a_fault_in_mid_stream(caesar_mock, ask):
    caesar_mock.on().reply("one two three four").fault("error_frame", after_chunks=2, message="Bad")
    with pytest.raises(openai.APIError, match="Bad"):
        ask(caesar_mock, "Hi", stream=True)
    (entry,) = caesar_mock.wait_for(1, fault="error_frame", ended="fault:error_frame")
    assert b"two" in entry.body
    assert b"three" not in entry.body


def test_several_faults_of_one_rule(caesar_mock, ask):
    caesar_mock.on().faults(Fault(kind="crlf"), Fault(kind="comment_storm", count=3))
    assert ask(caesar_mock, "Hi", stream=True) == "Hi"
    (entry,) = caesar_mock.wait_for(1, ended="completed")
    assert [fault.kind for fault in entry.faults] == ["crlf", "comment_storm"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"kind": "explode"}, "explode"),
        ({"kind": "stall", "status": 500}, "status"),
        ({"kind": "stall", "after": 5}, "after"),
        ({"kind": "status"}, "status"),
    ],
)
def test_what_is_wrong_with_a_fault_is_told_where_it_is_written(caesar_mock, arguments, words):
    with pytest.raises((TypeError, ValueError), match=words):
        caesar_mock.on().fault(**arguments)


def test_a_reply_may_fail_by_itself(caesar_mock, ask):
    caesar_mock.on().reply("Half", error=MockError(message="Lost", status=503))
    with pytest.raises(openai.APIError, match="Lost"):
        ask(caesar_mock, "Hi", stream=True)


# --- mistakes of the test itself


def test_an_assertion_in_a_reply_function_comes_out_in_the_test(ask):
    def reply(call):
        assert call.prompt == "Hello", "asked for something else"

    with mock_server() as mock:
        mock.on().reply(reply)
        with pytest.raises(openai.InternalServerError):
            ask(mock, "Hi")
        with pytest.raises(AssertionError, match="asked for something else"):
            mock.check()
        mock.check()  # told once


def test_the_end_of_the_block_tells_it_too(ask):
    def reply(call):
        raise AssertionError("asked for something else")

    with pytest.raises(AssertionError, match="asked for something else"), mock_server() as mock:
        mock.on().reply(reply)
        with pytest.raises(openai.InternalServerError):
            ask(mock, "Hi")


def test_an_error_of_the_test_is_not_hidden_by_that_of_a_function(ask):
    def reply(call):
        raise AssertionError("asked for something else")

    with pytest.raises(ZeroDivisionError), mock_server() as mock:
        mock.on().reply(reply)
        with pytest.raises(openai.InternalServerError):
            ask(mock, "Hi")
        raise ZeroDivisionError


def test_a_rule_that_does_nothing_is_told(ask):
    with mock_server() as mock:
        mock.on(prompt="Hi")
        with pytest.raises(AssertionError, match=r"test_caesar_mock.py:\d+.*reply"):
            mock.check()


# --- what is asked of the requests


def test_assert_requested_counts(caesar_mock, ask):
    ask(caesar_mock, "one")
    ask(caesar_mock, "two")
    caesar_mock.assert_requested()
    caesar_mock.assert_requested(times=2)
    caesar_mock.assert_requested(times=1, prompt="two")
    caesar_mock.assert_requested(times=0, prompt="three")
    caesar_mock.assert_not_requested(prompt="three")
    caesar_mock.assert_requested(times=2, status=200, ended="completed")
    caesar_mock.assert_requested(predicate(lambda call: call.prompt == "one"), times=1)


def test_a_failed_assertion_shows_what_came_instead(caesar_mock, ask):
    ask(caesar_mock, "What is new in quantum chemistry?")
    with pytest.raises(AssertionError) as caught:
        caesar_mock.assert_requested(times=1, prompt=contains("computing"), model="any")
    told = str(caught.value)
    assert "computing" in told
    assert "quantum chemistry" in told
    with pytest.raises(AssertionError, match="exactly 2"):
        caesar_mock.assert_requested(times=2)
    with pytest.raises(AssertionError, match="never"):
        caesar_mock.assert_not_requested(model="any")


def test_no_key_is_shown(caesar_mock):
    with openai.OpenAI(base_url=f"{caesar_mock.base_url}/compat", api_key="sk-secret-1") as client:
        client.completions.create(model="any", prompt="Hi")
    with pytest.raises(AssertionError) as caught:
        caesar_mock.assert_requested(times=7)
    shown = [str(caught.value), repr(caesar_mock.requests), caesar_mock.describe_requests()]
    shown.append(json.dumps([caesar_mock.export("json"), caesar_mock.export("har")]))
    assert [text for text in shown if "sk-secret-1" in text] == []


def test_waiting_for_requests(caesar_mock, ask):
    thread = threading.Thread(target=ask, args=(caesar_mock, "later"))
    thread.start()
    (entry,) = caesar_mock.wait_for(1, timeout_s=30, prompt="later")
    thread.join()
    assert entry.call.prompt == "later"
    with pytest.raises(AssertionError, match="sooner"):
        caesar_mock.wait_for(1, timeout_s=0, prompt="sooner")


def test_a_test_that_lets_the_clock_of_its_process_stand(caesar_mock, ask, monkeypatch):
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    caesar_mock.on(prompt="slow").reply("a b", pacing={"first_chunk_s": 0.01, "tokens_per_s": 100})
    caesar_mock.on(prompt="slow").fault("delay", delay_s=0.01)
    assert ask(caesar_mock, "slow", stream=True, timeout=60) == "a b"
    pool = ThreadPoolExecutor(1)
    waiting = pool.submit(caesar_mock.wait_for, 2, timeout_s=0.01)
    assert isinstance(waiting.exception(timeout=60), AssertionError)
    pool.shutdown()


def test_a_test_that_counts_how_often_its_program_sleeps(caesar_mock, ask, monkeypatch):
    slept = []
    monkeypatch.setattr(time, "sleep", slept.append)
    caesar_mock.on(prompt="slow").reply("a b", pacing={"first_chunk_s": 0.01, "tokens_per_s": 100})
    caesar_mock.on(prompt="slow").fault("delay", delay_s=0.01)
    assert ask(caesar_mock, "slow", stream=True) == "a b"
    head = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\n'
    form = head + b"x" * 200_000 + b"\r\n--b--\r\n"
    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    with urlopen(Request(f"{caesar_mock.base_url}/research/files", form, headers)) as answer:
        assert json.load(answer)["size"] == 200_000
    assert slept == []


def test_rules_are_shown_in_the_order_in_which_they_are_tried(caesar_mock):
    caesar_mock.on(prompt="a").reply("1")
    caesar_mock.on(prompt="b").priority(5).named("urgent").reply("2")
    caesar_mock.on(prompt="c").fail(500)
    names = [rule.conditions[0].wanted for rule in caesar_mock.rules]
    assert [name.strip("'\"") for name in names] == ["c", "b", "a"]
    assert caesar_mock.rules[1].name == "urgent"
    caesar_mock.on().reply("4").times(2).skip(1)
    told = [re.sub(r"test_caesar_mock.py:\d+", "HERE", str(rule)) for rule in caesar_mock.rules]
    assert told == [
        "<Rule 'r3' (HERE): prompt 'c': status>",
        "<Rule 'urgent' (HERE): prompt 'b': a reply, priority 5>",
        "<Rule 'r1' (HERE): prompt 'a': a reply>",
        "<Rule 'r4' (HERE): every request: a reply, times 2, skip 1>",
    ]


def test_rules_that_were_not_used_are_named(caesar_mock, ask):
    caesar_mock.on(prompt="a").reply("1")
    ask(caesar_mock, "a")
    caesar_mock.assert_all_used()
    caesar_mock.on(prompt="b").named("the second").fail_first(2, status=500)
    with pytest.raises(AssertionError, match="the second"):
        caesar_mock.assert_all_used()


def test_a_rule_that_was_not_used_says_why(caesar_mock, ask):
    caesar_mock.on().reply("all")
    hidden = caesar_mock.on(prompt="Hi").reply("never")
    other = caesar_mock.on(prompt="Ho").fail_first(2, status=503)
    with pytest.raises(AssertionError, match="no request has come"):
        hidden.assert_used()
    ask(caesar_mock, "Hi")
    caesar_mock.wait_for(1, finished=True)
    by_another = r"but it did nothing:\n +#1 .* 'Hi' -> 200, completed by rule 'r1' \(test_.*\)"
    differs = r"the nearest requests:\n +#1 .*\n +- prompt: wanted 'Ho', got 'Hi'"
    with pytest.raises(AssertionError, match=by_another):
        hidden.assert_used()
    with pytest.raises(AssertionError, match=differs):
        other.assert_used(2)
    with pytest.raises(AssertionError, match=f"(?s){differs}.*{by_another}"):
        caesar_mock.assert_all_used()
    with pytest.raises(openai.InternalServerError):
        ask(caesar_mock, "Ho")
    with pytest.raises(AssertionError, match=r"used 1 times, wanted 2 times\nthe nearest.*\n +#1"):
        other.assert_used(2)


def test_a_rule_that_was_not_used_may_be_for_requests_that_are_gone(ask):
    with mock_server(settings={"mock_journal_entries": 1}) as mock:
        rule = mock.on(prompt="Hi").fail_first(2, status=503)
        for prompt in ("Hi", "Ho"):
            with suppress(openai.InternalServerError):
                ask(mock, prompt)
        with pytest.raises(AssertionError, match="1 older requests, which may count, are not kept"):
            rule.assert_used(2)


def test_a_rule_that_let_all_pass_says_so(caesar_mock, ask):
    rule = caesar_mock.on(prompt="Hi").reply("later").skip(2)
    ask(caesar_mock, "Hi")
    with pytest.raises(AssertionError, match=r"did nothing \(it lets the first 2 pass\):\n +#1 "):
        rule.assert_used()


def test_a_rule_is_called_by_where_it_was_written(caesar_mock, ask):
    caesar_mock.strict = True
    caesar_mock.on(prompt="Ho").reply("never")
    place = rf"'r1' \({Path(__file__).name}:\d+\)"
    with pytest.raises(openai.NotFoundError, match=f"nearest: {place}: prompt"):
        ask(caesar_mock, "Hi")
    caesar_mock.on(prompt="Hi").fail(503)
    with pytest.raises(openai.InternalServerError):
        ask(caesar_mock, "Hi")
    with pytest.raises(AssertionError, match=r"status by rule 'r2' \(test_"):
        caesar_mock.assert_requested(times=0)


def test_only_what_rules_answer_lacks_one(caesar_mock, ask):
    ask(caesar_mock, "Hi")
    for path in ("models", "nowhere"):
        with suppress(HTTPError):
            urlopen(f"{caesar_mock.base_url}/compat/{path}", timeout=60).close()
    with pytest.raises(HTTPError, match="415"):
        urlopen(f"{caesar_mock.base_url}/compat/completions", b"Hi", timeout=60)
    told = caesar_mock.describe_requests().splitlines()
    assert ["no rule" in line for line in told] == [True, False, False, False]


def test_a_fault_that_the_answer_does_not_reach_is_told(caesar_mock, ask):
    rule = caesar_mock.on().fault("silent_close", after_chunks=500).named("too late")
    ask(caesar_mock, "Hi")
    assert (rule.used, rule.requests) == (0, ())
    with pytest.raises(AssertionError, match=r"too late \(.*\): used 0 times"):
        caesar_mock.assert_all_used()
    with pytest.raises(AssertionError, match="no fault; the answer does not reach silent_close"):
        caesar_mock.assert_requested(fault="silent_close")
    assert "fault silent_close not reached" in caesar_mock.describe_requests()
    assert caesar_mock.export("json")["entries"][0]["missed_faults"] == ["silent_close"]


@pytest.mark.parametrize("n", [0, 1, 3])
def test_so_many_failures_may_be_none(caesar_mock, ask, n):
    rule = caesar_mock.on(prompt="Hi").fail_first(n, status=503).reply("Hello")
    for _ in range(n):
        with pytest.raises(openai.InternalServerError):
            ask(caesar_mock, "Hi")
    assert ask(caesar_mock, "Hi") == "Hello"
    assert rule.used == n + 1
    caesar_mock.assert_all_used()


def test_a_rule_for_no_times_is_never_used(caesar_mock, ask):
    caesar_mock.on().reply("never").times(0)
    assert ask(caesar_mock, "Hi") == "Hi"
    caesar_mock.assert_all_used()


def test_requests_that_no_rule_answered_are_named(caesar_mock, ask):
    caesar_mock.on(prompt="a").reply("1")
    ask(caesar_mock, "a")
    caesar_mock.assert_all_matched()
    ask(caesar_mock, "b")
    with pytest.raises(AssertionError, match="'b'"):
        caesar_mock.assert_all_matched()


# --- strictness, seed, clock, fallback


def test_strict(caesar_mock, ask):
    caesar_mock.strict = True
    caesar_mock.on(prompt=contains("quantum")).named("physics").reply("Yes")
    with pytest.raises(openai.NotFoundError, match="physics") as caught:
        ask(caesar_mock, "chemistry")
    assert caught.value.code == "no_fixture_match"


def test_fallback(caesar_mock, ask):
    caesar_mock.fallback = Reply(text="Whatever you say")
    assert ask(caesar_mock, "Hi") == "Whatever you say"


def test_one_seed_gives_the_same_bytes(ask):
    def bodies():
        with mock_server(seed=7) as mock:
            mock.on(prompt="Hi").fault("silent_close", after_chunks=1, probability=0.5)
            for _ in range(6):
                try:
                    ask(mock, "Hi you there", stream=True)
                except openai.APIError:
                    continue
            return [entry.body for entry in mock.wait_for(6, finished=True)]

    assert bodies() == bodies()


def test_a_clock_turned_by_hand(caesar_mock, ask):
    caesar_mock.clock.stop()
    caesar_mock.on(prompt="Hi").reply("one two", pacing={"first_chunk_s": 3600})
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(ask, caesar_mock, "Hi", stream=True)
        caesar_mock.clock.wait_for_waiters(1)
        assert not answer.done()
        caesar_mock.clock.advance(3600)
        assert answer.result(60) == "one two"


def test_reset(caesar_mock, ask):
    caesar_mock.on(prompt="Hi").reply("once").times(1)
    ask(caesar_mock, "Hi")
    caesar_mock.reset("journal")
    assert caesar_mock.requests == ()
    assert ask(caesar_mock, "Hi") == "Hi"
    caesar_mock.reset("counters")
    assert ask(caesar_mock, "Hi") == "once"
    caesar_mock.reset()
    assert ask(caesar_mock, "Hi") == "Hi"
    assert caesar_mock.rules == ()


# --- scopes and servers


def test_scopes_do_not_see_each_other(ask):
    with mock_server() as mock, mock.scope("blue") as blue, mock.scope("red") as red:
        blue.on().reply("from blue")
        red.on().reply("from red")
        assert [ask(each, "Hi") for each in (mock, blue, red)] == ["Hi", "from blue", "from red"]
        for each in (mock, blue, red):
            each.assert_requested(times=1)


def test_a_scope_is_found_by_key_and_header_too(ask):
    with mock_server() as mock, mock.scope("blue") as blue:
        blue.on().reply("from blue")
        with openai.OpenAI(base_url=f"{mock.base_url}/compat", api_key="blue") as client:
            assert (
                client.completions.create(model="any", prompt="Hi").choices[0].text == "from blue"
            )
        headers = {"extra_headers": {"x-caesar-mock-scope": "blue"}}
        assert ask(mock.base_url, "Hi", **headers) == "from blue"
        assert len(blue.requests) == 2
        assert mock.requests == ()


def test_a_scope_that_has_ended_leaves_nothing(ask):
    with mock_server() as mock:
        with mock.scope("blue") as blue:
            blue.on().reply("from blue")
        with mock.scope("blue") as again:
            assert again.rules == ()
            assert ask(again, "Hi") == "Hi"


def test_parallel_tests_on_one_server():
    count = 200
    together = threading.Barrier(count)

    def one_test(mock: CaesarMock) -> None:
        mock.on(prompt="Hi").reply(f"I am {mock.name}", chunks=3)
        mock.on(prompt="Hi").fail_first(1, status=503)
        client = SseClient(mock.base_url)
        asked = {"model": "any", "prompt": "Hi", "stream": True}
        together.wait(60)
        with client.post("/compat/completions", asked) as refusal:
            assert refusal.status == 503
        with client.post("/compat/completions", asked) as answer:
            texts = [frame["choices"][0]["text"] for frame in answer.frames()]
        assert "".join(texts) == f"I am {mock.name}"
        mock.assert_requested(times=2)

    with mock_server() as mock, ThreadPoolExecutor(count) as pool:
        for _ in pool.map(one_test, [mock.scope(f"test-{n}") for n in range(count)]):
            pass
        assert mock.requests == ()


def test_two_servers_in_one_process(ask):
    with mock_server() as one, mock_server() as two:
        one.on().reply("one")
        two.on().reply("two")
        assert [ask(one, "Hi"), ask(two, "Hi")] == ["one", "two"]


def test_the_environment_for_a_program_of_its_own(caesar_mock):
    env = caesar_mock.env
    assert env["OPENAI_BASE_URL"] == f"{caesar_mock.base_url}/compat"
    assert env["OPENAI_API_KEY"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"fallback": "shrug"}, "fallback"),
        ({"sed": 1}, "sed"),
        ({"settings": {"treads": 5}}, "treads"),
        ({"settings": 5}, "settings: expected values by name, got 5"),
        ({"settings": {"store": "sqlite"}}, "settings: store: 'sqlite' is the file in the user's"),
        ({"settings": {"store": "sqlitee"}}, "settings: store: expected memory, "),
        ({"strict": "no"}, "strict: expected True or False, got 'no'"),
        ({"seed": "x"}, "seed: expected a whole number, got 'x'"),
        ({"seed": True}, "seed: expected a whole number, got True"),
        ({"port": "x"}, "port: expected a whole number of 0 or more, got 'x'"),
        ({"host": 5}, "host: expected a text, got 5"),
        ({"fixtures": 5}, "fixtures: expected a path, or a list of paths, got 5"),
    ],
)
def test_wrong_options_are_refused_before_anything_listens(options, words):
    with pytest.raises((TypeError, ValueError), match=words), mock_server(**options):
        pass


def test_a_server_starts_once(ask):
    server = mock_server()
    with server as mock:
        with pytest.raises(RuntimeError, match="starts only once"):
            server.start()
        assert ask(mock, "Hi") == "Hi"
    with pytest.raises(RuntimeError, match="make another one with mock_server"), server:
        pass


def test_settings_of_the_server(ask):
    settings = {"max_prompts": 1}
    with mock_server(settings=settings) as mock, pytest.raises(openai.BadRequestError):
        ask(mock, ["a", "b"])


def test_fixture_files(tmp_path, ask):
    (tmp_path / "answers.json").write_text(json.dumps({"Hi": "from the file"}))
    with mock_server(fixtures=tmp_path / "answers.json") as mock:
        assert ask(mock, "Hi") == "from the file"


def test_asynchronous_tests():
    async def use(mock):
        client = openai.AsyncOpenAI(base_url=f"{mock.base_url}/compat", api_key="test")
        async with client:
            asked = [client.completions.create(model="any", prompt="Hi") for _ in range(5)]
            answers = asyncio.gather(*asked)
            entries = await mock.wait_for_async(5, prompt="Hi")
            return [answer.choices[0].text for answer in await answers], len(entries)

    async def main():
        async with mock_server() as mock:
            mock.on(prompt="Hi").reply("Hello")
            return await use(mock)

    assert asyncio.run(main()) == (["Hello"] * 5, 5)


def test_after_a_reset_nobody_waits_for_what_was_before(caesar_mock, ask):
    caesar_mock.clock.stop()
    caesar_mock.on(prompt="slow").reply("one two three", pacing={"tokens_per_s": 0.001})
    caesar_mock.on(prompt="stuck").fault("hang")
    with ThreadPoolExecutor(2) as pool:
        slow = pool.submit(ask, caesar_mock, "slow", stream=True)
        stuck = pool.submit(ask, caesar_mock, "stuck")
        caesar_mock.clock.wait_for_waiters(2)
        caesar_mock.reset()
        assert slow.result(30) == "one two three"
        with pytest.raises(openai.APIConnectionError):
            stuck.result(30)
    assert caesar_mock.requests == ()


def test_asynchronous_functions_are_refused(caesar_mock):
    async def reply(call):
        return "Hello"

    class Replies:
        async def __call__(self, call):
            return "Hello"

    for function in (reply, Replies()):
        with pytest.raises(TypeError, match="async"):
            caesar_mock.on().reply(function)
    with pytest.raises(TypeError, match="async"):
        caesar_mock.on(reply)


WITHOUT_EXTRAS = """
import sys
sys.modules |= dict.fromkeys(["yaml", "jmespath", "pytest"])  # as if they were not installed
from caesar_server.testing import SseClient, mock_server

with mock_server(fixtures=sys.argv[1]) as mock:
    asked = {"model": "any", "prompt": "Hi"}
    with SseClient(mock.base_url).post("/v1/completions", asked) as answer:
        print(answer.json()["choices"][0]["text"])
"""


def test_it_needs_no_extra_and_no_pytest(tmp_path):
    (tmp_path / "answers.json").write_text(json.dumps({"Hi": "from the file"}))
    command = [sys.executable, "-W", "error", "-c", WITHOUT_EXTRAS, tmp_path / "answers.json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("from the file\n", "")
