"""Faults in the body of an answer, byte by byte."""

from __future__ import annotations

import json

import pytest

from caesar_server.blueprints.mock.gate.exchange import EXCHANGE_KEY, Exchange
from caesar_server.blueprints.mock.gate.layer import MockLayer
from caesar_server.mock.model.call import Call
from caesar_server.mock.model.fault import Fault
from caesar_server.mock.model.pacing import Pacing
from caesar_server.mock.model.reply import MockError, Reply
from caesar_server.mock.model.rule import Rule
from caesar_server.mock.scope import Scope
from caesar_server.web.gone import SocketWatch

PLAIN = {"model": "m", "prompt": "hello"}
STREAM = {**PLAIN, "stream": True}
WHOLE = ["one", " two", " three", " four", ""]
DONE = b"data: [DONE]"


def test_a_stream_without_faults_is_whole(mock):
    received = mock.ask(STREAM)
    assert received.texts == WHOLE
    assert received.frames[-1] == DONE
    assert received.ends_properly
    entry = mock.entry()
    assert entry.ended == "completed"
    assert entry.body == received.body
    assert len(entry.frames) == 6


def test_an_error_frame(mock):
    mock.fault("error_frame", after_chunks=2, message="Gone", code="gone")
    received = mock.ask(STREAM)
    assert received.texts == WHOLE[:2]
    error = {"message": "Gone", "type": "server_error", "param": None, "code": "gone"}
    assert json.loads(received.frames[2][6:]) == {"error": error}
    assert received.frames[3:] == [DONE]
    assert received.ends_properly
    assert mock.entry().ended == "fault:error_frame"


@pytest.mark.parametrize("after_chunks", [0, 1, 4])
def test_a_silent_close(mock, after_chunks):
    mock.fault("silent_close", after_chunks=after_chunks)
    received = mock.ask(STREAM)
    assert received.head.startswith("HTTP/1.1 200 ")
    assert received.texts == WHOLE[:after_chunks]
    assert len(received.frames) == after_chunks
    assert received.ends_properly
    assert mock.entry().ended == "fault:silent_close"


@pytest.mark.parametrize("after_chunks", [0, 2])
def test_a_reset_in_the_body_comes_after_the_head_and_the_chunks(mock, after_chunks):
    mock.fault("connection_reset", after_chunks=after_chunks)
    received = mock.ask(STREAM)
    assert received.end == "reset"
    assert received.head.startswith("HTTP/1.1 200 ")
    assert received.texts == WHOLE[:after_chunks]
    assert not received.ends_properly
    assert mock.entry().ended == "fault:connection_reset"


@pytest.mark.parametrize(("body", "after"), [(STREAM, b" two"), (PLAIN, b'{"id":"')])
def test_a_stall_lasts_until_the_client_leaves(mock, body, after):
    mock.fault("stall", after_chunks=2 if body is STREAM else 7)
    with mock.open(body) as sock:
        received = b""
        while after not in received:
            received += sock.recv(65536)
        mock.scope.clock.wait_for_waiters()
    assert b"three" not in received
    assert mock.entry().ended == "client_left"
    assert [fault.kind for fault in mock.entry().faults] == ["stall"]


@pytest.mark.parametrize("body", [STREAM, PLAIN], ids=["stream", "plain"])
def test_a_stall_may_have_an_end(mock, body, read):
    mock.fault("stall", after_chunks=1, delay_s=60)
    mock.scope.clock.stop()
    sock = mock.open(body)
    mock.scope.clock.wait_for_waiters()
    mock.scope.clock.advance(60)
    received = read(sock)
    assert b"four" in received.raw
    assert mock.entry().ended == "completed"
    assert [frame.at_s >= 60 for frame in mock.entry().frames][:2] == [False, True]


def test_malformed_json(mock):
    mock.fault("malformed_json", after_chunks=1)
    received = mock.ask(STREAM)
    assert received.frames[0].endswith(b"}")
    with pytest.raises(json.JSONDecodeError):
        json.loads(received.frames[1][6:])
    assert len(received.frames) == 6
    assert received.ends_properly


def test_truncated_utf8(mock):
    mock.fault("truncated_utf8", after_chunks=1)
    received = mock.ask(STREAM)
    with pytest.raises(UnicodeDecodeError):
        received.frames[1].decode()
    assert b'"text":" two\xe2\x82"' in received.frames[1]
    assert len(received.frames) == 6


def test_missing_done(mock):
    mock.fault("missing_done")
    received = mock.ask(STREAM)
    assert received.texts == WHOLE
    assert DONE not in received.frames
    assert received.ends_properly


def test_a_duplicate_chunk(mock):
    mock.fault("duplicate_chunk", after_chunks=1)
    assert mock.ask(STREAM).texts == ["one", " two", " two", " three", " four", ""]


