"""What the application does faster than Flask, and otherwise as Flask does."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from flask import Blueprint, Flask, Response, after_this_request, request, session
from flask.globals import request_ctx
from werkzeug.test import Client

from caesar_server.web.framework.adapters import UrlAdapters
from caesar_server.web.framework.application import Application
from caesar_server.web.framework.responses import ReadyResponse
from caesar_server.web.incoming import incoming

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
    app.add_url_rule("/fixed", endpoint="fixed", view_func=show, methods=["GET", "POST"])
    app.add_url_rule("/given", endpoint="given", view_func=show, defaults={"rest": "by default"})
    app.url_map.strict_slashes = app.url_map.merge_slashes = False
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


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "OPTIONS", "DELETE"])
@pytest.mark.parametrize("path", ["/fixed", "/fixed/", "//fixed", "/fixed?q=1", "/given", "/x/y"])
def test_each_view_is_found_again_as_flask_finds_it(
    apps: tuple[Flask, Flask], path: str, method: str
) -> None:
    found = []
    for app in apps:
        client = app.test_client()
        for _ in range(3):
            answer = client.open(path, method=method)
            allowed = sorted(answer.allow)
            found.append((answer.status_code, allowed, answer.get_json(silent=True)))
    assert all(one == found[0] for one in found)


def test_a_view_changes_its_own_arguments_alone() -> None:
    app = Application("ours")

    @app.get("/fixed")
    def view() -> dict[str, Any]:
        request.view_args["more"] = 1  # type: ignore[index]
        return {}

    assert [app.test_client().get("/fixed").status_code for _ in range(3)] == [200] * 3


def test_only_so_many_ways_to_a_view_are_remembered() -> None:
    app = routed(Application("ours"))
    for number in range(600):
        path = {"PATH_INFO": "/" * number + "/fixed"}
        assert app.test_client().get("/", environ_overrides=path).status_code == 200
    assert len(app._url_adapters._views) == 512


def in_parts(response: Response, *parts: bytes | str, made: bool = False) -> None:
    response.response = iter(parts) if made else list(parts)
    del response.headers["Content-Length"]


def moved(response: Response) -> None:
    response.headers["Location"] = "/\u00e4 b"
    response.headers["Content-Location"] = "/\u00e4"


def passed(response: Response, body: Iterable[bytes]) -> None:
    response.response = body
    response.direct_passthrough = True
    del response.headers["Content-Length"]


#: What becomes of a response before it is sent.
CHANGES: dict[str, Callable[[Response], object]] = {
    "none": lambda response: None,
    "status 204": lambda response: setattr(response, "status_code", 204),
    "status 304": lambda response: setattr(response, "status_code", 304),
    "status 404": lambda response: setattr(response, "status_code", 404),
    "text": lambda response: response.set_data("h\u00e4"),
    "one text": lambda response: in_parts(response, "a"),
    "parts": lambda response: in_parts(response, b"a", "b"),
    "parts to come": lambda response: in_parts(response, b"a", "b", made=True),
    "passed through": lambda response: passed(response, iter([b"a", b"b"])),
    "passed through at once": lambda response: passed(response, [b"a", b"b"]),
    "unmeasured": lambda response: response.headers.remove("Content-Length"),
    "moved": moved,
}


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_ready_response_is_sent_as_flask_sends_it(change: str, method: str) -> None:
    seen = []
    for make in (ReadyResponse, Response):
        response = make(b"whole", content_type="text/plain")
        CHANGES[change](response)
        with Client(response).open(method=method) as answer:
            seen.append((answer.status, list(answer.headers), answer.data))
    assert seen[0] == seen[1]


def test_who_waits_for_the_end_of_a_ready_response_hears_of_it() -> None:
    heard: list[str] = []
    response = ReadyResponse(b"whole")
    response.call_on_close(lambda: heard.append("closed"))
    with Client(response).get() as answer:
        assert (answer.data, heard) == (b"whole", [])
    assert heard == ["closed"]


def fails() -> str:
    raise LookupError("no answer")


def hooked(app: Flask, *, values: bool) -> list[str]:
    """Give ``app`` views and hooks, which note that they are called in the list returned."""
    noted: list[str] = []

    def before(name: str) -> Callable[[], str | None]:
        def hook() -> str | None:
            noted.append(name)
            after_this_request(after(f"{name}, once"))
            return f"stopped by {name}" if request.args.get("stop") == name else None

        return hook

    def after(name: str) -> Callable[[Response], Response]:
        def hook(response: Response) -> Response:
            noted.append(f"after {name}: {response.status_code}")
            return Response(response.data + b"!", response.status, response.headers)

        return hook

    def teardown(name: str) -> Callable[[BaseException | None], None]:
        return lambda error: noted.append(f"end of {name}: {error!r}")

    outer, inner = Blueprint("outer", __name__), Blueprint("inner", __name__)
    for name, owner in (("app 1", app), ("outer", outer), ("inner", inner), ("app 2", app)):
        owner.before_request(before(name))
        owner.after_request(after(name))
        owner.teardown_request(teardown(name))
    if values:
        outer.url_value_preprocessor(lambda endpoint, values: noted.append(f"to {endpoint}"))
    for number, owner in enumerate((app, outer, inner)):
        owner.add_url_rule(f"/{number}", endpoint="view", view_func=lambda: "answer")
        owner.add_url_rule(f"/{number}/fails", endpoint="fails", view_func=fails)
    outer.register_blueprint(inner)
    app.register_blueprint(outer)
    return noted


@pytest.mark.parametrize("values", [False, True])
def test_what_is_around_a_view_is_called_as_flask_calls_it(values: bool) -> None:
    seen = []
    for app in (Application("ours"), Flask("theirs")):
        noted = hooked(app, values=values)
        client = app.test_client()
        paths = ("/0", "/1", "/2", "/nowhere", "/2?stop=app 2", "/2?stop=outer", "/0?stop=outer")
        answers = [client.get(path) for path in (*paths, "/0/fails", "/2/fails") * 2]
        answers += [client.open("/2", method=method) for method in ("OPTIONS", "HEAD", "POST")]
        seen.append((noted, [(answer.status_code, answer.data) for answer in answers]))
    assert seen[0] == seen[1]
    noted = seen[0][0]
    assert "inner" in noted
    assert "after inner: 200" in noted
    assert "end of inner: LookupError('no answer')" in noted


def test_hooks_that_come_after_a_context_and_before_the_first_request_are_called() -> None:
    for app in (Application("ours"), Flask("theirs")):
        with app.test_request_context("/0"):
            pass
        noted = hooked(app, values=False)
        assert app.test_client().get("/0").status_code == 200
        assert {"app 1", "after app 1: 200", "end of app 1: None"} <= set(noted)


def test_what_ends_a_request_hears_what_is_being_handled_unless_it_is_told() -> None:
    for app in (Application("ours"), Flask("theirs")):
        heard: list[BaseException | None] = []
        app.teardown_request(heard.append)
        error = LookupError()
        with app.test_request_context("/"):
            app.do_teardown_request()
            app.do_teardown_request(error)
            try:
                raise error
            except LookupError:
                app.do_teardown_request()
                app.do_teardown_request(None)
        assert heard == [None, error, error, None, None]


def test_the_incoming_request_is_flasks() -> None:
    app = Application("ours")
    seen: list[str] = []

    def note(*_: object) -> None:
        assert incoming() is request._get_current_object()  # type: ignore[attr-defined]
        seen.append(incoming().path)

    app.before_request(note)
    app.teardown_request(note)

    @app.get("/outer")
    def outer() -> str:
        app.test_client().get("/inner")
        note()
        with request_ctx.copy():
            note()
        return ""

    @app.get("/broken")
    def broken() -> str:
        raise LookupError

    with app.test_client() as client:
        client.get("/outer")
        note()  # a client in a block keeps its last context
        client.get("/broken")
        note()
    assert set(seen) == {"/outer", "/inner", "/broken"}
    assert seen[-1] == "/broken"
    with pytest.raises(LookupError):
        incoming()


def test_there_are_no_sessions() -> None:
    app = Application("ours")

    @app.get("/")
    def remember() -> str:
        session["name"] = "value"
        return ""

    app.testing = True
    with pytest.raises(RuntimeError, match="session is unavailable"):
        app.test_client().get("/")
