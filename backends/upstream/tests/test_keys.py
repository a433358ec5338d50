"""Where keys come from, and that they are seen by nobody but their server."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from caesar_backend_upstream import UpstreamBackend, UpstreamOptions
from caesar_server.app import create_app
from caesar_server.contract import BackendError
from caesar_server.contract.context import Forwarded
from caesar_server.contract.options import parse_options
from caesar_server.registry import Registry
from caesar_server.settings import Settings
from caesar_server.testing import LiveServer, collect_events, make_context

SECRET = "sk-do-not-show-this-0123456789"


@pytest.fixture
def key_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Options that give the key in each way."""
    file = tmp_path / "key"
    file.write_text(SECRET + "\n")
    monkeypatch.setenv("UPSTREAM_TEST_KEY", SECRET)
    return {
        "settings": {"api_key": SECRET},
        "environment": {"api_key_env": "UPSTREAM_TEST_KEY"},
        "file": {"api_key_file": str(file)},
    }


@pytest.mark.parametrize("source", ["settings", "environment", "file"])
def test_a_key_is_sent_as_bearer_token(raw, opened, wire, key_options, source: str) -> None:
    server = raw(wire.hello())
    opened(server, per_server=key_options[source]).complete()
    assert server.asked[0].headers["authorization"] == f"Bearer {SECRET}"


def test_its_file_may_be_in_the_users_home(raw, opened, wire, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "key").write_text(SECRET)
    server = raw(wire.hello())
    opened(server, per_server={"api_key_file": "~/key"}).complete()
    assert server.asked[0].headers["authorization"] == f"Bearer {SECRET}"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"api_key_env": "NO_SUCH_VARIABLE"}, "NO_SUCH_VARIABLE is not set"),
        ({"api_key_file": "/no/such/file"}, "/no/such/file cannot be read"),
        ({"api_key": "two\nlines"}, "visible ASCII"),
        ({"api_key": "x", "api_key_env": "HOME"}, "given twice"),
        ({"url": "ftp://x"}, "url: expected http"),
        ({"url": "http://"}, "url: expected http"),
        ({"url": f"http://me:{SECRET}@host"}, "credentials do not belong"),
        ({"url": "http://host/v1#x"}, "no fragment"),
        ({"proxy": "http://host?x=1"}, "proxy: expected http"),
        ({"url": "http://host/v1 "}, "no spaces"),
        ({"url": "http://host/v1/chat/completions"}, "leave chat/completions off its end"),
        ({"url": "http://host/v1/completions/"}, "leave completions off its end"),
        ({"endpoint": "native"}, 'kind = "caesar"'),
        ({"endpoint": "completions", "kind": "caesar"}, "leave it at same"),
        ({"proxy": f"socks5://:{SECRET}@x"}, "proxy: expected http"),
        ({"ca_file": "/no/such/file"}, "ca_file"),
    ],
)
def test_wrong_options_are_named_without_their_value(opened, options, problem: str) -> None:
    with pytest.raises(BackendError) as caught:
        opened("http://127.0.0.1:1/v1", per_server=options)
    assert problem in caught.value.message
    assert "servers.s1." in caught.value.message
    assert not caught.value.transient
    assert SECRET not in repr(caught.value)


def test_a_servers_name_is_a_word(opened) -> None:
    with pytest.raises(BackendError, match="a name is letters"):
        opened(servers={"a b": {"url": "http://x"}})


def test_secrets_are_in_no_repr(key_options) -> None:
    values = {
        "servers": {
            "one": {
                "url": "http://x",
                "api_key": SECRET,
                "headers": {"x-api-key": SECRET},
                "proxy": f"http://me:{SECRET}@proxy:1",
            }
        }
    }
    options = parse_options(UpstreamOptions, values)
    backend = UpstreamBackend(options)
    backend.open()
    try:
        for thing in (options, options.servers["one"], backend, backend._open):
            assert SECRET not in repr(thing)
    finally:
        backend.close()


def leaks(text: str) -> bool:
    return SECRET in text


@pytest.mark.parametrize("status", ["400 No", "401 No", "429 No", "500 No", "200 OK"])
@pytest.mark.parametrize("where", ["message", "code", "type", "param"])
def test_what_quotes_a_secret_is_blacked_out(
    raw, opened, wire, told, caplog, status: str, where: str
) -> None:
    caplog.set_level(logging.DEBUG)
    error = {"message": "no", where: f"the key {SECRET} is no good"}
    server = raw(wire.json({"error": error}, status=status))
    answer = told(opened(server, per_server={"api_key": SECRET}).complete())
    assert answer.error is not None
    assert not leaks(repr(answer.events))
    assert not leaks(caplog.text)
    assert not leaks(" ".join(repr(vars(record)) for record in caplog.records))


def test_secret_headers_and_proxies_are_blacked_out_too(raw, opened, wire, told) -> None:
    message = f"{SECRET} and proxy-password-1 are no good"
    proxy = raw(wire.json({"error": {"message": message}}, status="400 No"))
    per_server = {
        "headers": {"Authorization": f"Basic {SECRET}"},
        "proxy": f"http://me:proxy-password-1@127.0.0.1:{proxy.port}",
    }
    answer = told(opened("http://elsewhere.invalid/v1", per_server=per_server).complete())
    assert answer.error.message == "[secret] and [secret] are no good"
    assert proxy.asked[0].path == "http://elsewhere.invalid/v1/completions"
    assert proxy.asked[0].headers["proxy-authorization"].startswith("Basic ")


