"""What the gate lets pass, whom it asks, and what it writes down."""

from __future__ import annotations

import json
import re

import pytest

from caesar_server.app import create_app
from caesar_server.blueprints.mock.gate.door import is_call
from caesar_server.blueprints.mock.gate.paths import scope_prefix, take_prefix
from caesar_server.mock.faults import KINDS
from caesar_server.mock.matching import conditions
from caesar_server.mock.model.fault import Fault
from caesar_server.mock.model.reply import Reply
from caesar_server.mock.model.rule import Rule
from caesar_server.mock.scopes import Scopes
from caesar_server.settings import Settings
from caesar_server.testing import LiveServer

PLAIN = {"model": "m", "prompt": "hello"}
STREAM = {**PLAIN, "stream": True}
OPERATOR_PATHS = ("/healthz", "/readyz", "/metrics", "/openapi.json", "/docs")


@pytest.mark.parametrize("path", OPERATOR_PATHS)
def test_the_operators_routes_are_exempt(mock, path):
    mock.fault("status", status=500)
    received = mock.ask(path=path, X_Caesar_Mock_Fault="reset")
    assert received.head.split()[1] not in ("500", "422")
    assert received.end == "closed"
    assert mock.scope.journal.totals().requests == 0


@pytest.mark.parametrize(
    ("method", "path", "wanted"),
    [
        ("POST", "/compat/completions", True),
        ("GET", "/v1/models", True),
        ("GET", "/nowhere", True),
        ("GET", "/healthzzz", True),
        ("GET", "/_mockery", True),
        ("OPTIONS", "/compat/completions", False),
        ("GET", "/_mock/journal", False),
        ("GET", "/_mock", False),
        ("GET", "/docs/page.css", False),
    ],
)
def test_what_is_a_call(method, path, wanted):
    assert is_call(method, path) is wanted


def test_a_header_wins_over_a_rule_and_a_rule_over_the_default(mock):
    mock.scope.faults = (Fault(kind="status", status=501),)
    rule = mock.scope.add(Rule(id="", faults=(Fault(kind="status", status=502),), times=1))
    asked = {"X_Caesar_Mock_Fault": "status", "X_Caesar_Mock_Status": "503"}
    assert mock.ask(PLAIN, **asked).head.startswith("HTTP/1.1 503")
    assert mock.scope.uses(rule.id) == 0
    assert mock.ask(PLAIN).head.startswith("HTTP/1.1 502")
    assert mock.ask(PLAIN).head.startswith("HTTP/1.1 501")
    assert mock.ask(PLAIN, X_Caesar_Mock_Fault="none").head.startswith("HTTP/1.1 200")


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_can_be_asked_for_by_header(mock, kind):
    fields = {"status": "418", "delay_s": "0.001"}
    names = {"status": "X_Caesar_Mock_Status", "delay_s": "X_Caesar_Mock_Delay"}
    headers = {names[name]: fields[name] for name in KINDS[kind].required}
    if kind in ("hang", "stall"):
        headers["X_Caesar_Mock_Delay"] = "0.001"
    mock.ask(STREAM, X_Caesar_Mock_Fault=kind, **headers)
    assert [fault.kind for fault in mock.entry().faults] == [kind]


@pytest.mark.parametrize(
    ("headers", "param"),
    [
        ({"X_Caesar_Mock_Fault": "rest"}, "X-Caesar-Mock-Fault"),
        ({"X_Caesar_Mock_Fault": "status"}, "X-Caesar-Mock-Status"),
        ({"X_Caesar_Mock_Strict": "maybe"}, "X-Caesar-Mock-Strict"),
    ],
)
def test_a_header_that_makes_no_sense_is_refused(mock, headers, param):
    received = mock.ask(PLAIN, **headers)
    assert received.head.startswith("HTTP/1.1 400 ")
    error = json.loads(received.body)["error"]
    assert error["param"] == param
    assert param in error["message"]
    assert mock.entry().status == 400


def test_strictness_by_header(mock, scopes):
    scopes.get().remove("text")
    assert mock.ask(PLAIN).head.startswith("HTTP/1.1 200")
    assert mock.ask(PLAIN, X_Caesar_Mock_Strict="true").head.startswith("HTTP/1.1 404")
    mock.scope.strict = True
    assert mock.ask(PLAIN, X_Caesar_Mock_Strict="false").head.startswith("HTTP/1.1 200")


def test_scopes_by_path_header_and_key(mock, scopes):
    for name in ("a", "b c", "ü"):
        scopes.get(name).add(Rule(id="r", replies=(Reply(text=f"scope {name}"),)))

    def answer(**asked):
        return json.loads(mock.ask(PLAIN, **asked).body)["choices"][0]["text"]

    assert answer(path="/t/a/compat/completions") == "scope a"
    assert answer(path="/t/b%20c/v1/completions") == "scope b c"
    assert answer(path=f"{scope_prefix('ü')}/compat/completions") == "scope ü"
    assert answer(X_Caesar_Mock_Scope="b c") == "scope b c"
    assert answer(Authorization="Bearer a") == "scope a"
    assert answer(Authorization="Bearer nobody") == "one two three four"
    assert answer(Authorization="Basic a") == "one two three four"
    assert answer(X_Caesar_Mock_Scope="b c", Authorization="Bearer a") == "scope b c"
    assert answer(path="/t/a/compat/completions", X_Caesar_Mock_Scope="b c") == "scope a"
    call = scopes.get("a").journal.entries()[0].call
    assert (call.scope, call.path) == ("a", "/compat/completions")
    assert call.raw_path == "/t/a/compat/completions"


