"""Requests that are odd as HTTP: methods, paths, headers, framing, connections used again."""

from __future__ import annotations

import json
from typing import Any

import pytest

GOOD = b'{"model": "m", "prompt": "p"}'
ENDPOINTS = ["/compat/completions", "/compat/chat/completions"]


def get(path: str, *lines: str, method: str = "GET", version: str = "1.1") -> bytes:
    head = [f"{method} {path} HTTP/{version}", "Host: localhost", *lines, "", ""]
    return "\r\n".join(head).encode("latin-1")


def text_of(reply: Any) -> Any:
    assert reply.status == 200, reply.body
    return json.loads(reply.body)["choices"][0]["text"]


@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE", "TRACE", "PROPFIND"])
def test_another_method_is_a_405(host, path, method):
    reply = host.ask(get(path, method=method))
    assert (reply.status, reply.error["code"]) == (405, "method_not_allowed")
    assert set(reply.headers["allow"].split(", ")) == {"POST", "OPTIONS"}


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(
            b"\x16\x03\x01\x00\xc1\x01\x00\x00\xbd\x03\x03" + b"\x0a" * 180, id="encrypted"
        ),
        pytest.param(b"GET / HTTP/1.1\nHost: x\n\n", id="line feeds alone"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\n\n", id="a line feed alone"),
        pytest.param(b"hello\r\n", id="no request line"),
        pytest.param(b"\r\nhello\r\n", id="no request line behind an empty one"),
        pytest.param(b"GET /" + b"x" * 5000, id="a line without an end"),
    ],
)
def test_what_is_no_request_is_refused_before_its_end(gunicorn, sent):
    with gunicorn.wire() as wire:
        wire.send(sent)
        # else it would be closed without a word, when the time for its head is up
        assert wire.reply().status in (400, 414)


@pytest.mark.parametrize("sent", [b"hello\r\n", b"GET / HTTP/1.1\nHost: x\n\n"])
def test_what_is_no_request_behind_one_is_refused_before_its_end(gunicorn, sent):
    with gunicorn.wire() as wire:
        wire.send(get("/healthz") + sent)
        assert wire.reply().status == 200
        assert wire.reply().status == 400


@pytest.mark.parametrize(
    ("path", "status"), [("/compat/models", 200), ("/compat/completions", 405), ("/compat/x", 404)]
)
def test_head_is_get_without_a_body(gunicorn, path, status):
    with gunicorn.wire() as wire:
        wire.send(get(path, method="HEAD"))
        reply = wire.reply(head=True)
        assert reply.status == status
        assert reply.headers["content-type"] == "application/json"
        assert int(reply.headers["content-length"]) > 0
        # nothing of a body lies before the next answer
        wire.send(get("/healthz"))
        assert wire.reply().status == 200


@pytest.mark.parametrize(
    ("path", "status"),
    [("/compat/completions", 200), ("/compat/models", 200), ("/compat/x", 404), ("*", 404)],
)
def test_options_tells_the_methods_and_opens_nothing_to_other_origins(gunicorn, path, status):
    asks = ("Origin: https://evil.example", "Access-Control-Request-Method: POST")
    reply = gunicorn.ask(get(path, *asks, method="OPTIONS"))
    assert reply.status == status
    assert not [name for name in reply.headers if name.startswith("access-control")]
    if status == 200:
        assert reply.body == b""
        assert "OPTIONS" in reply.headers["allow"]


@pytest.mark.parametrize(
    "path",
    [
        "/compat/completions",
        "/compat/completions/",
        "/compat/completions?a=1&b",
        "/compat/completions#x",
        "/compat%2Fcompletions",
        "/compat/%63ompletions",
        "//compat/completions",
        "http://other.example/compat/completions",
    ],
)
def test_spellings_of_the_path_that_mean_it(gunicorn, post, path):
    assert text_of(gunicorn.ask(post(GOOD, path=path))) == "p"


