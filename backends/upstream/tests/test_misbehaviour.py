"""Each way in which an upstream server can misbehave is recognised for what it is."""

from __future__ import annotations

import gzip
import json
import time
import zlib

import pytest

SLOW = {"first_byte_timeout_s": 0.3, "gap_timeout_s": 0.3}
HTML = b"<!DOCTYPE html><html><body>502 Bad Gateway</body></html>"


def test_a_good_stream_is_the_measure(raw, opened, wire, told) -> None:
    answer = told(opened(raw(wire.hello())).complete())
    assert (answer.text(), answer.usage, answer.reasons) == ("Hello you", (2, 3), {0: "stop"})
    assert answer.error is None
    assert answer.answered_by == "s1"
    assert "usage_estimated" not in answer.details


@pytest.mark.parametrize("status", [b"102 Processing", b"103 Early Hints", b"100 Continue"])
def test_answers_before_the_answer_are_passed_over(raw, opened, wire, told, status) -> None:
    interim = b"HTTP/1.1 " + status + b"\r\nLink: </style.css>; rel=preload\r\n\r\n"
    answer = told(opened(raw(3 * interim + wire.hello())).complete())
    assert (answer.text(), answer.error) == ("Hello you", None)


@pytest.mark.parametrize("status", [b"101 Switching Protocols", b"103 Early Hints"])
def test_an_answer_that_never_comes_is_none(raw, opened, wire, told, status) -> None:
    interim = b"HTTP/1.1 " + status + b"\r\n\r\n"
    assert told(opened(raw(100 * interim)).complete()).error.code == "bad_upstream"


@pytest.mark.parametrize(
    ("cut", "message"),
    [
        ("status line", "closed the connection without an answer"),
        ("headers", "closed the connection without an answer|sent an empty answer"),
        ("frame", "cut its stream off within an event"),
        ("character", "cut its stream off within an event"),
        ("between", "closed its stream in the middle of the answer"),
        ("nothing", "sent an empty answer|sent an empty stream"),
        ("only done", "ended its stream without an answer"),
    ],
)
def test_an_answer_that_is_cut_off_is_an_error(raw, opened, wire, told, cut, message) -> None:
    first = wire.head() + wire.frame(wire.text("caf\u00e9"))
    replies = {
        "status line": wire.head()[:10],
        "headers": wire.head()[:30],
        "frame": first + wire.frame(wire.text("more"))[:20],
        "character": first + wire.frame(wire.text("\u00e9" * 9)).partition("\u00e9".encode())[0],
        "between": first,
        "nothing": wire.head(),
        "only done": wire.stream(),
    }
    answer = told(opened(raw(replies[cut])).complete())
    assert answer.error.status == 502
    assert answer.error.code == "bad_upstream"
    assert answer.error.transient
    assert any(part in answer.error.message for part in message.split("|")), answer.error


@pytest.mark.parametrize("length", [True, False])
def test_a_body_shorter_than_it_says_is_cut(raw, opened, wire, told, length: bool) -> None:
    frame = wire.frame(wire.text("hi", reason="stop"))
    if length:
        reply = wire.head(Content_Length=str(len(frame) + 10)) + frame
    else:
        chunk = b"%x\r\n%b\r\n" % (len(frame), frame)
        reply = wire.head(Transfer_Encoding="chunked") + chunk + b"ff\r\nda"
    answer = told(opened(raw(reply)).complete())
    assert answer.text() == "hi"
    assert (answer.error.status, answer.error.code) == (502, "bad_upstream")
    assert "cut its answer off" in answer.error.message


def test_without_done_a_finished_answer_is_whole(raw, opened, wire, told) -> None:
    answer = told(opened(raw(wire.stream(wire.text("hi", reason="length"), done=False))).complete())
    assert (answer.text(), answer.reasons, answer.error) == ("hi", {0: "length"}, None)


def test_done_without_a_line_break_after_it_is_done(raw, opened, wire, told) -> None:
    reply = wire.stream(wire.text("hi"), done=False) + b"data: [DONE]"
    answer = told(opened(raw(reply)).complete())
    assert (answer.text(), answer.reasons) == ("hi", {0: "stop"})


