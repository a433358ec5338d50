"""Who is let in, and what the others are told."""

from __future__ import annotations

import json
import socket
from datetime import UTC, datetime

import pytest

from caesar_server.errors import SettingsError
from caesar_server.settings import Settings, check_allowed_hosts
from caesar_server.testing import LiveServer
from caesar_server.web.access.auth import OPEN_PATHS
from caesar_server.web.access.keys import generate_key, hash_key

COMPLETIONS = ("/compat/completions", "/v1/completions", "/compat/v1/completions")
GIVEN = "given-key-of-some-length"


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def refusal(response) -> tuple[str, str]:
    """Check a 401 in OpenAI's form; return its code and message."""
    assert response.status_code == 401
    assert response.headers["WWW-Authenticate"] == "Bearer"
    assert response.headers["x-request-id"]
    assert "x-should-retry" not in response.headers
    error = response.get_json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["type"], error["param"]) == ("authentication_error", None)
    return error["code"], error["message"]


MISSING = ("missing_api_key", "Missing API key")
INVALID = ("invalid_api_key", "Invalid API key")


@pytest.mark.parametrize("path", COMPLETIONS)
def test_without_a_key_it_is_401(serve_app, key_maker, path) -> None:
    key = key_maker.make()
    served = serve_app()
    assert refusal(served.complete(path=path)) == MISSING
    assert refusal(served.complete(generate_key(), path=path)) == INVALID
    assert served.backend.script.runs == 0
    assert served.complete(key, path=path).status_code == 200


def test_every_path_asks_for_a_key_but_the_open_ones(serve_app, key_maker) -> None:
    key = key_maker.make()
    served = serve_app()
    seen = set()
    for rule in served.app.url_map.iter_rules():
        path = rule.rule.replace("<path:model_id>", "m").replace("<path:filename>", "docs.css")
        if "<" in path:
            continue
        method = "POST" if "POST" in rule.methods else "GET"
        open_path = any(path == one or path.startswith(f"{one}/") for one in OPEN_PATHS)
        response = served.client.open(path, method=method)
        assert (response.status_code == 401) != open_path, path
        assert served.client.open(path, method=method, headers=bearer(key)).status_code != 401
        seen.add(open_path)
    assert seen == {True, False}


@pytest.mark.parametrize("path", ["/nowhere", "/compat/nowhere", "/research/nowhere", "/"])
def test_unknown_paths_ask_for_a_key_first(serve_app, key_maker, path) -> None:
    key = key_maker.make()
    served = serve_app()
    assert served.client.get(path).status_code == 401
    assert served.client.get(path, headers=bearer(key)).status_code == 404


def test_native_paths_say_it_with_a_string(serve_app, key_maker) -> None:
    key_maker.make()
    response = serve_app().client.get("/research")
    assert response.status_code == 401
    assert response.get_json() == {"error": "Missing API key"}
    assert response.headers["WWW-Authenticate"] == "Bearer"


def test_bad_bodies_are_not_even_read_without_a_key(serve_app, key_maker) -> None:
    key_maker.make()
    served = serve_app()
    response = served.client.post("/compat/completions", data="{", content_type="text/plain")
    assert refusal(response) == MISSING


@pytest.mark.parametrize("state", ["unknown", "expired", "revoked"])
def test_why_a_key_is_invalid_is_not_told(serve_app, key_maker, state) -> None:
    over = datetime.fromtimestamp(1_700_000_000, UTC)
    fields = {"unknown": {}, "expired": {"expires_at": over}, "revoked": {"revoked_at": over}}
    key = key_maker.make(**fields[state])
    served = serve_app()
    first = served.complete(key if state != "unknown" else generate_key())
    assert refusal(first) == INVALID
    other = served.complete(generate_key())
    assert first.data == other.data
    assert set(first.headers.keys()) == set(other.headers.keys())


def test_a_key_expires_while_the_server_runs(serve_app, key_maker) -> None:
    key = key_maker.make(expires_at=datetime.fromtimestamp(1_700_000_010, UTC))
    served = serve_app()
    assert served.complete(key).status_code == 200
    served.clock.advance(9.999)
    assert served.complete(key).status_code == 200
    served.clock.advance(0.001)
    assert refusal(served.complete(key)) == INVALID


def test_jobs_belong_to_the_account_of_their_key(serve_app, key_maker) -> None:
    key = key_maker.make("acme")
    served = serve_app()
    store = served.app.extensions["caesar_server"].store
    assert store.job(served.complete(key).get_json()["id"]).account == "acme"
    with served.complete(key, stream=True) as response:
        first = json.loads(response.data.split(b"\n\n")[0].removeprefix(b"data: "))
    assert store.job(first["id"]).account == "acme"


