"""What is done to a connection, as the other end sees it."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from caesar_server.mock.faults.sockets import HALF_HEAD, break_off, reset, send_early_hints

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """A server's end of a connection, and its client's."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname(), timeout=60)
        server, _ = listener.accept()
        with client, server:
            yield server, client


def test_a_reset_comes_after_what_was_sent(pair: Pair) -> None:
    server, client = pair
    server.sendall(b"x" * 100_000)
    reset(server)
    received = b""
    with pytest.raises(ConnectionResetError):
        while data := client.recv(65536):
            received += data
    assert len(received) == 100_000


def test_the_host_may_go_on_with_the_socket(pair: Pair) -> None:
    server, client = pair
    number = server.fileno()
    reset(server)
    assert server.fileno() == number
    assert server.recv(10) == b""
    with pytest.raises(BrokenPipeError):
        server.sendall(b"late")
    server.close()
    with pytest.raises(ConnectionResetError):
        client.recv(10)


def test_a_client_that_does_not_read_is_not_waited_for_long(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    # what the tests of a program that waits put there is for that program
    monkeypatch.delattr(time, "sleep")
    server, client = pair
    server.setblocking(False)
    try:
        while server.send(b"x" * 65536):
            pass
    except BlockingIOError:
        pass
    reset(server)
    with pytest.raises(ConnectionResetError):
        while client.recv(1 << 20):
            pass


@pytest.mark.parametrize("last", [b"", HALF_HEAD])
def test_breaking_off_is_a_clean_end(pair: Pair, last: bytes) -> None:
    server, client = pair
    break_off(server, last)
    received = b"".join(iter(lambda: client.recv(100), b""))
    assert received == last
    with pytest.raises(BrokenPipeError):
        server.sendall(b"late")


@pytest.mark.parametrize("act", [reset, break_off, lambda sock: break_off(sock, b"HTTP")])
def test_a_client_that_left_before(pair: Pair, act) -> None:
    server, client = pair
    server.sendall(b"unread")
    client.close()  # with something unread: a reset
    act(server)
    act(server)
    assert server.recv(10) == b""


def test_early_hints(pair: Pair) -> None:
    server, client = pair
    send_early_hints(server, {"Link": "</a>; rel=preload", "X-A": "ä"})
    wanted = b"HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\nX-A: \xe4\r\n\r\n"
    assert client.recv(1000) == wanted
    client.close()
    send_early_hints(server, {})
