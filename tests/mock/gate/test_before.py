"""Faults before an answer, or instead of it, byte by byte."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from caesar_server.mock.model.fault import Fault
from caesar_server.mock.model.rule import Rule

PLAIN = {"model": "m", "prompt": "hello"}
STREAM = {**PLAIN, "stream": True}
bodies = pytest.mark.parametrize("body", [PLAIN, STREAM], ids=["plain", "stream"])


@bodies
def test_a_status_with_an_error_object(mock, body):
    mock.fault("status", status=429, message="Slow down", code="slow", retry_after_s=1.2)
    received = mock.ask(body)
    assert received.head.startswith("HTTP/1.1 429 ")
    assert "Content-Type: application/json" in received.head
    assert "Retry-After: 2" in received.head
    assert "retry-after-ms: 1200" in received.head
    assert "x-should-retry" not in received.head.lower()
    assert json.loads(received.body) == {
        "error": {
            "message": "Slow down",
            "type": "rate_limit_error",
            "param": None,
            "code": "slow",
        }
    }
    entry = mock.entry()
    assert (entry.status, entry.ended) == (429, "completed")
    assert [fault.kind for fault in entry.faults] == ["status"]


@pytest.mark.parametrize(
    ("fields", "content_type", "sent"),
    [
        ({"body": "Bad gateway"}, "text/plain; charset=utf-8", b"Bad gateway"),
        ({"body": {"detail": ["é"]}}, "application/json", '{"detail":["é"]}'.encode()),
        (
            {"body": "<p>", "headers": {"content-type": "text/html", "X-Mine": "yes"}},
            "text/html",
            b"<p>",
        ),
        ({"body": ""}, "text/plain; charset=utf-8", b""),
    ],
)
def test_a_status_with_a_body_of_its_own(mock, fields, content_type, sent):
    mock.fault("status", status=502, **fields)
    received = mock.ask(STREAM)
    assert received.head.startswith("HTTP/1.1 502 ")
    assert f"content-type: {content_type}" in received.head.lower()
    assert ("X-Mine: yes" in received.head) == ("headers" in fields)
    assert f"Content-Length: {len(sent)}" in received.head
    assert received.body == sent


def test_a_redirect_has_no_body(mock):
    mock.fault("status", status=307, headers={"Location": "/elsewhere"})
    received = mock.ask(PLAIN)
    assert "Location: /elsewhere" in received.head
    assert received.body == b""


def test_an_unauthorised_call_is_told_so_in_the_errors_type(mock):
    mock.fault("status", status=401)
    assert json.loads(mock.ask(PLAIN).body)["error"]["type"] == "authentication_error"


@bodies
def test_a_reset(mock, body):
    mock.fault("reset")
    assert mock.ask(body) == (b"", "reset")
    assert mock.entry().ended == "fault:reset"
    assert mock.entry().status is None


@bodies
def test_half_headers(mock, body):
    mock.fault("half_headers")
    received = mock.ask(body)
    assert received.end == "closed"
    assert received.raw.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"\r\n\r\n" not in received.raw
    assert not received.raw.endswith(b"\r\n")
    assert mock.entry().ended == "fault:half_headers"


@bodies
def test_early_hints_come_before_the_answer(mock, body):
    mock.fault("early_hints", headers={"Link": "</style.css>; rel=preload"})
    hints, _, answer = mock.ask(body).raw.partition(b"\r\n\r\n")
    assert hints == b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload"
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"four" in answer
    assert mock.entry().ended == "completed"
    assert mock.entry().status == 200


@bodies
def test_a_delay_lasts_by_the_scopes_clock(mock, body, read):
    mock.fault("delay", delay_s=3600)
    mock.scope.clock.stop()
    sock = mock.open(body)
    mock.scope.clock.wait_for_waiters()
    mock.scope.clock.advance(3599.9)
    mock.scope.clock.wait_for_waiters()
    mock.scope.clock.advance(0.1)
    assert b"four" in read(sock).raw
    assert mock.entry().head_at_s >= 3600


@bodies
def test_a_hang_says_nothing_until_the_client_leaves(mock, body):
    mock.fault("hang")
    sock = mock.open(body)
    mock.scope.clock.wait_for_waiters()
    assert mock.entry_now().ended is None
    sock.close()
    assert mock.entry().ended == "client_left"
    assert mock.entry().status is None
    assert mock.entry().bytes_sent == 0


@bodies
def test_a_hang_may_have_an_end(mock, body, read):
    mock.fault("hang", delay_s=60)
    mock.scope.clock.stop()
    sock = mock.open(body)
    mock.scope.clock.wait_for_waiters()
    mock.scope.clock.advance(60)
    assert read(sock) == (b"", "closed")
    assert mock.entry().ended == "fault:hang"


def test_a_client_that_leaves_during_a_delay_gets_no_run(mock):
    mock.fault("delay", delay_s=3600)
    sock = mock.open(PLAIN)
    mock.scope.clock.wait_for_waiters()
    sock.close()
    assert mock.entry().ended == "client_left"


def test_faults_of_a_rule_come_in_their_order(mock):
    faults = (
        Fault(kind="early_hints"),
        Fault(kind="status", status=503),
        Fault(kind="reset"),
    )
    mock.scope.add(Rule(id="", faults=faults))
    received = mock.ask(PLAIN)
    assert received.raw.startswith(b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 503 ")
    assert [fault.kind for fault in mock.entry().faults] == ["early_hints", "status"]


def test_a_rule_that_is_used_up_lets_pass(mock):
    fault = Fault(kind="status", status=500)
    rule = mock.scope.add(Rule(id="", faults=(fault,), times=2))
    heads = [mock.ask(PLAIN).head for _ in range(3)]
    assert [head.split()[1] for head in heads] == ["500", "500", "200"]
    assert [note.rule for note in mock.entry(1).faults] == [rule.id]
    assert mock.scope.journal.totals().faults == {"status": 2}


def test_faults_are_counted_exactly_under_parallel_calls(mock):
    mock.scope.add(Rule(id="", faults=(Fault(kind="reset"),), times=20))
    with ThreadPoolExecutor(16, thread_name_prefix="asking") as pool:
        ends = list(pool.map(lambda _: mock.ask(STREAM).end, range(60)))
    assert ends.count("reset") == 20
    assert mock.scope.journal.totals().faults == {"reset": 20}
    mock.scope.journal.wait_for(60, ended=True)
    assert mock.scope.journal.totals().ended == {"fault:reset": 20, "completed": 40}


def test_chance_is_drawn_from_the_seed(mock):
    def draw(seed):
        mock.scope.seed = seed
        ends = [mock.ask({**PLAIN, "prompt": f"number {number}"}).end for number in range(24)]
        return [end == "reset" for end in ends]

    mock.fault("reset", probability=0.5)
    first = draw(1)
    assert 4 < sum(first) < 20
    assert draw(1) == first
    assert draw(2) != first