@pytest.mark.parametrize(
    "path",
    [
        "/compat",
        "/compat/",
        "/compat/nothing",
        "/compat//completions",
        "/compat///completions//",
        "/compat/completions//",
        "/compat/./completions",
        "/compat/x/../completions",
        "/compat/%2e%2e/completions",
        "/compat/completions%00",
        "/compat/completions%0d%0aX-Evil:%201",
        "/compat/completions%20",
        "/compat/completions;x=1",
        "/compat/COMPLETIONS",
        "/compat/%ff%fe",
        "/compat/%E2%80%AE%1b[31m",
        "/compat/" + "x" * 3000,
        "/v1//completions",
        "/v1/nothing",
        "/compat/v1/nothing",
    ],
)
def test_any_other_path_is_a_404_in_openais_form(host, post, path):
    reply = host.ask(post(GOOD, path=path))
    assert (reply.status, reply.error["code"]) == (404, "not_found")
    assert "location" not in reply.headers
    assert "x-evil" not in reply.headers


@pytest.mark.parametrize("path", ["/", "/nothing", "/compatible/x", "/healthz//"])
def test_elsewhere_the_error_is_a_string(host, path):
    reply = host.ask(get(path))
    assert (reply.status, json.loads(reply.body)) == (404, {"error": "Resource not found"})


@pytest.mark.parametrize(
    "model", ["x", "a/b", "a%2Fb", "..%2F..%2Fetc%2Fpasswd", "%00", "%1b[2J", "%ff", "x" * 3000]
)
def test_an_unknown_model_is_a_404_whatever_its_name(host, model):
    reply = host.ask(get(f"/compat/models/{model}"))
    assert (reply.status, reply.error["code"]) == (404, "model_not_found")


# What gunicorn refuses by itself: the app never sees it.


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        pytest.param(b"nonsense\r\n\r\n", 400, id="no request"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400, id="TLS"),
        pytest.param(b"GET /compat/models\r\n\r\n", 400, id="HTTP/0.9"),
        pytest.param(get("/compat/models", version="2.0"), 400, id="HTTP/2.0"),
        pytest.param(get("/compat/models", version="9.9"), 400, id="HTTP/9.9"),
        pytest.param(get("/compat/models", method="get"), 400, id="lower case"),
        pytest.param(get("/compat/models", method="G@T"), 400, id="odd method"),
        pytest.param(get("/compat/m odels"), 400, id="space in the path"),
        pytest.param(get("/compat/\x7f\x01"), 400, id="controls in the path"),
        pytest.param(get("/compat/\xe9"), 400, id="Latin-1 in the path"),
        pytest.param(get("compat/models"), 400, id="relative path"),
        pytest.param(get("/" + "x" * 5000), 414, id="long path"),
        pytest.param(get("/" + "x" * 100_000), 414, id="longer path"),
        pytest.param(get("/compat/models", "X-Long: " + "x" * 9000), 431, id="long header"),
        pytest.param(get("/compat/models", *["X-Many: x"] * 200), 431, id="many headers"),
        pytest.param(get("/compat/models", *["X-Many: " + "x" * 8000] * 200), 431, id="flood"),
        pytest.param(get("/compat/models", "no colon"), 400, id="no colon"),
        pytest.param(get("/compat/models", ": empty"), 400, id="no name"),
        pytest.param(get("/compat/models", "X Y: z"), 400, id="space in a name"),
        pytest.param(get("/compat/models", "X-Y : z"), 400, id="space before the colon"),
        pytest.param(get("/compat/models", "X-Y: a\x00b"), 400, id="NUL"),
        pytest.param(get("/compat/models", "X-Y: a\x1b[31m"), 400, id="escape"),
        pytest.param(get("/compat/models", "X-Y: a", " folded"), 400, id="folded"),
        pytest.param(get("/compat/models", "X-Y: a\nX-Z: b"), 400, id="bare line feed"),
        pytest.param(get("/compat/models", "Host: other"), 400, id="two hosts"),
        pytest.param(get("/compat/models", "Content-Type: a", "Content-Type: b"), 400, id="types"),
        pytest.param(get("/compat/models", "Content-Length: -1"), 400, id="negative length"),
        pytest.param(get("/compat/models", "Content-Length: 1x"), 400, id="odd length"),
        pytest.param(get("/compat/models", "Content-Length: +1"), 400, id="signed length"),
        pytest.param(get("/compat/models", "Content-Length: "), 400, id="empty length"),
        pytest.param(get("/compat/models", "Content-Length: " + "9" * 5000), 400, id="huge length"),
        pytest.param(
            get("/compat/models", "Content-Length: 1", "Content-Length: 2"), 400, id="two lengths"
        ),
        pytest.param(
            get("/compat/models", "Content-Length: 3", "Transfer-Encoding: chunked"),
            400,
            id="length and chunks",
        ),
        pytest.param(
            get("/compat/models", "Transfer-Encoding: chunked", "Content-Length: 3"),
            400,
            id="chunks and length",
        ),
        pytest.param(
            get("/compat/models", "Transfer-Encoding: chunked, chunked"), 400, id="chunks twice"
        ),
        pytest.param(get("/compat/models", "Transfer-Encoding: xchunked"), 400, id="odd coding"),
        pytest.param(get("/compat/models", "Transfer-Encoding: gzip"), 400, id="gzip coding"),
        pytest.param(
            get("/compat/models", "Transfer-Encoding: chunked", version="1.0"),
            400,
            id="chunks in HTTP/1.0",
        ),
        pytest.param(get("/compat/models", "Expect: magic"), 417, id="odd expectation"),
    ],
)
def test_what_is_no_http_is_refused_in_openais_form_and_the_connection_closed(
    gunicorn, raw, status
):
    with gunicorn.wire() as wire:
        # what is sent behind it must never be taken for a request
        wire.send(raw + get("/healthz"))
        reply = wire.reply()
        assert reply.status == status
        assert reply.headers["connection"] == "close"
        assert len(reply.headers["x-request-id"]) == 32
        assert (reply.error["code"], reply.error["type"]) == (
            "bad_request",
            "invalid_request_error",
        )
        assert wire.closed()