def test_faults_of_one_scope_are_nobody_elses(mock, scopes):
    scopes.get("a").add(Rule(id="", faults=(Fault(kind="reset"),)))
    assert mock.ask(PLAIN, "/t/a/compat/completions").end == "reset"
    assert mock.ask(PLAIN).head.startswith("HTTP/1.1 200")


@pytest.mark.parametrize("path", ["/t/", "/t", "/t//compat/models"])
def test_a_path_without_a_name_is_left_alone(mock, path):
    assert mock.ask(path=path).head.startswith("HTTP/1.1 404")
    assert mock.entry().call.raw_path == path


def test_the_prefix_alone_leads_to_the_root():
    environ = {"PATH_INFO": "/t/a", "SCRIPT_NAME": "/base"}
    take_prefix(environ)
    assert (environ["SCRIPT_NAME"], environ["PATH_INFO"]) == ("/base/t/a", "/")


def test_a_scope_too_many_is_told(scopes):
    full = Scopes(limit=2)
    with LiveServer(create_app(Settings(), mock=full)) as server:
        with server.client().get("/t/a/compat/models") as response:
            assert response.status == 200
        with server.client().get("/t/b/compat/models") as response:
            assert response.status == 503
            assert "/_mock/scopes/" in response.json()["error"]["message"]
        with server.client().get(f"/t/{'x' * 201}/compat/models") as response:
            assert response.status == 400


def test_an_unreadable_body_is_journalled_and_refused(mock, scopes):
    wrong = mock.ask(PLAIN, Content_Encoding="gzip")
    assert wrong.head.startswith("HTTP/1.1 415")
    assert mock.entry().status == 415
    scopes = Scopes()
    with LiveServer(create_app(Settings(max_body_bytes=1024), mock=scopes)) as server:
        body = {**PLAIN, "prompt": "x" * 1025}
        with server.client().post("/compat/completions", body) as response:
            assert response.status == 413
    (entry,) = scopes.get().journal.entries()
    assert (entry.status, entry.decided, entry.call.raw_body) == (413, False, b"")


def test_a_predicate_that_raises_is_an_error_and_no_call_stays_open(mock, scopes):
    def broken(_):
        raise RuntimeError("my predicate")

    rule = Rule(id="", conditions=conditions(broken), replies=(Reply(text="x"),), priority=1)
    mock.scope.add(rule)
    received = mock.ask(PLAIN)
    assert received.head.startswith("HTTP/1.1 500")
    assert b"my predicate" not in received.raw
    entry = mock.entry()
    assert entry.ended == "completed"
    assert scopes.find_call(entry.id) is None


def test_same_calls_have_the_same_bytes(mock):
    def answers():
        received = [mock.ask(body) for body in (PLAIN, PLAIN, STREAM)]
        # how much leaves in one write is a matter of time
        return [(re.sub("Date: .*", "", one.head), one.body) for one in received]

    first = answers()
    assert len(set(first)) == 3
    mock.scope.reset("counters")
    assert answers() == first
    assert b"x-request-id: mine" in mock.ask(PLAIN, X_Request_ID="mine").raw


@pytest.mark.parametrize(
    ("fault", "received"),
    [
        (Fault(kind="hang"), b""),
        (Fault(kind="delay", delay_s=3600), b""),
        (Fault(kind="stall", after_chunks=1), b"one"),
        (Fault(kind="slow_drip", after_chunks=1, delay_s=3600), b"one"),
    ],
    ids=lambda value: getattr(value, "kind", ""),
)
def test_the_end_of_the_server_ends_what_waits(scopes, send, read, fault, received):
    scopes.get().add(Rule(id="", faults=(fault,)))
    server = LiveServer(create_app(Settings(), mock=scopes))
    server.start()
    sock = send(server.port, STREAM)
    scopes.get().clock.wait_for_waiters()
    server.stop()
    got = read(sock)
    assert received in got.raw
    # cut off, not ended as if that were all
    assert not got.raw.endswith(b"0\r\n\r\n")
    (entry,) = scopes.get().journal.entries()
    assert (entry.ended, entry.detail) == ("failed", "the server ended")


def test_a_host_that_lends_no_connection_is_told_which_do(scopes):
    app = create_app(Settings(), mock=scopes)
    client = app.test_client()
    for kind in KINDS.values():
        headers = {"X-Caesar-Mock-Fault": kind.name}
        if "status" in kind.required:
            headers["X-Caesar-Mock-Status"] = "418"
        if "delay_s" in kind.required:
            headers["X-Caesar-Mock-Delay"] = "0"
        response = client.post("/compat/completions", json=STREAM, headers=headers)
        response.get_data()
        assert (response.status_code == 422) == kind.needs_socket, kind.name
        if kind.needs_socket:
            message = response.get_json()["error"]["message"]
            assert kind.name in message
            assert "gunicorn" in message
        response.close()
    app.extensions["caesar_server"].close()
    assert len(scopes.get().journal.entries()) == len(KINDS)
