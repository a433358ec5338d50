"""Whoever leaves closes the upstream connection at once, wherever the exchange is."""

from __future__ import annotations

import threading
import time

import pytest

from caesar_backend_upstream import UpstreamBackend
from caesar_server.app import create_app
from caesar_server.registry import Registry
from caesar_server.settings import Settings
from caesar_server.testing import LiveServer, collect_events, make_context

#: Far less than anything lasts here that is not broken off; a busy machine needs some of it.
AT_ONCE_S = 20.0


def cancelled_after(ask, request, ready) -> tuple[float, list]:
    """Run a request, cancel it once ``ready()`` returns; seconds that took, and the events."""
    context, events = make_context(), []
    run = threading.Thread(
        target=lambda: events.extend(collect_events(ask.backend, request, context))
    )
    run.start()
    ready()
    began = time.monotonic()
    context.cancel()
    run.join(60)
    assert not run.is_alive()
    return time.monotonic() - began, events


@pytest.mark.parametrize("silence", ["before", "headers", "body", "json", "close", "one"])
def test_a_blocked_read_ends_at_once(raw, opened, wire, told, requests_of, silence) -> None:
    reached = threading.Event()
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    first = wire.frame(wire.text("hi"))
    sent = {
        "before": b"",
        "headers": b"HTTP/1.1 200 OK\r\nX: ",
        "body": chunked + b"%x\r\n" % len(first) + first + b"\r\n",
        "json": b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{",
        "close": wire.head() + first,
        "one": (wire.head() + first).replace(b"HTTP/1.1", b"HTTP/1.0"),
    }

    def reply(peer) -> None:
        peer.send(sent[silence])
        reached.set()
        peer.hang()

    server = raw(reply)
    took_s, events = cancelled_after(
        opened(server), requests_of.completion("hi"), lambda: reached.wait(60)
    )
    assert told(events).error.code == "cancelled"
    assert took_s < AT_ONCE_S
    server.wait_for(lambda server: server.open == 0)


def test_connecting_ends_at_once(opened, told, requests_of, black_hole) -> None:
    ask = opened(black_hole, connect_timeout_s=100)
    request = requests_of.completion("hi")
    lines = ask.backend._open.watchman._lines

    def connecting() -> None:
        until = time.monotonic() + 60
        while not any(line._handle is not None for line in tuple(lines)):
            assert time.monotonic() < until

    took_s, events = cancelled_after(ask, request, connecting)
    assert told(events).error.code == "cancelled"
    assert took_s < AT_ONCE_S


def test_a_pause_before_a_retry_ends_at_once(raw, opened, wire, told, requests_of) -> None:
    server = raw(wire.head(status="503 No", Retry_After="50"))
    ask = opened(server, retries=3, max_retry_after_s=60)
    request = requests_of.completion("hi")
    ready = lambda: server.wait_for(lambda server: server.open == 0 and server.asked)  # noqa: E731
    took_s, events = cancelled_after(ask, request, ready)
    assert told(events).error.code == "cancelled"
    assert took_s < AT_ONCE_S


def test_a_deadline_ends_it_too(raw, opened, told, requests_of) -> None:
    server = raw(lambda peer: peer.hang())
    app = create_app(
        Settings(request_timeout_s=0.3, backends={"upstream": options(server)}),
        registry=Registry.of(
            {"upstream": UpstreamBackend},
            Settings(request_timeout_s=0.3, backends={"upstream": options(server)}),
        ),
    )
    with LiveServer(app) as live:
        response = live.client().post("/compat/completions", {"model": "upstream/m", "prompt": "x"})
        assert response.status == 504
        response.close()
        server.wait_for(lambda server: server.open == 0)


def options(server) -> dict:
    return {"models_ttl_s": 0, "servers": {"one": {"url": server.url}}}


@pytest.mark.parametrize("closing", ["iterator", "backend"])
def test_an_answer_that_is_left_half_way_is_closed(raw, opened, wire, requests_of, closing) -> None:
    def reply(peer) -> None:
        peer.send(wire.head() + wire.frame(wire.text("hi")))
        peer.hang()

    server = raw(reply)
    ask = opened(server)
    events = ask.backend.run(requests_of.completion("hi"), make_context())
    assert next(events).type == "started"
    assert server.open == 1
    if closing == "iterator":
        events.close()
    else:
        ask.backend.close()
    server.wait_for(lambda server: server.open == 0)


def test_clients_that_leave_close_upstream_connections(raw, wire) -> None:
    """Counted: twenty clients open a stream through the server and leave, one after the other."""
    clients = 20

    def endless(peer) -> None:
        peer.send(wire.head())
        while not peer.stop.wait(0.01):
            peer.send(wire.frame(wire.text("word ")))

    server = raw(endless)
    settings = Settings(backends={"upstream": options(server)})
    app = create_app(settings, registry=Registry.of({"upstream": UpstreamBackend}, settings))
    with LiveServer(app) as live:
        body = {"model": "upstream/m", "prompt": "x", "stream": True}
        responses = [live.client().post("/compat/completions", body) for _ in range(clients)]
        for response in responses:
            next(iter(response.events()))
        server.wait_for(lambda server: server.open == clients)
        for left, response in enumerate(responses, start=1):
            response.close()
            server.wait_for(lambda server, left=left: server.open == clients - left)
    assert server.made == clients


def test_a_connection_is_used_again_and_a_left_one_is_not(raw, opened, wire, told) -> None:
    plain = wire.hello().partition(b"\r\n\r\n")[2]
    head = wire.head(Transfer_Encoding="chunked").replace(b"Connection: close\r\n", b"")

    def kept(peer) -> bool:
        # in one piece: the end of a body is not waited for long
        peer.send(head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(plain), plain))
        return True

    server = raw(kept)
    ask = opened(server)
    for _ in range(5):
        assert told(ask.complete()).text() == "Hello you"
    assert (server.made, server.open) == (1, 1)
    ask.backend.close()
    server.wait_for(lambda server: server.open == 0)


def test_a_kept_connection_that_the_server_has_closed_is_replaced(raw, opened, wire, told) -> None:
    def answer_and_close(peer) -> None:
        reply = wire.json(wire.text("hi", reason="stop")).replace(b"Connection: close\r\n", b"")
        peer.send(reply)

    server = raw(answer_and_close)
    ask = opened(server, retries=2)
    for _ in range(5):
        assert told(ask.complete()).text() == "hi"