@pytest.mark.parametrize(
    "host_line",
    ["", "a b", "evil.example", "localhost:80:80", "[::1", "@localhost", "local\xe9host"],
)
def test_a_bad_host_is_refused(gunicorn, host_line):
    raw = f"GET /compat/models HTTP/1.1\r\nHost: {host_line}\r\n\r\n".encode("latin-1")
    reply = gunicorn.ask(raw)
    assert reply.status in (400, 403)
    assert reply.error["code"] in ("bad_request", "host_not_allowed")


def test_a_request_without_a_host_is_refused(gunicorn):
    reply = gunicorn.ask(b"GET /compat/models HTTP/1.1\r\n\r\n")
    assert (reply.status, reply.error["code"]) == (403, "host_not_allowed")


@pytest.mark.parametrize("asked", ["GET /healthz", "OPTIONS /", "GET /compat/models"])
def test_http_1_0_needs_no_host(gunicorn, asked):
    # HAProxy's checks are such; a web page's request never is
    assert gunicorn.ask(f"{asked} HTTP/1.0\r\n\r\n".encode()).status in (200, 404)


def test_http_1_0_with_another_host_is_refused(gunicorn):
    reply = gunicorn.ask(b"GET /compat/models HTTP/1.0\r\nHost: evil.example\r\n\r\n")
    assert (reply.status, reply.error["code"]) == (403, "host_not_allowed")


def test_names_with_underscores_are_left_out_or_refused(gunicorn):
    reply = gunicorn.ask(get("/compat/models", "X_Request_Id: evil"))
    assert reply.headers["x-request-id"] != "evil"


@pytest.mark.parametrize("path", ["/compat/models", "/x/compat/models"])
@pytest.mark.parametrize("header", ["SCRIPT_NAME: /x", "PATH_INFO: /compat/models"])
def test_no_header_makes_another_path_of_the_one_that_is_asked_for(gunicorn, path, header):
    assert gunicorn.ask(get(path, header)).status == gunicorn.ask(get(path)).status


def test_what_proxies_say_of_themselves_makes_no_request_a_bad_one(gunicorn):
    headers = ("X-Forwarded-Proto: https", "X-Forwarded-Ssl: off", "X-Forwarded-Protocol: http")
    assert gunicorn.ask(get("/compat/models", *headers)).status == 200


def test_a_websocket_is_refused_as_such(gunicorn):
    asked = get("/compat/models", "Connection: Upgrade", "Upgrade: websocket")
    reply = gunicorn.ask(asked)
    assert (reply.status, reply.error["code"]) == (400, "bad_request")
    assert "WebSockets" in reply.error["message"]


