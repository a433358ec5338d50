"""The journal over HTTP."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from flask.testing import FlaskClient

from caesar_server.app import create_app
from caesar_server.mock.scopes import Scopes
from caesar_server.settings import Settings

Fits = Callable[[str, Any], None]
Complete = Callable[..., Any]


def ids(answer: Any) -> list[str]:
    return [entry["id"] for entry in answer.json["entries"]]


def test_what_came_and_what_was_answered(
    client: FlaskClient, complete: Complete, fits: Fits
) -> None:
    client.put("/_mock/rules/hi", json={"when": {"stream": True}, "reply": "Hi"})
    complete(stream=True, headers={"Authorization": "Bearer sk-secret"})
    complete("Bye")
    journal = client.get("/_mock/journal")
    fits("Journal", journal.json)
    assert "sk-secret" not in journal.text
    assert journal.json["totals"]["requests"] == 2
    first, second = journal.json["entries"]
    assert first["request"]["path"] == "/compat/completions"
    assert first["request"]["raw_path"] == "/v1/completions"
    assert first["request"]["headers"]["authorization"] == "Bearer ***"
    assert first["rule"] == {"id": "hi", "name": "", "source": ""}
    assert first["ended"] == "completed"
    frames = first["response"]["frames"]
    assert frames[-1]["text"] == "data: [DONE]\n\n"
    assert [frame["text"][:6] for frame in frames] == ["data: "] * len(frames)
    assert second["rule"] is None
    assert second["nearest"] == [
        {"rule": "hi", "name": "", "failed": ["stream: wanted True, got False"]}
    ]
    one = client.get(f"/_mock/journal/{first['id']}")
    fits("Entry", one.json)
    assert one.json == first


def test_it_is_not_in_its_own_journal(client: FlaskClient) -> None:
    for path in ("/_mock/rules", "/healthz", "/metrics", "/openapi.json"):
        client.get(path)
    assert client.get("/_mock/journal").json["totals"]["requests"] == 0


def test_queries(client: FlaskClient, complete: Complete) -> None:
    complete("a")
    complete("b", n=0)
    complete("c")
    assert ids(client.get("/_mock/journal?status=200")) == ["1", "3"]
    assert ids(client.get("/_mock/journal?status=200&last=1")) == ["3"]
    assert ids(client.get("/_mock/journal?ended=completed&group=2")) == ["2"]
    assert ids(client.get("/_mock/journal?fault=reset")) == []


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("stats=1", "stats: unknown field; did you mean 'status'?"),
        ("status=x", "status: expected a whole number from 100 to 599, got 'x'"),
        ("status=200&status=400", "status: expected one value, got 2"),
        ("format=pdf", "format: unknown value 'pdf'; known: har, json"),
        ("fault=rest", "fault: unknown value 'rest'; did you mean 'reset'?"),
        ("ended=complete", "ended: unknown value 'complete'; did you mean 'completed'?"),
        ("last=0", "last: expected a whole number of at least 1, got 0"),
    ],
)
def test_bad_queries(client: FlaskClient, query: str, said: str) -> None:
    answer = client.get(f"/_mock/journal?{query}")
    assert (answer.status_code, answer.json) == (400, {"error": said})


def test_search(client: FlaskClient, complete: Complete, fits: Fits) -> None:
    complete("Hello Anna")
    complete("Hello Otto", headers={"X-Team": "blue"})
    when = {"prompt": {"contains": "hello", "ignore_case": True}, "headers": {"x-team": "blue"}}
    found = client.post("/_mock/journal/search", json={"when": when, "status": 200})
    fits("Journal", found.json)
    assert ids(found) == ["2"]
    assert ids(client.post("/_mock/journal/search")) == ["1", "2"]
    wrong = client.post("/_mock/journal/search", json={"when": {"promt": "a"}, "last": "x"})
    assert wrong.status_code == 400
    assert wrong.json["error"].startswith("last: expected a whole number")


def test_checks(client: FlaskClient, complete: Complete, fits: Fits) -> None:
    complete("a")
    complete("b")
    complete("a")

    def check(**body: Any) -> Any:
        return client.post("/_mock/journal/check", json={"when": {"prompt": "a"}, **body})

    good = check(times=2)
    fits("Checked", good.json)
    assert (good.status_code, good.json) == (200, {"matched": 2, "ids": ["1", "3"]})
    for bounds in ({}, {"at_least": 2}, {"at_most": 2}, {"at_least": 1, "at_most": 3}):
        assert check(**bounds).status_code == 200
    bad = check(times=3)
    assert bad.status_code == 409
    assert bad.json["error"].startswith("expected exactly 3 of: prompt 'a'\n     got 2\n")
    assert "prompt: wanted 'a', got 'b'" in bad.json["error"]
    for bounds in ({"at_least": 3}, {"at_most": 1}, {"times": 0}):
        assert check(**bounds).status_code == 409
    for bounds in (
        {"times": 1, "at_least": 1},
        {"at_least": 3, "at_most": 2},
        {"times": -1},
        {"times": 0, "fault": "rest"},
    ):
        assert check(**bounds).status_code == 400


def test_nobody_can_tell_what_is_not_kept() -> None:
    settings = Settings(mock_journal_entries=1)
    app = create_app(settings, mock=Scopes.of(settings))
    client = app.test_client()
    for prompt in ("a", "b"):
        client.post("/compat/completions", json={"model": "any", "prompt": prompt})

    def check(**body: Any) -> int:
        return client.post("/_mock/journal/check", json=body).status_code

    assert check(when={"prompt": "b"}) == check(at_least=1) == 200
    for bounds in ({"times": 0}, {"at_most": 1}, {"times": 1}):
        assert check(when={"prompt": "a"}, **bounds) == 409
    app.extensions["caesar_server"].close()


def test_nothing_came(client: FlaskClient) -> None:
    answer = client.post("/_mock/journal/check")
    assert answer.status_code == 409
    assert answer.json["error"].endswith("no request has come")
    assert client.post("/_mock/journal/check", json={"times": 0}).status_code == 200


def test_a_check_waits(client: FlaskClient, scopes: Scopes, complete: Complete) -> None:
    answers: list[Any] = []

    def check() -> None:
        body = {"at_least": 2, "timeout_s": 60, "finished": True}
        answers.append(client.application.test_client().post("/_mock/journal/check", json=body))

    thread = threading.Thread(target=check)
    thread.start()
    complete()
    complete()
    thread.join(60)
    assert answers[0].json["matched"] == 2


def test_an_unknown_entry(client: FlaskClient) -> None:
    answer = client.get("/_mock/journal/77")
    assert answer.status_code == 404
    assert answer.json["error"] == "No entry has the id '77' in the journal of this scope"


def test_it_is_emptied(client: FlaskClient, complete: Complete, fits: Fits) -> None:
    complete()
    emptied = client.delete("/_mock/journal")
    fits("Journal", emptied.json)
    assert emptied.json == {
        "totals": {"requests": 0, "dropped": 0, "faults": {}, "ended": {}},
        "entries": [],
    }
    assert ids(client.get("/_mock/journal")) == []


def test_attempts_of_one_call_share_a_group(client: FlaskClient, complete: Complete) -> None:
    client.post("/_mock/rules", json={"times": 2, "fault": {"kind": "status", "status": 500}})
    for count in range(3):
        complete(headers={"x-stainless-retry-count": str(count)})
    journal = client.get("/_mock/journal?group=1").json
    assert [entry["attempt"] for entry in journal["entries"]] == [1, 2, 3]
    assert [entry["response"]["status"] for entry in journal["entries"]] == [500, 500, 200]
    assert [[fault["kind"] for fault in entry["faults"]] for entry in journal["entries"]] == [
        ["status"],
        ["status"],
        [],
    ]


def test_as_a_har_file(client: FlaskClient, complete: Complete) -> None:
    complete("a")
    complete("b")
    har = client.get("/_mock/journal?format=har&last=1").json
    (entry,) = har["log"]["entries"]
    assert entry["request"]["url"] == "http://localhost/v1/completions"
    assert entry["response"]["status"] == 200