def test_reordered_chunks(mock):
    mock.fault("reorder_chunks", after_chunks=1)
    assert mock.ask(STREAM).texts == ["one", " three", " two", " four", ""]


@pytest.mark.parametrize("body", [STREAM, PLAIN], ids=["stream", "plain"])
def test_a_wrong_content_type(mock, body):
    right = mock.ask(body)
    mock.fault("wrong_content_type", content_type="text/x-wrong")
    wrong = mock.ask(body)
    assert "Content-Type: text/x-wrong" in wrong.head
    assert len(wrong.body) == len(right.body)
    assert [fault.kind for fault in mock.entry(1).faults] == ["wrong_content_type"]


def test_crlf(mock):
    mock.fault("crlf", after_chunks=1)
    body = mock.ask(STREAM).body
    assert body.count(b"\r\n") == 10
    assert body.endswith(b"\r\n\r\ndata: [DONE]\r\n\r\n")
    assert b"\r" not in body[: body.index(b" two")].partition(b"\n\n")[0]


def test_empty_data(mock):
    mock.fault("empty_data", after_chunks=1, count=2)
    assert mock.ask(STREAM).frames[1:3] == [b"data:", b"data:"]


def test_a_storm_of_comments(mock):
    mock.fault("comment_storm", after_chunks=1, count=500)
    received = mock.ask(STREAM)
    assert received.frames[1:501] == [b": comment %d" % number for number in range(1, 501)]
    assert received.texts == WHOLE


@pytest.mark.parametrize("body", [STREAM, PLAIN], ids=["stream", "plain"])
def test_slow_drip(mock, body, read):
    whole = mock.ask(body).body
    mock.fault("slow_drip", after_chunks=1, delay_s=0.001, count=100)
    received = mock.ask(body)
    assert len(received.body) == len(whole)
    entry = mock.entry(1)
    assert all(len(frame.data) <= 200 for frame in entry.frames)
    assert len(entry.frames) > len(whole) // 200
    assert entry.ended == "completed"


def test_a_silent_close_of_json_announces_no_length(mock):
    mock.fault("silent_close", after_chunks=10)
    received = mock.ask(PLAIN)
    assert "content-length" not in received.head.lower()
    assert len(received.body) == 10
    assert received.ends_properly


def test_a_reset_within_json(mock):
    mock.fault("connection_reset", after_chunks=10)
    received = mock.ask(PLAIN)
    assert received.end == "reset"
    assert len(received.body) == 10


def test_an_error_frame_is_an_error_with_status_200_where_there_is_no_stream(mock):
    mock.fault("error_frame", message="Gone")
    received = mock.ask(PLAIN)
    assert received.head.startswith("HTTP/1.1 200 ")
    assert json.loads(received.body)["error"]["message"] == "Gone"
    assert f"Content-Length: {len(received.body)}" in received.head


@pytest.mark.parametrize("kind", ["malformed_json", "truncated_utf8"])
def test_broken_json(mock, kind):
    mock.fault(kind, after_chunks=10)
    received = mock.ask(PLAIN)
    assert f"Content-Length: {len(received.body)}" in received.head
    with pytest.raises((json.JSONDecodeError, UnicodeDecodeError)):
        json.loads(received.body)


@pytest.mark.parametrize("kind", ["missing_done", "crlf", "duplicate_chunk", "comment_storm"])
def test_what_needs_a_stream_is_refused_without_one(mock, kind):
    mock.fault(kind)
    received = mock.ask(PLAIN)
    assert received.head.startswith("HTTP/1.1 422 ")
    error = json.loads(received.body)["error"]
    assert error["code"] == "fault_not_possible"
    assert f"The fault {kind} needs a stream" in error["message"]
    assert mock.entry().faults == ()


def test_a_refusal_is_not_the_answer_that_a_fault_was_meant_for(mock):
    mock.fault("missing_done")
    received = mock.ask({**STREAM, "temperature": 9})
    assert received.head.startswith("HTTP/1.1 400 ")
    assert json.loads(received.body)["error"]["param"] == "temperature"
    assert mock.entry().faults == ()


def test_an_error_that_is_a_fault_can_be_broken_too(mock):
    faults = (Fault(kind="status", status=500), Fault(kind="silent_close", after_chunks=5))
    mock.scope.add(Rule(id="", faults=faults))
    received = mock.ask(PLAIN)
    assert received.head.startswith("HTTP/1.1 500 ")
    assert received.body == b'{"err'


def test_a_place_that_is_never_reached_is_no_fault(mock):
    mock.fault("silent_close", after_chunks=50)
    assert mock.ask(STREAM).texts == WHOLE
    assert (mock.entry().ended, mock.entry().faults) == ("completed", ())