def test_http_1_0_gets_a_whole_answer_and_a_closed_connection(gunicorn, post):
    with gunicorn.wire() as wire:
        wire.send(post(GOOD, version="1.0"))
        reply = wire.reply()
        assert text_of(reply) == "p"
        assert reply.headers["connection"] == "close"
        assert wire.closed()


def test_http_1_0_gets_a_stream_without_chunks(gunicorn, post):
    with gunicorn.wire() as wire:
        wire.send(post({"stream": True}, version="1.0"))
        reply = wire.reply()
        assert reply.status == 200
        assert "transfer-encoding" not in reply.headers
        assert reply.body.startswith(b"data: {")
        assert reply.body.endswith(b"\n\ndata: [DONE]\n\n")


def test_requests_in_a_row_are_answered_in_order(gunicorn, post):
    asked = [f"prompt {i}" for i in range(20)]
    with gunicorn.wire() as wire:
        wire.send(b"".join(post({"prompt": prompt}) for prompt in asked))
        assert [text_of(wire.reply()) for _ in asked] == asked


def test_a_stream_leaves_the_connection_usable(gunicorn, post):
    with gunicorn.wire() as wire:
        wire.send(post({"stream": True}) + post({"prompt": "next"}))
        assert wire.reply().body.endswith(b"data: [DONE]\n\n")
        assert text_of(wire.reply()) == "next"


SMUGGLED = get("/compat/smuggled")


@pytest.mark.parametrize("in_chunks", [False, True])
@pytest.mark.parametrize(
    ("path", "content_type", "status"),
    [
        ("/compat/completions", "text/plain", 415),
        ("/compat/completions", "application/json", 400),
        ("/compat/nothing", "application/json", 404),
        ("/compat/models", "application/json", 405),
    ],
)
def test_a_body_that_was_not_read_never_becomes_a_request(
    gunicorn, post, in_chunks, path, content_type, status
):
    if in_chunks:
        body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(SMUGGLED), SMUGGLED)
        raw = post(body, "Transfer-Encoding: chunked", path=path, content_type=content_type)
    else:
        raw = post(SMUGGLED, path=path, content_type=content_type)
    with gunicorn.wire() as wire:
        wire.send(raw + post({"prompt": "real"}))
        assert wire.reply().status == status
        assert text_of(wire.reply()) == "real"


@pytest.mark.parametrize("size", [100_001, 1_000_000])
def test_a_body_that_was_too_large_never_becomes_a_request(gunicorn, post, size):
    body = (SMUGGLED * (size // len(SMUGGLED) + 1))[:size]
    with gunicorn.wire() as wire:
        try:
            wire.send(post(body) + SMUGGLED)
        except ConnectionError:
            return  # refused and closed while it was being sent
        assert wire.reply().status == 413
        try:
            assert wire.closed()
        except ConnectionResetError:
            return  # closed without having read the rest


def test_bytes_after_chunks_that_are_none_never_become_a_request(gunicorn, post):
    with gunicorn.wire() as wire:
        wire.send(post(b"zz\r\n" + SMUGGLED, "Transfer-Encoding: chunked"))
        assert wire.reply().status == 400
        assert wire.closed()


def test_connection_close_is_obeyed(gunicorn, post):
    with gunicorn.wire() as wire:
        wire.send(post(GOOD, "Connection: close"))
        assert text_of(wire.reply()) == "p"
        assert wire.closed()


@pytest.mark.parametrize("path", ["/compat/models", "/compat/nothing", "/healthz", "/nothing"])
@pytest.mark.parametrize(
    ("sent", "echoed"),
    [("req-1/a.b:c=d+e_f", True), ("a" * 128, True), ("a" * 129, False), ("a b", False),
     ("<script>", False), ("", False), ("\xe9", False)],
)  # fmt: skip
def test_a_sane_request_id_comes_back(gunicorn, path, sent, echoed):
    found = gunicorn.ask(get(path, f"x-request-id: {sent}")).headers["x-request-id"]
    assert (found == sent) is echoed
    assert echoed or len(found) == 32
