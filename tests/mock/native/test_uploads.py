"""Uploads to a mock: the same each time, of any size, in the journal, and gone with their scope."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from caesar_server.app import create_app
from caesar_server.mock.content import HEAD_BYTES
from caesar_server.mock.journal import Limits
from caesar_server.mock.matching import conditions
from caesar_server.mock.model.fault import Fault
from caesar_server.mock.model.reply import Reply
from caesar_server.mock.model.rule import Rule
from caesar_server.mock.scopes import Scopes
from caesar_server.settings import Settings

FILES = "/research/files"
MIB = 1024 * 1024


def form(boundary: str, data: bytes = b"hello", name: str = "a.txt") -> bytes:
    head = f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
    return head.encode() + data + f"\r\n--{boundary}--\r\n".encode()


def upload(
    client: FlaskClient,
    data: bytes = b"hello",
    boundary: str = "b1",
    path: str = FILES,
    **more: Any,
) -> Any:
    kind = f"multipart/form-data; boundary={boundary}"
    return client.post(path, data=form(boundary, data), content_type=kind, **more)


@pytest.fixture
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Flask]:
    """Makes an app whose files are below ``tmp_path``."""

    def make_app(scopes: Scopes, **settings: Any) -> Flask:
        app = create_app(Settings(files=str(tmp_path), **settings), mock=scopes)
        request.addfinalizer(app.extensions["caesar_server"].close)
        return app

    return make_app


def test_the_boundary_decides_nothing(make: Callable[..., Flask]) -> None:
    def answers(boundary: str) -> list[Any]:
        scopes = Scopes()
        faults = (Fault(kind="status", status=503, probability=0.5),)
        scopes.get().add(Rule(conditions=conditions(headers={"x-odd": "1"}), faults=faults))
        client = make(scopes).test_client()
        found = [upload(client, b"1", boundary), upload(client, b"2", boundary)]
        job = {"query": "Why?", "files": [found[0].json["id"]]}
        found.append(client.post("/research", json=job))
        found += [upload(client, b"3", boundary, headers={"X-Odd": "1"}) for _ in range(20)]
        return [(one.status_code, one.data, one.headers["X-Request-ID"]) for one in found]

    one = answers("first")
    assert one == answers("another-boundary")
    assert {status for status, _, _ in one} == {200, 503}


def test_attempts_of_one_upload_are_one_call(client: FlaskClient, scopes: Scopes) -> None:
    faults = (Fault(kind="status", status=503),)
    scopes.get().add(Rule(faults=faults, times=2))
    answers = [
        upload(client, data, f"b{tried}", headers={"X-Stainless-Retry-Count": str(tried)})
        for tried, data in ((0, b"1"), (0, b"2"), (1, b"1"))
    ]
    assert [answer.status_code for answer in answers] == [503, 503, 200]
    calls = scopes.get().journal.attempts()
    assert [[entry.status for entry in call] for call in calls] == [[503, 200], [503]]


def test_files_may_be_larger_than_other_bodies(make: Callable[..., Flask]) -> None:
    scopes = Scopes()
    client = make(scopes, max_body_bytes=1024, max_file_bytes=2 * MIB).test_client()
    data = bytes(range(256)) * 4 * 1024 * 2  # more than is kept in memory
    answer = upload(client, data)
    assert answer.status_code == 200, answer.text
    assert client.get(f"{FILES}/{answer.json['id']}/content").data == data
    too_large = upload(client, data + b"x")
    assert (too_large.status_code, "at most" in too_large.json["error"]) == (400, True)
    far = upload(client, data * 2)
    assert (far.status_code, far.json) == (400, too_large.json)
    first, _, _, last = scopes.get().journal.entries()
    assert first.call.raw_body == form("b1", data)[:HEAD_BYTES]
    assert first.call.left_out_bytes == len(form("b1", data)) - HEAD_BYTES
    # it was not even read
    assert (last.call.raw_body, last.call.left_out_bytes) == (b"", len(form("b1", data * 2)))


def test_a_form_that_breaks_off_is_journalled_and_refused(
    client: FlaskClient, scopes: Scopes
) -> None:
    body = form("b1")
    answer = client.post(
        FILES,
        input_stream=io.BytesIO(body[:20]),
        content_type="multipart/form-data; boundary=b1",
        environ_overrides={"CONTENT_LENGTH": str(len(body))},
    )
    assert answer.status_code == 400
    (entry,) = scopes.get().journal.entries()
    assert (entry.status, entry.decided) == (400, False)


def test_a_large_upload_empties_no_journal(make: Callable[..., Flask]) -> None:
    scopes = Scopes(journal_limits=Limits(total_bytes=100_000))
    client = make(scopes).test_client()
    client.get("/research")
    assert upload(client, b"x" * 8 * MIB).status_code == 200
    first, last = scopes.get().journal.entries()
    assert (first.call.path, last.call.path) == ("/research", FILES)
    assert (
        client.get("/_mock/journal?last=1").json["entries"][0]["request"]["body_left_out_bytes"]
        == len(form("b1", b"x" * 8 * MIB)) - HEAD_BYTES
    )
    (shown,) = client.get("/_mock/journal?last=1&format=har").json["log"]["entries"]
    assert shown["request"]["bodySize"] == len(form("b1", b"x" * 8 * MIB))
    assert "later bytes" in shown["request"]["postData"]["comment"]


def kept(folder: Path) -> int:
    return sum(path.is_file() and path.name != ".lock" for path in folder.rglob("*"))


@pytest.mark.parametrize("name", ["", "a"])
def test_a_reset_removes_what_calls_have_made(
    make: Callable[..., Flask], tmp_path: Path, name: str
) -> None:
    scopes = Scopes()
    app = make(scopes)
    client, prefix = app.test_client(), f"/t/{name}" if name else ""
    owned = app.extensions["caesar_server"].store.owned
    other = upload(client, path=f"/t/other{FILES}").json["id"]
    for path in (f"{prefix}{FILES}", f"{prefix}/agents/files"):
        ids = [upload(client, data, path=path).json["id"] for data in (b"1", b"1", b"2")]
    client.delete(f"{prefix}{FILES}/{ids[0]}")
    client.post(f"{prefix}/research/collections", json={"name": "c"})
    asked = client.post(f"{prefix}/research/brainstorm", json={"query": "vague"}).json["id"]
    account, others = scopes.get(name).owner, scopes.get("other").owner
    assert (len(owned.files(account)), len(owned.collections(account))) == (5, 1)
    assert owned.session(account, asked)
    assert kept(tmp_path) == 3
    scopes.get(name).reset("counters")
    assert len(owned.files(account)) == 5
    scopes.get(name).reset()
    assert not owned.files(account)
    assert not owned.collections(account)
    with pytest.raises(LookupError):
        owned.session(account, asked)
    assert [file.id for file in owned.files(others)] == [other]
    assert kept(tmp_path) == 1
    scopes.remove("other")
    assert (len(owned.files(others)), kept(tmp_path)) == (0, 0)


def test_what_cannot_be_removed_is_logged_and_hinders_no_reset(
    scopes: Scopes, caplog: pytest.LogCaptureFixture
) -> None:
    removed = threading.Event()

    def fail() -> None:
        raise OSError("no right")

    scope = scopes.get()
    scope.belongings.add(fail)
    scope.belongings.add(removed.set)
    scope.reset()
    assert removed.is_set()
    assert "no right" in caplog.text
    caplog.clear()
    scope.reset()
    assert not caplog.text


def test_no_reply_is_used_up_by_files_but_faults_are(client: FlaskClient, scopes: Scopes) -> None:
    rule = scopes.get().add(Rule(conditions=conditions(path=FILES), replies=(Reply(text="never"),)))
    assert upload(client).json["filename"] == "a.txt"
    assert scopes.get().uses(rule.id) == 0
    instead = Fault(kind="status", status=200, body={"id": "mine"})
    scopes.get().add(Rule(conditions=conditions(path=FILES), faults=(instead,)))
    assert upload(client).json == {"id": "mine"}


@pytest.mark.parametrize("path", ["/research", "/agents/research"])
def test_every_model_name_is_taken(client: FlaskClient, path: str) -> None:
    answer = client.post(path, json={"query": "Why?", "model": "nobody-knows-it"})
    assert answer.status_code == 200, answer.text
    assert client.get(f"{path}/{answer.json['id']}").json["status"] == "completed"