@pytest.mark.parametrize("header", [None, "Bearer whatever", "Basic abc", "nonsense\xff"])
def test_without_configured_keys_nobody_is_asked(serve_app, header) -> None:
    served = serve_app()
    headers = {} if header is None else {"Authorization": header}
    response = served.client.post(
        "/compat/completions", json={"model": "m", "prompt": "p"}, headers=headers
    )
    assert response.status_code == 200
    job = served.app.extensions["caesar_server"].store.job(response.get_json()["id"])
    assert job.account == ""


@pytest.mark.parametrize("given", [GIVEN, f"sha256:{hash_key(GIVEN)}"])
def test_keys_of_the_settings_are_taken(serve_app, given) -> None:
    served = serve_app(api_keys=(given,))
    assert served.complete(GIVEN).status_code == 200
    assert refusal(served.complete(given + "x")) == INVALID
    assert refusal(served.complete()) == MISSING
    if given != GIVEN:
        # who knows the hash knows no key
        assert refusal(served.complete(given)) == INVALID


def test_file_without_keys_lets_nobody_in(serve_app, key_maker) -> None:
    key_maker.empty()
    served = serve_app()
    assert refusal(served.complete()) == MISSING
    assert served.client.get("/healthz").status_code == 200


def test_the_host_is_checked_only_as_long_as_no_key_is(serve_app, key_maker) -> None:
    served = serve_app()
    elsewhere = {"Host": "evil.example"}
    assert served.client.get("/healthz", headers=elsewhere).status_code == 403
    key = key_maker.make()
    served.clock.advance(1)
    assert served.client.get("/compat/models", headers=elsewhere | bearer(key)).status_code == 200
    assert served.client.get("/compat/models", headers=elsewhere).status_code == 401


@pytest.mark.parametrize("name", ["api.example", ".example", "[::1]", "10.0.0.7", "API.example"])
def test_names_that_can_be_allowed(name: str) -> None:
    check_allowed_hosts(Settings(allowed_hosts=(name,)))


@pytest.mark.parametrize(
    "name",
    [
        "*",
        "*.example",
        "https://api.example",
        "api.example:8000",
        "api.example/",
        "::1",
        "",
        "a.",
        "münchen.de",
    ],
)
def test_names_that_no_host_header_has_are_refused(serve_app, name: str) -> None:
    with pytest.raises(SettingsError, match="allowed_hosts"):
        serve_app(allowed_hosts=("api.example", name))


def test_allowed_hosts_hold_with_keys_too(serve_app, key_maker) -> None:
    key = key_maker.make()
    served = serve_app(allowed_hosts=("api.example",))
    for host, status in (("api.example", 200), ("localhost", 200), ("evil.example", 403)):
        headers = {"Host": host} | bearer(key)
        assert served.client.get("/compat/models", headers=headers).status_code == status


def test_elsewhere_than_on_loopback_any_host_will_do(serve_app, key_maker) -> None:
    key = key_maker.make()
    served = serve_app(host="0.0.0.0")
    headers = {"Host": "whatever.example"} | bearer(key)
    assert served.client.get("/compat/models", headers=headers).status_code == 200


def exchange(port: int, *headers: bytes) -> tuple[int, bytes]:
    """Send a GET with these header lines as they are; return status and body."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        lines = [b"GET /compat/models HTTP/1.1", b"Host: localhost", b"Connection: close", *headers]
        client.sendall(b"\r\n".join([*lines, b"", b""]))
        raw = b"".join(iter(lambda: client.recv(65536), b""))
    head, _, body = raw.partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]), body


def test_headers_as_raw_bytes(serve_app, key_maker) -> None:
    key = key_maker.make().encode()
    good, wrong = b"Authorization: Bearer " + key, b"Authorization: Bearer wrong"
    with LiveServer(serve_app().app) as server:
        for headers, status in (
            ([good], 200),
            ([b"aUTHORIZATION:bearer   " + key + b"  "], 200),
            ([b"Authorization:\tBearer\t" + key], 200),
            ([good, good], 401),
            ([good, wrong], 401),
            ([wrong, good], 401),
            ([b"Authorization: Bearer " + key + b"\xff"], 401),
            ([b"Authorization: Bearer \xc3\xa9"], 401),
            ([b"Authorization: " + key], 401),
            ([b"Authorization: Basic " + key], 401),
            ([b"Authorization:"], 401),
            ([b"X-Api-Key: " + key], 401),
        ):
            seen, body = exchange(server.port, *headers)
            assert (seen, headers) == (status, headers)
            assert key not in body


def test_a_caller_is_not_kept_for_the_next_request(serve_app, key_maker) -> None:
    key = key_maker.make()
    served = serve_app()
    assert served.complete(key).status_code == 200
    assert refusal(served.complete()) == MISSING


def test_settings_with_a_key_do_not_show_it() -> None:
    assert GIVEN not in repr(Settings(api_keys=(GIVEN,)))
