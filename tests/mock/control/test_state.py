"""Settings, clocks, scopes and fixture files over HTTP."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from jsonschema import Draft202012Validator

from caesar_server.mock.files import load_into
from caesar_server.mock.scopes import Scopes

Fits = Callable[[str, Any], None]
Complete = Callable[..., Any]
MakeApp = Callable[..., Flask]


def test_settings(client: FlaskClient, complete: Complete, fits: Fits) -> None:
    before = client.get("/_mock/settings").json
    fits("Settings", before)
    assert (before["seed"], before["strict"], before["fallback"]) == (0, False, "echo")
    change = {
        "seed": 7,
        "fallback": {"text": "Always this"},
        "pacing": {"unit": "character"},
        "faults": [{"kind": "delay", "delay_s": 0.0, "probability": 0.5}],
    }
    after = client.patch("/_mock/settings", json=change).json
    fits("Settings", after)
    assert (after["seed"], after["faults"]) == (7, change["faults"])
    assert after["strict"] is False
    assert client.patch("/_mock/settings", json=after).json == after
    assert complete().json["choices"][0]["text"] == "Always this"
    client.patch("/_mock/settings", json={"strict": True})
    assert complete().status_code == 404


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sed": 1}, "sed: unknown field; did you mean 'seed'?"),
        ({"seed": "1"}, "seed: expected a whole number, got '1'"),
        ({"rules": []}, "rules: unknown field; "),
        ({"fallback": {"text": "a", "template": "b"}}, "fallback.template: expected one of"),
        ({"faults": [{"kind": "delay"}], "strict": True}, "faults[0].delay_s: delay needs it"),
    ],
)
def test_settings_that_are_wrong_change_nothing(
    client: FlaskClient, change: Any, said: str
) -> None:
    before = client.get("/_mock/settings").json
    answer = client.patch("/_mock/settings", json=change)
    assert answer.status_code == 400
    assert answer.json["error"].startswith(said)
    assert client.get("/_mock/settings").json == before


def test_the_same_seed_gives_the_same_bytes(client: FlaskClient, complete: Complete) -> None:
    def run() -> list[bytes]:
        client.patch("/_mock/settings", json={"seed": 3})
        return [complete(stream=True).data, complete().data]

    assert run() == run()


def test_resets(client: FlaskClient, complete: Complete) -> None:
    client.post("/_mock/rules", json={"reply": "once", "times": 1})

    def text() -> str:
        return str(complete().json["choices"][0]["text"])

    assert [text(), text()] == ["once", "Hello"]
    assert client.post("/_mock/reset", json={"what": "counters"}).json == {"reset": "counters"}
    assert [text(), text()] == ["once", "Hello"]
    client.post("/_mock/reset", json={"what": "journal"})
    assert client.get("/_mock/journal").json["entries"] == []
    assert client.get("/_mock/rules").json["rules"] != []
    assert client.post("/_mock/reset").json == {"reset": "all"}
    assert client.get("/_mock/rules").json["rules"] == []
    wrong = client.post("/_mock/reset", json={"what": "al"})
    assert wrong.json == {"error": "what: unknown value 'al'; did you mean 'all'?"}


def test_the_clock_is_turned(
    client: FlaskClient, make_app: MakeApp, complete: Complete, fits: Fits
) -> None:
    client.post("/_mock/rules", json={"fault": {"kind": "delay", "delay_s": 3600}})
    fits("Clock", client.post("/_mock/clock", json={"stopped": True}).json)
    answers: list[int] = []
    thread = threading.Thread(target=lambda: answers.append(complete().status_code))
    thread.start()
    turned = client.post("/_mock/clock", json={"waiting": 1, "timeout_s": 60, "advance_s": 3600})
    thread.join(60)
    assert answers == [200]
    assert (turned.json["stopped"], turned.json["turned_s"]) == (True, 3600)
    assert client.get("/_mock/clock").json == turned.json
    assert client.post("/_mock/clock", json={"stopped": False}).json["stopped"] is False


def test_nobody_waits_for_the_clock(client: FlaskClient) -> None:
    answer = client.post("/_mock/clock", json={"waiting": 1, "timeout_s": 0, "advance_s": 1})
    assert answer.status_code == 409
    assert "wait for the clock" in answer.json["error"]
    assert client.get("/_mock/clock").json["turned_s"] == 0


def test_scopes(client: FlaskClient, complete: Complete, fits: Fits) -> None:
    made = client.put("/_mock/scopes/one")
    fits("Scope", made.json)
    client.post("/t/one/_mock/rules", json={"reply": "mine"})
    # its name as the API key
    answer = complete(headers={"Authorization": "Bearer one"})
    assert answer.json["choices"][0]["text"] == "mine"
    listed = client.get("/_mock/scopes").json
    fits("Scopes", listed)
    assert listed["scopes"] == [
        {"name": "", "rules": 0, "requests": 0},
        {"name": "one", "rules": 1, "requests": 1},
    ]
    assert client.delete("/_mock/scopes/one").json == {"name": "one", "removed": True}
    assert client.delete("/_mock/scopes/one").status_code == 404
    assert client.put(f"/_mock/scopes/{'x' * 201}").status_code == 400


def test_a_scope_may_be_made_with_settings_of_its_own(client: FlaskClient) -> None:
    made = client.put("/_mock/scopes/one", json={"seed": 7, "strict": True})
    assert made.json == {"name": "one", "rules": 0, "requests": 0}
    shown = client.get("/t/one/_mock/settings").json
    assert (shown["seed"], shown["strict"]) == (7, True)
    client.put("/_mock/scopes/one", json={"strict": False})
    shown = client.get("/t/one/_mock/settings").json
    assert (shown["seed"], shown["strict"]) == (7, False)
    assert client.get("/_mock/settings").json["seed"] == 0


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"seed": "x"}, "seed: expected a whole number, got 'x'"),
        ({"sed": 1}, "sed: unknown field; did you mean 'seed'?"),
    ],
)
def test_wrong_settings_make_no_scope(
    client: FlaskClient, scopes: Scopes, body: Any, error: str
) -> None:
    answer = client.put("/_mock/scopes/one", json=body)
    assert (answer.status_code, answer.json) == (400, {"error": error})
    assert scopes.find("one") is None


@pytest.mark.parametrize("name", ["a%2Fb", "%2E%2E", "a/b"])
def test_a_name_that_is_no_step_of_a_path_is_refused(
    client: FlaskClient, scopes: Scopes, name: str
) -> None:
    answer = client.put(f"/_mock/scopes/{name}")
    assert answer.status_code == 400
    assert answer.json["error"].startswith("scope: expected a name without '/', got ")
    assert scopes.names() == ("",)


def test_there_is_an_end_to_scopes(scopes: Scopes, client: FlaskClient) -> None:
    scopes.limit = 2
    assert client.put("/_mock/scopes/one").status_code == 200
    full = client.put("/_mock/scopes/two")
    assert full.status_code == 503
    assert "DELETE /_mock/scopes/NAME" in full.json["error"]


def test_fixture_files_follow_their_changes(
    client: FlaskClient, scopes: Scopes, complete: Complete, fits: Fits, tmp_path: Path
) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"Hello": "Hi"}')
    load_into(scopes, tmp_path)
    shown = client.get("/_mock/fixtures").json
    fits("Fixtures", shown)
    assert shown == {"paths": [str(tmp_path)], "files": [str(path)], "rules": 1, "problems": []}
    assert complete().json["choices"][0]["text"] == "Hi"
    path.write_text('{"Hello": "Good evening"}')
    client.post("/_mock/fixtures/reload")
    assert complete().json["choices"][0]["text"] == "Good evening"
    path.write_text('{"Hello": 5}')
    wrong = client.post("/_mock/fixtures/reload")
    assert wrong.status_code == 400
    said = "a.json:1:2: Hello: expected a string or an object, got 5"
    assert wrong.json == {"error": said}
    shown = client.get("/_mock/fixtures").json
    fits("Fixtures", shown)
    assert shown["problems"] == [
        {
            "file": "a.json",
            "line": 1,
            "column": 2,
            "field": "Hello",
            "message": "expected a string or an object, got 5",
        }
    ]
    assert complete().json["choices"][0]["text"] == "Good evening"
    (rule,) = client.get("/_mock/rules").json["rules"]
    assert rule["source"] == "a.json:1"


def test_each_request_looks_at_the_files(
    client: FlaskClient, scopes: Scopes, complete: Complete
) -> None:
    class Counting:
        looks = 0

        def check(self) -> None:
            self.looks += 1

    scopes.reloader = Counting()
    complete()
    complete()
    assert scopes.reloader.looks == 2


def test_there_are_no_fixture_files(client: FlaskClient) -> None:
    for answer in (client.get("/_mock/fixtures"), client.post("/_mock/fixtures/reload")):
        assert answer.status_code == 404
        assert answer.json == {"error": "The server was started without fixture files"}


def test_the_schema_of_fixture_files(client: FlaskClient) -> None:
    Draft202012Validator(client.get("/_mock/fixtures/schema").json).validate({"Hello": "Hi"})


def test_keys_are_asked_for_here_too(make_app: MakeApp) -> None:
    client = make_app(api_keys=("csk-secret-0123456789",)).test_client()
    assert client.get("/_mock/rules").status_code == 401
    answer = client.get("/_mock/rules", headers={"Authorization": "Bearer csk-secret-0123456789"})
    assert answer.status_code == 200


def test_a_full_server_can_be_controlled(make_app: MakeApp, scopes: Scopes) -> None:
    app = make_app(threads=8)  # four of them for calls
    client = app.test_client()
    client.post("/_mock/clock", json={"stopped": True})
    client.post("/_mock/rules", json={"fault": {"kind": "delay", "delay_s": 60}})

    def ask() -> int:
        body = {"model": "m", "prompt": "a"}
        return app.test_client().post("/v1/completions", json=body).status_code

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert client.post("/_mock/clock", json={"waiting": 4, "timeout_s": 60}).status_code == 200
    assert ask() == 503
    assert client.post("/_mock/clock", json={"advance_s": 60}).status_code == 200
    for thread in threads:
        thread.join(60)


def test_a_server_that_is_no_mock_has_none_of_it() -> None:
    from caesar_server.app import create_app
    from caesar_server.settings import Settings

    app = create_app(Settings(default_backend="mock"))
    client = app.test_client()
    assert client.get("/_mock/rules").status_code == 404
    assert not any("_mock" in path for path in client.get("/openapi.json").json["paths"])
    app.extensions["caesar_server"].close()
