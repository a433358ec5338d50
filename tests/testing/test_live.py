"""The live server speaks real HTTP, and leaves nothing behind."""

from __future__ import annotations

import http.client
import logging
import selectors
import socket
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from flask import Flask, Response, request

from caesar_server.contract.sse import DONE, frame
from caesar_server.testing import LiveServer, SseClient, decode_events, decode_frames


class Stream:
    """A stream that the test steers, and that notices its end."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.closed = threading.Event()

    def __iter__(self) -> Iterator[bytes]:
        yield frame({"n": 1})
        self.go_on.wait(60)
        yield from (frame({"n": n}) for n in range(2, 2000))
        yield DONE

    def frames(self) -> Iterator[bytes]:
        try:
            yield from self
        finally:
            self.closed.set()


@pytest.fixture
def stream() -> Stream:
    return Stream()


@pytest.fixture
def app(stream: Stream) -> Flask:
    app = Flask("live", static_folder=None)

    @app.post("/echo")
    def echo() -> Response:
        return app.response_class(request.get_data(), headers={"X-Seen": request.headers["X-Sent"]})

    @app.get("/stream")
    def stream_view() -> Response:
        return Response(stream.frames(), mimetype="text/event-stream")

    @app.get("/broken")
    def broken() -> Response:
        def chunks() -> Iterator[bytes]:
            yield frame({"n": 1})
            raise RuntimeError("in the middle")

        return Response(chunks(), mimetype="text/event-stream")

    @app.get("/short")
    def short() -> Response:
        return Response([b"abc"], headers={"Content-Length": "10"})

    return app


@pytest.fixture
def server(app: Flask) -> Iterator[LiveServer]:
    with LiveServer(app) as server:
        yield server


def test_requests_arrive_with_body_and_headers(server: LiveServer) -> None:
    client = server.client(headers={"X-Sent": "yes"})
    with client.post("/echo", {"a": "ü"}) as response:
        assert (response.status, response.headers["x-seen"]) == (200, "yes")
        assert response.json() == {"a": "ü"}
        assert response.raw == rb'{"a": "\u00fc"}'
    with client.post("/echo", b"\x00raw", headers={"X-Sent": "no"}) as response:
        assert response.read() == b"\x00raw"
        assert response.headers["x-seen"] == "no"


def test_a_base_url_may_have_a_path(server: LiveServer) -> None:
    with SseClient(f"{server.base_url}/nowhere").get("/x") as response:
        assert response.status == 404
        response.read()


def test_a_stream_arrives_while_it_is_made(server: LiveServer, stream: Stream) -> None:
    with server.client().get("/stream") as response:
        events = response.events()
        assert next(events).data == '{"n":1}'
        assert response.raw == frame({"n": 1})
        stream.go_on.set()
        rest = [event.data for event in events]
    assert (len(rest), rest[-1]) == (1999, "[DONE]")
    assert response.raw == b"".join(frame({"n": n}) for n in range(1, 2000)) + DONE
    assert decode_frames(response.raw) == [{"n": n} for n in range(1, 2000)]


def test_a_client_that_leaves_ends_the_stream(server: LiveServer, stream: Stream) -> None:
    with server.client().get("/stream") as response:
        next(response.chunks())
    stream.go_on.set()
    assert stream.closed.wait(60)


def test_requests_run_side_by_side(server: LiveServer, stream: Stream) -> None:
    with server.client().get("/stream") as response:
        next(response.chunks())
        with server.client().get("/nowhere") as other:
            assert other.status == 404
            other.read()
        stream.go_on.set()
        response.read()


def test_a_stream_that_breaks_is_no_whole_body(
    server: LiveServer, caplog: pytest.LogCaptureFixture
) -> None:
    with server.client().get("/broken") as response, pytest.raises(http.client.IncompleteRead):
        response.read()
    assert response.raw == frame({"n": 1})


def test_fewer_bytes_than_announced_are_no_whole_body(server: LiveServer) -> None:
    with server.client().get("/short") as response, pytest.raises(http.client.IncompleteRead):
        response.read()
    assert response.raw == b"abc"


def test_leaving_the_block_ends_streams_threads_and_port(app: Flask, stream: Stream) -> None:
    before = set(threading.enumerate())
    with LiveServer(app) as server:
        port = server.port
        response = server.client().get("/stream")
        next(response.chunks())
        threading.Timer(0.01, stream.go_on.set).start()
    response.close()
    assert stream.closed.is_set()
    assert {t for t in set(threading.enumerate()) - before if t.name.startswith("live")} == set()
    with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
        pass
    with pytest.raises(RuntimeError, match="not running"):
        server.base_url  # noqa: B018
    server.stop()


def test_a_request_that_does_not_end_is_told(app: Flask, stream: Stream) -> None:
    server = LiveServer(app, end_timeout_s=0.05)
    server.start()
    response = server.client().get("/stream")
    next(response.chunks())
    with pytest.raises(RuntimeError, match="1 requests did not end"):
        server.stop()
    stream.go_on.set()
    response.close()
    assert stream.closed.wait(60)


def test_the_services_of_an_app_are_closed_with_it() -> None:
    from caesar_server.app import create_app
    from caesar_server.registry import Registry
    from caesar_server.settings import Settings
    from caesar_server.testing import scripted_backend

    cls = scripted_backend(())
    settings = Settings(default_backend="scripted")
    with LiveServer(create_app(settings, Registry.of({"scripted": cls}, settings))) as server:
        body = {"model": "scripted", "prompt": "x"}
        with server.client().post("/compat/completions", body) as response:
            response.read()
    assert (cls.script.opens, cls.script.closes) == (1, 1)


def test_requests_are_not_logged(server: LiveServer, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), server.client().get("/nowhere") as response:
        response.read()
    assert caplog.text == ""


@pytest.mark.parametrize("raw", [b"data: a\n\ndata: b", b"data: a\n"])
def test_a_recorded_stream_must_be_whole(raw: bytes) -> None:
    with pytest.raises(ValueError, match="ends inside an event"):
        decode_events(raw)


@pytest.mark.parametrize("raw", [b"", b"data: {}\n\n", DONE + b"data: {}\n\n", DONE + DONE])
def test_frames_end_with_done_once(raw: bytes) -> None:
    with pytest.raises(ValueError, match="expected exactly one"):
        decode_frames(raw)


def test_an_address_of_ones_own() -> None:
    app = Flask("any")
    app.get("/")(lambda: "Hi")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with LiveServer(app, host="localhost", port=port) as server:
        assert server.base_url == f"http://localhost:{port}"
        with SseClient(f"http://127.0.0.1:{port}").get("/") as answer:
            assert answer.read() == b"Hi"


def test_a_taken_port_is_an_error_and_not_the_end_of_the_program() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        LiveServer(Flask("any"), port=taken.getsockname()[1]).start()


def test_who_asks_before_it_sends_a_body_is_answered_at_once(server: LiveServer) -> None:
    head = b"POST /echo HTTP/1.1\r\nHost: x\r\nX-Sent: yes\r\nContent-Length: 2\r\n"
    with socket.create_connection(("127.0.0.1", server.port), 60) as client:
        client.sendall(head + b"Expect: 100-continue\r\n\r\n")
        with client.makefile("rb") as answer:
            assert [answer.readline(), answer.readline()] == [b"HTTP/1.1 100 Continue\r\n", b"\r\n"]
            client.sendall(b"Hi")
            assert answer.readline() == b"HTTP/1.1 200 OK\r\n"  # told only once
            assert answer.read().endswith(b"\r\n\r\nHi")


def test_a_client_that_knows_no_chunks_gets_none(server: LiveServer, stream: Stream) -> None:
    stream.go_on.set()
    with socket.create_connection(("127.0.0.1", server.port), 60) as client:
        client.sendall(b"GET /stream HTTP/1.0\r\n\r\n")
        with client.makefile("rb") as answer:
            head, _, body = answer.read().partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.0 200 OK\r\n")
    assert b"chunked" not in head
    assert (body[:12], body[-len(DONE) :]) == (frame({"n": 1})[:12], DONE)


def test_the_end_of_a_stream_waits_for_nothing(
    server: LiveServer, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """werkzeug waits for what the client may still send before it closes the connection."""
    read = threading.Event()
    waited: list[bool] = []

    class Selector(selectors.SelectSelector):
        def select(self, timeout: float | None = None) -> Any:
            waited.append(read.wait(60))
            return super().select(timeout)

    own = SimpleNamespace(DefaultSelector=Selector, EVENT_READ=selectors.EVENT_READ)
    monkeypatch.setattr("werkzeug.serving.selectors", own)
    stream.go_on.set()
    with socket.create_connection(("127.0.0.1", server.port), 60) as client:
        client.sendall(b"GET /stream HTTP/1.1\r\nHost: x\r\n\r\n")
        with client.makefile("rb") as answer:
            while answer.readline() != b"0\r\n":
                assert not waited
            assert answer.readline() == b"\r\n"
            read.set()
            assert answer.read() == b""
    assert waited[0]