def test_a_server_that_lingers_after_done_is_not_waited_for(raw, opened, wire, told) -> None:
    def reply(peer) -> None:
        peer.send(wire.hello().replace(b"Connection: close\r\n", b""))
        peer.hang()

    server = raw(reply)
    began = time.monotonic()
    answer = told(opened(server, gap_timeout_s=100).complete())
    assert answer.text() == "Hello you"
    assert time.monotonic() - began < 50
    server.wait_for(lambda server: server.open == 0)


@pytest.mark.parametrize("last", [b"", b"data: [DONE]\n"])
def test_a_finished_answer_is_whole_though_the_server_never_ends_it(
    raw, opened, wire, told, last
) -> None:
    def reply(peer) -> None:
        peer.send(wire.head() + wire.frame(wire.text("hi", reason="length")) + last)
        peer.hang()

    server = raw(reply)
    answer = told(opened(server, **SLOW).complete())
    assert (answer.text(), answer.reasons, answer.error) == ("hi", {0: "length"}, None)
    server.wait_for(lambda server: server.open == 0)


def test_done_without_a_finish_reason_is_repaired_and_said(raw, opened, wire, told) -> None:
    answer = told(opened(raw(wire.stream(wire.text("hi")))).complete())
    assert answer.reasons == {0: "stop"}
    assert answer.details["unfinished_choices"] == 1


@pytest.mark.parametrize(
    "error",
    [
        {"error": {"message": "out of memory", "type": "server_error", "code": "oom"}},
        {"error": {"message": "out of memory", "code": "oom"}, "choices": []},
        {"object": "error", "message": "out of memory", "code": "oom"},
    ],
)
def test_an_error_frame_keeps_its_words(raw, opened, wire, told, error) -> None:
    events = opened(raw(wire.stream(wire.text("hi"), error))).complete()
    answer = told(events)
    assert answer.text() == "hi"
    assert (answer.error.message, answer.error.code) == ("out of memory", "oom")
    assert answer.error.type == "server_error"


def test_an_error_event_is_an_error_whatever_its_data(raw, opened, wire, told) -> None:
    reply = wire.head() + b'event: error\ndata: {"message": "no luck"}\n\n'
    answer = told(opened(raw(reply)).complete())
    assert answer.error.message == "no luck"
    assert answer.answered_by is None


def test_an_error_frame_in_vllms_words_has_a_status(raw, opened, wire, told) -> None:
    error = {"error": {"message": "too long", "type": "BadRequestError", "param": "n", "code": 400}}
    answer = told(opened(raw(wire.stream(error))).complete())
    assert (answer.error.status, answer.error.message, answer.error.param) == (400, "too long", "n")


@pytest.mark.parametrize("content_type", ["application/json", "text/event-stream", "text/plain"])
def test_json_on_a_stream_request_is_an_answer(raw, opened, wire, told, content_type) -> None:
    body = wire.text("whole", reason="stop")
    body["usage"] = {"prompt_tokens": 1, "completion_tokens": 1}
    data = json.dumps(body).encode()
    answer = told(opened(raw(wire.head(content_type) + data)).complete())
    assert (answer.text(), answer.usage, answer.error) == ("whole", (1, 1), None)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("error", ["it broke", {"message": "it broke", "code": "broken"}])
def test_a_200_with_an_error_is_an_error(raw, opened, wire, told, stream, error) -> None:
    ask = opened(raw(wire.json({"error": error})), per_server={"stream": stream})
    answer = told(ask.complete())
    assert (answer.error.status, answer.error.message) == (502, "it broke")


@pytest.mark.parametrize("content_type", ["text/html", "text/event-stream", "application/json"])
@pytest.mark.parametrize("status", ["200 OK", "404 Not Found", "502 Bad Gateway"])
def test_an_html_page_is_no_answer(raw, opened, wire, told, content_type, status) -> None:
    answer = told(opened(raw(wire.head(content_type, status) + HTML)).complete())
    assert answer.error.status == 502
    assert "<" not in answer.error.message
    assert answer.answered_by is None


def test_a_stream_on_a_json_request_is_read_as_one(raw, opened, wire, told) -> None:
    ask = opened(raw(wire.hello()), per_server={"stream": False})
    answer = told(ask.complete())
    assert (answer.text(), answer.usage) == ("Hello you", (2, 3))