@pytest.mark.parametrize("body", [STREAM, PLAIN])
def test_a_rule_whose_place_the_answer_does_not_reach_is_not_used(mock, scopes, body):
    fault = Fault(kind="silent_close", after_chunks=2000)
    rule = mock.scope.add(Rule(faults=(fault,), times=1))
    mock.ask(body)
    assert mock.scope.uses(rule.id) == 0
    assert (mock.entry().missed, mock.scope.journal.totals().faults) == (("silent_close",), {})
    longer = Reply(text="word " * 3000)
    scopes.get().add(Rule(id="longer", replies=(longer,), priority=1))
    mock.ask(body)
    assert mock.scope.uses(rule.id) == 1
    assert (mock.entry(1).ended, mock.entry(1).missed) == ("fault:silent_close", ())
    mock.ask(body)
    assert (mock.entry(2).ended, mock.scope.uses(rule.id)) == ("completed", 1)


def test_a_rule_of_which_one_fault_happens_is_used(mock):
    late = Fault(kind="silent_close", after_chunks=50)
    rule = mock.scope.add(Rule(faults=(Fault(kind="duplicate_chunk"), late)))
    assert mock.ask(STREAM).texts == ["one", *WHOLE]
    assert mock.scope.uses(rule.id) == 1
    assert [note.kind for note in mock.entry().faults] == ["duplicate_chunk"]
    assert mock.entry().missed == ("silent_close",)


def test_a_header_whose_place_the_answer_does_not_reach(mock):
    asked = {"X-Caesar-Mock-Fault": "stall", "X-Caesar-Mock-After-Chunks": "50"}
    assert mock.ask(STREAM, **asked).texts == WHOLE
    assert (mock.entry().missed, mock.entry().faults) == (("stall",), ())


@pytest.mark.parametrize("body", [STREAM, PLAIN])
def test_an_answer_that_is_an_error_has_no_place_for_faults(mock, scopes, body):
    failing = Reply(error=MockError(message="Broken", status=503))
    scopes.get().add(Rule(id="first", replies=(failing,), priority=1))
    rule = mock.fault("silent_close")
    assert mock.ask(body).head.startswith("HTTP/1.1 503 ")
    assert (mock.scope.uses(rule.id), mock.scope.uses("first")) == (0, 1)
    assert mock.entry().missed == ("silent_close",)


def test_a_client_that_leaves_before_the_fault(mock, scopes):
    slow = Reply(text="one two three", pacing=Pacing(tokens_per_s=0.01))
    scopes.get().add(Rule(id="first", replies=(slow,), priority=1))
    rule = mock.fault("silent_close", after_chunks=2)
    mock.open(STREAM).close()
    assert (mock.entry().ended, mock.entry().missed) == ("client_left", ("silent_close",))
    assert mock.scope.uses(rule.id) == 0


def test_a_backend_that_fails_before_the_fault(mock, scopes):
    failing = Reply(text="one two", error=MockError(message="Broken"))
    scopes.get().add(Rule(id="first", replies=(failing,), priority=1))
    mock.fault("silent_close", after_chunks=2)
    received = mock.ask(STREAM)
    assert received.texts == WHOLE[:2]
    assert b"Broken" not in received.body


def test_chat_and_other_paths_have_the_same_faults(mock):
    mock.fault("silent_close", after_chunks=2)
    messages = [{"role": "user", "content": "hello"}]
    body = {"model": "m", "messages": messages, "stream": True}
    for path in ("/compat/chat/completions", "/v1/chat/completions"):
        received = mock.ask(body, path)
        chunks = [json.loads(frame[6:]) for frame in received.frames]
        deltas = [chunk["choices"][0]["delta"].get("content") for chunk in chunks]
        assert "".join(filter(None, deltas)) == "one two"
    assert mock.ask(path="/compat/models").body == b'{"'


def test_a_connection_serves_on_after_a_fault_that_ends_properly(mock):
    mock.fault("silent_close", after_chunks=1)
    with mock.open(STREAM, Connection="keep-alive") as sock:
        received = b""
        while b"\r\n0\r\n\r\n" not in received:
            received += sock.recv(65536)
    assert mock.entry().ended == "fault:silent_close"


@pytest.mark.parametrize(
    ("sent", "asks_on", "ended"),
    [
        (2, True, "completed"),
        (2, False, "completed"),
        (1, True, "client_left"),
        (1, False, "client_left"),
    ],
)
def test_a_client_that_has_the_last_byte_may_leave_before_the_host_is_done(sent, asks_on, ended):
    scope = Scope()
    recording = scope.journal.open(Call(id="1"))
    exchange = Exchange(scope, recording, {}, SocketWatch(), lambda _: None)

    def app(_environ, start_response):
        start_response("200 OK", [("Content-Length", "2")])
        return iter([b"x"] * sent)

    body = MockLayer(app)({EXCHANGE_KEY: exchange, "PATH_INFO": "/"}, lambda *_: None)
    for _ in range(sent):
        next(body)
    exchange.leave()
    if asks_on:
        assert next(body, None) is None
    body.close()
    assert scope.journal.entries()[0].ended == ended
