"""TLS: whom it trusts, and what it says of those that it does not."""

from __future__ import annotations

import socket
import ssl
import threading

import pytest
import trustme

from caesar_server.testing import collect_events, make_context


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def tls_server(raw, wire, authority):
    """Start a TLS server whose certificate is for this name."""

    def start(name: str, *replies):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert(name).configure_cert(context)
        return raw(*(replies or (wire.hello(),)), tls=context)

    return start


@pytest.fixture
def ca_file(authority, tmp_path) -> str:
    path = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    return str(path)


def test_an_authority_of_ones_own_is_trusted_where_it_is_named(
    tls_server, opened, told, ca_file
) -> None:
    server = tls_server("127.0.0.1")
    ask = opened(server, per_server={"ca_file": ca_file})
    assert told(ask.complete()).text() == "Hello you"


@pytest.mark.parametrize("name", ["127.0.0.1", "other.example"])
def test_others_are_not(tls_server, opened, told, ca_file, name: str) -> None:
    server = tls_server(name)
    options = {"ca_file": ca_file} if name == "other.example" else {}
    error = told(opened(server, per_server={**options, "api_key": "sk-123456"}).complete()).error
    assert (error.status, error.code) == (502, "bad_upstream")
    assert "TLS" in error.message
    assert server.asked == []


def test_plain_http_in_place_of_tls_is_told(raw, opened, wire, told) -> None:
    url = raw(wire.hello()).url.replace("http://", "https://")
    assert told(opened(url).complete()).error.status == 502


def test_a_handshake_that_never_ends_is_a_time_out(opened, told) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:  # accepts, and says nothing
        url = f"https://127.0.0.1:{listener.getsockname()[1]}/v1"
        error = told(opened(url, connect_timeout_s=0.2).complete()).error
    assert (error.status, error.code) == (504, "backend_timeout")


def test_a_blocked_read_over_tls_ends_at_once(
    tls_server, opened, told, ca_file, requests_of, wire
) -> None:
    reached = threading.Event()

    def reply(peer) -> None:
        peer.send(wire.head() + wire.frame(wire.text("hi")))
        reached.set()
        peer.hang()

    server = tls_server("127.0.0.1", reply)
    ask = opened(server, per_server={"ca_file": ca_file})
    context, events = make_context(), []
    run = threading.Thread(
        target=lambda: events.extend(
            collect_events(ask.backend, requests_of.completion("x"), context)
        )
    )
    run.start()
    assert reached.wait(60)
    context.cancel()
    run.join(60)
    assert not run.is_alive()
    assert told(events).error.code == "cancelled"
    server.wait_for(lambda server: server.open == 0)