@pytest.mark.parametrize("content_type", ["text/plain", "application/octet-stream", ""])
def test_a_stream_is_known_by_its_looks(raw, opened, wire, told, content_type) -> None:
    reply = wire.hello().replace(b"text/event-stream", content_type.encode())
    assert told(opened(raw(reply)).complete()).text() == "Hello you"


@pytest.mark.parametrize(
    "frame", ["nonsense", "[1]", '"text"', "{}", '{"choices": null}', '{"choices": [7]}']
)
def test_frames_that_are_no_chunks_are_named(raw, opened, wire, told, frame: str) -> None:
    answer = told(opened(raw(wire.stream(wire.text("hi"), frame))).complete())
    assert (answer.text(), answer.error.status) == ("hi", 502)
    assert "sent" in answer.error.message


@pytest.mark.parametrize("index", [2, -1, "0", 10**9])
def test_choices_that_were_not_asked_for_are_named(raw, opened, wire, told, index) -> None:
    answer = told(opened(raw(wire.stream(wire.text("hi", index=index)))).complete(n=2))
    assert "sent a choice" in answer.error.message


def test_a_further_choice_in_one_chunk_is_named(raw, opened, wire, told) -> None:
    choices = [wire.text("hi", index=index)["choices"][0] for index in (0, 1)]
    answer = told(opened(raw(wire.stream({"choices": choices}))).complete())
    assert "sent a choice 1 of 1" in answer.error.message


def test_text_after_the_finish_reason_is_named(raw, opened, wire, told) -> None:
    reply = wire.stream(wire.text("a", reason="stop"), wire.text(""), wire.text("b"))
    answer = told(opened(raw(reply)).complete())
    assert answer.text() == "a"
    assert "that it had finished" in answer.error.message


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_packed_answers_are_unpacked_as_they_come(raw, opened, wire, told, encoding) -> None:
    plain = wire.hello().partition(b"\r\n\r\n")[2]
    packed = gzip.compress(plain) if encoding == "gzip" else zlib.compress(plain)
    reply = wire.head(Content_Encoding=encoding) + packed
    assert told(opened(raw(reply)).complete()).text() == "Hello you"


def test_a_packed_answer_cannot_fill_the_memory(raw, opened, wire, told) -> None:
    bomb = gzip.compress(b"data: " + b"a" * 50_000_000)
    reply = wire.head(Content_Encoding="gzip") + bomb
    answer = told(opened(raw(reply), max_line_bytes=100_000).complete())
    assert "cannot be read: an event is longer than 100000 bytes" in answer.error.message


def test_http_1_0_is_read_as_it_comes(raw, opened, wire, told) -> None:
    reply = wire.hello().replace(b"HTTP/1.1", b"HTTP/1.0").replace(b"Connection: close\r\n", b"")
    assert told(opened(raw(reply)).complete()).text() == "Hello you"


def test_a_slow_drip_is_read_as_it_comes(raw, opened, wire, told) -> None:
    def drip(peer) -> None:
        for byte in wire.hello():
            peer.send(bytes([byte]))

    assert told(opened(raw(drip)).complete()).text() == "Hello you"


def test_crlf_comments_and_split_fields_are_read(raw, opened, wire, told) -> None:
    body = wire.hello().partition(b"\r\n\r\n")[2].replace(b"\n", b"\r\n")
    reply = wire.head() + b": hello\r\n\r\nid: 1\r\nretry: 5\r\n\r\n" + body
    assert told(opened(raw(reply)).complete()).text() == "Hello you"


def endless_headers(peer) -> None:
    peer.send(b"HTTP/1.1 200 OK\r\n")
    for number in range(100_000):
        peer.send(b"X-%d: y\r\n" % number)


def endless_header(peer) -> None:
    peer.send(b"HTTP/1.1 200 OK\r\nX: ")
    while True:
        peer.send(b"y" * 4096)


def endless_line(peer) -> None:
    peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: ")
    while True:
        peer.send(b"y" * 65536)


def endless_comments(peer) -> None:
    peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
    while True:
        peer.send(b": hello\n\n" * 5000)


@pytest.mark.parametrize("reply", [endless_headers, endless_header, endless_line, endless_comments])
def test_what_has_no_end_is_left(raw, opened, told, reply) -> None:
    server = raw(reply)
    ask = opened(server, max_line_bytes=500_000, max_response_bytes=2_000_000)
    answer = told(ask.complete())
    assert answer.error.status == 502
    server.wait_for(lambda server: server.open == 0)


