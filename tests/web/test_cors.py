"""Web pages may call the server only where the operator lists their origin."""

from __future__ import annotations

import io

import pytest

from caesar_server.contract import Failed
from caesar_server.contract.errors import ErrorInfo
from caesar_server.errors import SettingsError
from caesar_server.settings import Settings, check_origins
from caesar_server.web.access.keys import KeyLimits
from caesar_server.web.origins.cors import EXPOSED_HEADERS

PAGE = "https://app.example"
OTHER = "https://other.example"
COMPLETIONS = "/compat/completions"
BODY = {"model": "m", "prompt": "p"}


def allowed(response) -> str | None:
    """Return the origin that may read a response."""
    assert "Access-Control-Allow-Credentials" not in response.headers
    return response.headers.get("Access-Control-Allow-Origin")


def preflight(served, origin: str, path: str = COMPLETIONS):
    return served.client.options(
        path,
        headers={
            "Origin": origin,
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization,content-type,x-stainless-os",
        },
    )


def test_it_is_off_unless_it_is_set(serve_app):
    served = serve_app()
    for response in (
        preflight(served, PAGE),
        served.client.post(COMPLETIONS, json=BODY, headers={"Origin": PAGE}),
    ):
        assert not [name for name, _ in response.headers if name.startswith("Access-Control")]
        assert "Origin" not in response.vary


def test_a_listed_page_may_send_its_headers(serve_app):
    response = preflight(serve_app(cors_origins=(PAGE,)), PAGE)
    assert (response.status_code, response.data, allowed(response)) == (204, b"", PAGE)
    assert "POST" in response.headers["Access-Control-Allow-Methods"]
    asked = response.headers["Access-Control-Allow-Headers"]
    assert asked == "authorization,content-type,x-stainless-os"
    assert int(response.headers["Access-Control-Max-Age"]) > 0
    assert response.headers["x-request-id"]
    assert "Origin" in response.vary


def test_a_preflight_needs_no_key(serve_app, key_maker):
    key_maker.make()
    served = serve_app(cors_origins=(PAGE,))
    assert preflight(served, PAGE).status_code == 204
    assert preflight(served, OTHER).status_code == 401
    assert served.client.options(COMPLETIONS, headers={"Origin": PAGE}).status_code == 401


@pytest.mark.parametrize("stream", [False, True])
def test_a_listed_page_may_read_answers_and_streams(serve_app, stream):
    served = serve_app(cors_origins=(OTHER, PAGE))
    response = served.client.post(
        COMPLETIONS, json={**BODY, "stream": stream}, headers={"Origin": PAGE}
    )
    assert b"hello" in response.data
    assert allowed(response) == PAGE
    exposed = response.headers["Access-Control-Expose-Headers"].split(", ")
    assert set(exposed) == set(EXPOSED_HEADERS)
    assert "Origin" in response.vary


@pytest.mark.parametrize("origin", [OTHER, "null", f"{PAGE}:8443", f"{PAGE}.evil.example", ""])
def test_no_other_page_may(serve_app, origin):
    served = serve_app(cors_origins=(PAGE,))
    answer = served.client.post(COMPLETIONS, json=BODY, headers={"Origin": origin})
    assert answer.status_code == 200
    for response in (answer, preflight(served, origin)):
        assert allowed(response) is None
        assert "Origin" in response.vary
    assert "Origin" in served.client.get("/healthz").vary


def test_a_listed_page_may_read_which_job_a_stream_is_of(serve_app):
    served = serve_app(cors_origins=(PAGE,))
    response = served.client.post(
        "/agents/research?stream=true", json={"query": "Why?"}, headers={"Origin": PAGE}
    )
    assert response.headers["Content-Location"].startswith("/agents/research/")
    assert "content-location" in response.headers["Access-Control-Expose-Headers"]
    assert response.data


def test_a_star_lets_every_page_read(serve_app):
    served = serve_app(cors_origins=("*",))
    for response in (
        preflight(served, OTHER),
        served.client.post(COMPLETIONS, json=BODY, headers={"Origin": "null"}),
    ):
        assert allowed(response) == "*"
        assert "Origin" not in response.vary


def test_a_page_may_read_why_it_was_refused(serve_app, key_maker):
    key = key_maker.make(limits=KeyLimits(requests_per_minute=1))
    served = serve_app(
        [Failed(ErrorInfo("no", code="x", type="server_error", status=503))], cors_origins=(PAGE,)
    )
    page = {"Origin": PAGE}
    known = {**page, "Authorization": f"Bearer {key}"}
    refused = {
        401: served.client.post(COMPLETIONS, json=BODY, headers=page),
        404: served.client.get("/nowhere", headers=known),
        503: served.client.post(COMPLETIONS, json=BODY, headers=known),
        429: served.client.post(COMPLETIONS, json=BODY, headers=known),
    }
    assert {status: response.status_code for status, response in refused.items()} == {
        status: status for status in refused
    }
    assert {allowed(response) for response in refused.values()} == {PAGE}
    exposed = {name.lower() for name in EXPOSED_HEADERS}
    sent = {name.lower() for response in refused.values() for name, _ in response.headers}
    native = {name for name in exposed if name.endswith(("-jobs", "-loops", "-disposition"))}
    native |= {"x-ratelimit-remaining", "accept-ranges", "content-range", "etag"}
    native |= {"content-location", "x-caesar-upstream"}
    assert exposed - native <= sent | {"x-should-retry"}


@pytest.mark.parametrize("good", ["*", PAGE, "http://localhost:3000", "http://[::1]:5173"])
def test_good_origins(good):
    check_origins(Settings(cors_origins=(good,)))


@pytest.mark.parametrize(
    "bad", ["app.example", f"{PAGE}/", f"{PAGE}/page", "https://App.example", "https://*.example"]
)
def test_what_is_no_origin_is_refused(serve_app, bad):
    with pytest.raises(SettingsError, match="cors_origins"):
        serve_app(cors_origins=(PAGE, bad))


def upload(served, origin: str | None):
    headers = {} if origin is None else {"Origin": origin}
    form = {"file": (io.BytesIO(b"text"), "a.txt")}
    return served.client.post("/research/files", data=form, headers=headers)


@pytest.mark.parametrize(
    "origin", [OTHER, "null", "http://localhost.example", "http://localhost:1"]
)
def test_a_page_of_elsewhere_cannot_send_a_form_unasked(serve_app, origin) -> None:
    served = serve_app()
    refused = upload(served, origin)
    assert (refused.status_code, "cors_origins" in refused.json["error"]) == (403, True)
    assert served.client.get("/research/files").json["data"] == []


@pytest.mark.parametrize("origin", [None, "http://localhost", "https://localhost", PAGE])
def test_others_can(serve_app, origin) -> None:
    assert upload(serve_app(cors_origins=(PAGE,)), origin).status_code == 200
