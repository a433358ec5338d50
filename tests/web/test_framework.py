"""What the application does faster than Flask, and otherwise as Flask does."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask, request, session

from caesar_server.web.framework.adapters import UrlAdapters
from caesar_server.web.framework.application import Application

HOSTS = ("localhost:80", "LOCALHOST", "127.0.0.1:8000", "[::1]:9", "xn--bcher-kva.example", "")


def show(rest: str = "") -> dict[str, Any]:
    """Answer with what the request was taken for."""
    return {
        "rest": rest,
        "host": request.host,
        "url": request.url,
        "root": request.script_root,
        "arguments": request.args.to_dict(),
        "blueprints": list(request.blueprints),
    }


def routed(app: Flask) -> Flask:
    """Return ``app`` with a few routes."""
    app.add_url_rule("/<path:rest>", view_func=show)
    return app


@pytest.fixture
def apps() -> tuple[Flask, Flask]:
    return routed(Application("ours")), routed(Flask("theirs"))


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("path", ["/a", "/%C3%A4%20b?q=%C3%BC&q=2", "/a/%FF", "/a?%FF=1"])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_each_request_of_a_host_is_found_as_flask_finds_it(
    apps: tuple[Flask, Flask], host: str, path: str, scheme: str
) -> None:
    found = []
    for app in apps:
        client = app.test_client()
        for _ in range(3):  # the first one is Flask's own way
            answer = client.get(
                path, headers={"Host": host} if host else {}, base_url=f"{scheme}://base/root"
            )
            found.append((answer.status_code, answer.get_json(silent=True)))
    assert found[0][0] == 200
    assert all(one == found[0] for one in found)


@pytest.mark.parametrize("host", ["a b", "a/b", "é" * 64, "." * 300])
def test_odd_hosts_are_treated_as_flask_does(apps: tuple[Flask, Flask], host: str) -> None:
    host = host.encode().decode("latin-1")
    seen = [
        [app.test_client().get("/a", headers={"Host": host}).status_code for _ in range(2)]
        for app in apps
    ]
    assert seen[0] == seen[1]


def test_a_name_that_no_host_can_have_is_refused_each_time() -> None:
    client = routed(Application("ours")).test_client()
    refused = [client.get("/a", headers={"Host": "." * 300}).status_code for _ in range(3)]
    assert refused == [400, 400, 400]


def test_only_so_many_hosts_are_remembered() -> None:
    app = routed(Application("ours"))
    adapters: UrlAdapters = app._url_adapters
    for number in range(500):
        answer = app.test_client().get("/a", headers={"Host": f"host-{number}"})
        assert answer.get_json()["host"] == f"host-{number}"
    assert len(adapters._names) == 64


def test_a_websocket_is_told_from_a_request_of_the_same_host(apps: tuple[Flask, Flask]) -> None:
    app = apps[0]
    headers = {"Connection": "Upgrade", "Upgrade": "websocket"}
    client = app.test_client()
    assert client.get("/a").status_code == 200
    with_upgrade = client.get("/a", headers=headers)
    assert with_upgrade.status_code == apps[1].test_client().get("/a", headers=headers).status_code


def test_there_are_no_sessions() -> None:
    app = Application("ours")

    @app.get("/")
    def remember() -> str:
        session["name"] = "value"
        return ""

    app.testing = True
    with pytest.raises(RuntimeError, match="session is unavailable"):
        app.test_client().get("/")