def test_a_json_answer_is_bounded(raw, opened, wire, told) -> None:
    data = b'{"choices": [' + b" " * 3_000_000
    answer = told(opened(raw(wire.json(data)), max_response_bytes=2_000_000).complete())
    assert "longer than 2000000 bytes" in answer.error.message


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_redirects_are_not_followed(raw, opened, wire, told, status: int) -> None:
    other = raw(wire.hello())
    reply = wire.head("text/html", f"{status} Moved", Location=other.url + "/completions")
    answer = told(opened(raw(reply), per_server={"api_key": "sk-not-to-be-sent"}).complete())
    assert answer.error.status == 502
    assert "redirect" in answer.error.message
    assert not answer.error.transient
    assert other.made == 0


def test_a_reset_is_no_answer(raw, opened, wire, told) -> None:
    answer = told(opened(raw(lambda peer: peer.reset())).complete())
    assert (answer.error.status, answer.error.code) == (502, "bad_upstream")


def test_a_reset_in_the_middle_cuts_the_answer(raw, opened, wire, told) -> None:
    def reply(peer) -> None:
        peer.send(wire.head() + wire.frame(wire.text("hi")))
        peer.reset()

    answer = told(opened(raw(reply)).complete())
    assert answer.error.status == 502


@pytest.mark.parametrize("status", [204, 201])
def test_another_success_is_no_answer(raw, opened, wire, told, status) -> None:
    answer = told(opened(raw(wire.head(status=f"{status} X"))).complete())
    assert (answer.error.status, answer.error.code) == (502, "bad_upstream")


def test_nothing_that_answers_is_unavailable(opened, told, raw, wire) -> None:
    server = raw(wire.hello())
    url = server.url
    server.close()
    answer = told(opened(url).complete())
    assert (answer.error.status, answer.error.code) == (503, "backend_unavailable")
    assert answer.error.transient


def test_a_name_without_an_address_is_unavailable(opened, told) -> None:
    answer = told(opened("http://no-such-host.invalid/v1").complete())
    assert answer.error.status == 503
    assert "resolved" in answer.error.message


@pytest.mark.parametrize("silence", ["before", "headers", "between", "in a frame"])
def test_silence_is_a_time_out(raw, opened, wire, told, silence: str) -> None:
    first = wire.head() + wire.frame(wire.text("hi"))
    sent = {"before": b"", "headers": wire.head()[:20], "between": first}
    sent["in a frame"] = first + b"da"

    def reply(peer) -> None:
        peer.send(sent[silence])
        peer.hang()

    server = raw(reply)
    answer = told(opened(server, **SLOW).complete())
    assert (answer.error.status, answer.error.code) == (504, "backend_timeout")
    server.wait_for(lambda server: server.open == 0)


@pytest.mark.parametrize("part", ["headers", "stream"])
def test_a_drip_does_not_outlast_the_total(raw, opened, wire, told, part: str) -> None:
    def reply(peer) -> None:
        peer.send(b"HTTP/1.1 200 OK\r\nX: " if part == "headers" else wire.head())
        while not peer.stop.wait(0.02):
            peer.send(b"y" if part == "headers" else b":\n\n")

    server = raw(reply)
    limits = {"first_byte_timeout_s": 0.3} if part == "headers" else {"total_timeout_s": 0.4}
    answer = told(opened(server, **limits).complete())
    assert answer.error.status == 504
    server.wait_for(lambda server: server.open == 0)


def test_connecting_has_its_own_limit(opened, told, black_hole) -> None:
    answer = told(opened(black_hole, connect_timeout_s=0.2).complete())
    assert answer.error.status == 504
    assert "connect" in answer.error.message


def test_heartbeats_are_signs_of_life(raw, opened, wire, told) -> None:
    def reply(peer) -> None:
        peer.send(wire.head())
        for _ in range(8):
            peer.stop.wait(0.2)
            peer.send(b": still at it\n\n")
        peer.send(wire.hello().partition(b"\r\n\r\n")[2])

    ask = opened(raw(reply), first_byte_timeout_s=1.4, gap_timeout_s=1.4)
    assert told(ask.complete()).text() == "Hello you"