def test_a_proxy_that_is_not_there_is_told_apart(raw, opened, wire, told) -> None:
    proxy = raw(wire.hello())
    url = f"http://me:{SECRET}@127.0.0.1:{proxy.port}"
    proxy.close()
    answer = told(opened("http://x.invalid/v1", per_server={"proxy": url}).complete())
    assert answer.error.status in (502, 503)
    assert not leaks(repr(answer.events))


def test_proxies_of_the_environment_are_not_used(raw, opened, wire, told, monkeypatch) -> None:
    proxy, server = raw(wire.hello()), raw(wire.hello())
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.port}")
    monkeypatch.setenv("ALL_PROXY", f"http://127.0.0.1:{proxy.port}")
    assert told(opened(server).complete()).text() == "Hello you"
    assert proxy.made == 0


def run_with(ask, forwarded: Forwarded, request):
    context = make_context()
    context.forwarded = forwarded
    return collect_events(ask.backend, request, context)


class TestCallersOwn:
    def test_key_is_passed_on_where_that_is_wanted(self, raw, opened, wire, requests_of) -> None:
        server = raw(wire.hello())
        ask = opened(server, per_server={"api_key": "sk-operators", "forward_key": True})
        run_with(ask, Forwarded({}, "callers-key"), requests_of.completion("x"))
        run_with(ask, Forwarded(), requests_of.completion("x"))
        keys = [asked.headers.get("authorization") for asked in server.asked]
        assert keys == ["Bearer callers-key", "Bearer sk-operators"]

    def test_key_is_not_passed_on_otherwise(self, raw, opened, wire, requests_of) -> None:
        server = raw(wire.hello())
        run_with(opened(server), Forwarded({}, "callers-key"), requests_of.completion("x"))
        assert "authorization" not in server.asked[0].headers

    def test_refused_key_is_the_callers_problem(self, raw, opened, wire, told, requests_of) -> None:
        body = {"error": {"message": f"wrong key {SECRET}", "code": "invalid_api_key"}}
        server = raw(wire.json(body, status="401 No"))
        ask = opened(server, per_server={"forward_key": True})
        answer = told(run_with(ask, Forwarded({}, SECRET), requests_of.completion("x")))
        assert (answer.error.status, answer.error.code) == (401, "invalid_api_key")
        assert answer.error.message == "wrong key [secret]"

    def test_headers_are_those_of_both_lists(self, raw, opened, wire, requests_of) -> None:
        server = raw(wire.hello())
        ask = opened(server, per_server={"forward_headers": ["X-Tenant"]})
        headers = {"x-tenant": "blue", "x-other": "no", "cookie": "a=b"}
        run_with(ask, Forwarded(headers), requests_of.completion("x"))
        sent = server.asked[0].headers
        assert sent["x-tenant"] == "blue"
        assert not {"x-other", "cookie"} & set(sent)

    def test_headers_cannot_smuggle_lines(self, raw, opened, wire, requests_of, told) -> None:
        server = raw(wire.hello())
        ask = opened(server, per_server={"forward_headers": ["x-tenant"]})
        forwarded = Forwarded({"x-tenant": "blue\r\nX-Admin: 1"})
        assert told(run_with(ask, forwarded, requests_of.completion("x"))).text() == "Hello you"
        assert not {"x-tenant", "x-admin"} & set(server.asked[0].headers)


def test_no_cookie_is_kept_for_the_next_caller(raw, opened, wire) -> None:
    server = raw(wire.hello().replace(b"Connection", b"Set-Cookie: session=1\r\nConnection"))
    ask = opened(server)
    ask.complete()
    ask.complete()
    assert ["cookie" in asked.headers for asked in server.asked] == [False, False]


def test_key_and_headers_go_through_the_whole_server(raw, wire) -> None:
    server = raw(wire.hello().replace(b"Connection", b"x-theirs: 7\r\nx-private: 8\r\nConnection"))
    one = {
        "url": server.url,
        "forward_key": True,
        "forward_headers": ["x-tenant"],
        "return_headers": ["x-theirs"],
    }
    settings = Settings(
        backends={"upstream": {"models_ttl_s": 0, "servers": {"one": one}}},
        forward_headers=("authorization", "x-tenant", "x-unwanted"),
    )
    app = create_app(settings, registry=Registry.of({"upstream": UpstreamBackend}, settings))
    with LiveServer(app) as live:
        headers = {"Authorization": "Bearer own-key", "X-Tenant": "blue", "X-Unwanted": "1"}
        body = {"model": "upstream/m", "prompt": "x"}
        response = live.client().post("/compat/completions", body, headers=headers)
        assert response.json()["choices"][0]["text"] == "Hello you"
        assert response.headers["x-caesar-upstream"] == "one"
        assert response.headers["x-theirs"] == "7"
        assert "x-private" not in response.headers
    sent = server.asked[0].headers
    assert (sent["authorization"], sent["x-tenant"]) == ("Bearer own-key", "blue")
    assert "x-unwanted" not in sent
