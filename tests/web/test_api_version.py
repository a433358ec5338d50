"""Versions of the API: what there is, which one is spoken, and what each of them shows."""

from __future__ import annotations

import copy
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from hypothesis import given
from hypothesis import strategies as st

from caesar_server.app import create_app
from caesar_server.contract import ChoiceFinished, Completed, ContentDelta, ResultFound
from caesar_server.errors import SettingsError
from caesar_server.registry import Registry
from caesar_server.settings import Settings
from caesar_server.testing import scripted_backend
from caesar_server.web.access.key_file import edit_key_file
from caesar_server.web.access.keys import API_VERSIONS, NEWEST_VERSION, Key, hash_key
from caesar_server.web.api_version.known import known_versions
from caesar_server.web.api_version.negotiation import (
    asked_version,
    current_version,
    note_version,
    version_for,
    version_to_remember,
)
from caesar_server.web.api_version.version import Version, Versions

OLD, NEW = "2025-08-08", "2025-11-27"
SCRIPT = (
    ResultFound("r1", "One", "https://one.test/", None, 1),
    ResultFound("r2", "Two", "https://two.test/", 0.25, 2),
    ContentDelta("text [1][2]"),
    ChoiceFinished(),
    Completed(details={"loops_consumed": 2}),
)
#: A module as somebody would write it for the next version.
NEXT = """
from caesar_server.web.api_version.version import Version


def request(name, body):
    words = {"question": "query", "depth": "reasoning_loops"}
    return {words.get(key, key): value for key, value in body.items()}


def response(name, body):
    if name != "research":
        return dict(body)
    sources = [result["url"] for result in body["results"]]
    return {"id": body["id"], "state": body["status"], "answer": body["content"], "from": sources}


VERSION = Version("2030-01-01", request, response)
"""


def research(**fields: Any) -> dict[str, Any]:
    return {
        "id": "j",
        "created_at": "2025-09-14T12:00:00.000Z",
        "status": "completed",
        "query": "q",
        "reasoning_loops_consumed": 2,
        "running_time": 34,
        "results": [],
        "content": "text",
        "transformed_content": None,
        **fields,
    }


def shown(date: str, name: str, body: dict[str, Any]) -> dict[str, Any]:
    version = known_versions().find(date)
    assert version is not None
    before = copy.deepcopy(body)
    told = version.response(name, body)
    assert body == before
    return told


def plain(date: str) -> Version:
    return Version(date, lambda name, body: dict(body), lambda name, body: dict(body))


def test_the_known_versions_are_those_that_keys_may_be_pinned_to() -> None:
    versions = known_versions()
    assert versions.dates == API_VERSIONS == (OLD, NEW)
    assert versions.newest.date == NEWEST_VERSION == NEW
    assert versions.find("2024-01-01") is versions.find(None) is versions.find("") is None


def test_versions_are_in_the_order_of_their_dates() -> None:
    versions = Versions.of([plain("2025-11-27"), plain("2026-01-01"), plain("2025-08-08")])
    assert versions.dates == ("2025-08-08", "2025-11-27", "2026-01-01")
    assert versions.newest.date == "2026-01-01"


def test_a_date_is_one_and_stands_once() -> None:
    with pytest.raises(ValueError, match="YYYY-MM-DD, not 'v2'"):
        plain("v2")
    for versions in ([], [plain(OLD), plain(OLD)]):
        with pytest.raises(ValueError, match="each date once"):
            Versions.of(versions)


def test_the_new_form_has_no_scores_and_all_statuses() -> None:
    results = [{"id": "r", "score": 0.5, "citation_index": 1}, {"id": "s", "score": None}]
    for status in ("searching", "analyzing", "failed"):
        body = research(status=status, results=results)
        told = research(status=status, results=[{"id": "r", "citation_index": 1}, {"id": "s"}])
        assert shown(NEW, "research", body) == told
    assert shown(NEW, "result", results[0]) == {"id": "r", "citation_index": 1}
    assert shown(NEW, "created", {"id": "j", "status": "queued"}) == {"id": "j", "status": "queued"}


@pytest.mark.parametrize(
    ("status", "told"),
    [
        ("queued", "queued"),
        ("searching", "researching"),
        ("researching", "researching"),
        ("analyzing", "researching"),
        ("summarizing", "researching"),
        ("completed", "completed"),
        ("failed", "failed"),
    ],
)
def test_the_old_form_has_the_statuses_that_its_clients_know(status, told) -> None:
    assert shown(OLD, "research", research(status=status))["status"] == told
    assert shown(OLD, "created", {"id": "j", "status": status}) == {"id": "j", "status": told}


def test_the_old_form_counts_compute_units() -> None:
    told = shown(OLD, "research", research(completed_at="then", error="because"))
    assert told == {
        "id": "j",
        "created_at": "2025-09-14T12:00:00.000Z",
        "status": "completed",
        "query": "q",
        "results": [],
        "content": "text",
        "transformed_content": None,
        "completed_at": "then",
        "error": "because",
        "compute_units_consumed": 2,
    }


def test_the_old_form_always_has_scores() -> None:
    results = [{"id": "a", "score": None}, {"id": "b", "score": 0.9}, {"id": "c"}, {"id": "d"}]
    told = shown(OLD, "research", research(results=results))["results"]
    assert [result["score"] for result in told] == [1.0, 0.9, 0.5, 0.25]
    assert shown(OLD, "result", {"id": "a", "score": None})["score"] == 1.0
    assert shown(OLD, "result", {"id": "a", "score": 0.5})["score"] == 0.5


@given(st.lists(st.none() | st.floats(-1, 2), max_size=300))
def test_scores_of_the_old_form_are_from_0_to_1_and_fall(scores) -> None:
    results = [{"id": str(place), "score": score} for place, score in enumerate(scores)]
    told = [r["score"] for r in shown(OLD, "research", research(results=results))["results"]]
    assert all(isinstance(score, float) and 0 <= score <= 1 for score in told)
    made_up = [
        score for score, given_score in zip(told, scores, strict=True) if given_score is None
    ]
    assert all(score > 0 for score in made_up)
    assert made_up == sorted(set(made_up), reverse=True)


@pytest.mark.parametrize("date", API_VERSIONS)
@pytest.mark.parametrize("name", ["update", "brainstorm", "no such name"])
def test_a_body_without_differences_stays_as_it_is(date, name) -> None:
    body = {"status": "searching", "score": 1, "compute_units": 4}
    assert shown(date, name, body) == body
    version = known_versions().find(date)
    assert version is not None
    assert version.request("research", body) == body


@pytest.mark.parametrize(("date", "left"), [(OLD, {"x": "1"}), (NEW, {"x": "1", "format": "pdf"})])
def test_the_old_form_has_no_format_of_a_results_content(date, left) -> None:
    version = known_versions().find(date)
    assert version is not None
    assert version.request("result_content_query", {"x": "1", "format": "pdf"}) == left
    assert version.request("research", {"format": "pdf"}) == {"format": "pdf"}


MakeClient = Callable[..., FlaskClient]


@pytest.fixture
def make_client() -> Iterator[MakeClient]:
    apps = []

    def make(versions: Versions | None = None, **settings: Any) -> FlaskClient:
        values = Settings(default_backend="scripted", **settings)
        backend = scripted_backend(SCRIPT)
        app = create_app(values, Registry.of({"scripted": backend}, values), versions=versions)
        apps.append(app)
        return app.test_client()

    yield make
    for app in apps:
        app.extensions["caesar_server"].close()


def pinned_key(path: Path, date: str) -> dict[str, str]:
    """Put a key into a file and return the headers that show it."""
    secret = f"a key that is pinned to {date}".replace(" ", "-")
    key = Key(id=f"k{date}", sha256=hash_key(secret), account="acme", api_version=date)
    edit_key_file(path, lambda keys: (*keys, key))
    return {"Authorization": f"Bearer {secret}"}


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/healthz", None, 200),
        ("GET", "/openapi.json", None, 200),
        ("GET", "/no/such/path", None, 404),
        ("GET", "/compat/completions", None, 405),
        ("POST", "/compat/completions", {"model": "m", "prompt": "p"}, 200),
        ("POST", "/compat/completions", {"model": "m", "prompt": "p", "stream": True}, 200),
        ("POST", "/compat/completions", {"model": "m"}, 400),
        ("GET", "/research/unknown", None, 404),
    ],
)
def test_every_answer_names_its_version(make_client, method, path, body, status) -> None:
    client = make_client()
    for asked, told in (({}, NEW), ({"API-Version": OLD}, OLD), ({"api-version": f" {NEW} "}, NEW)):
        response = client.open(path, method=method, json=body, headers=asked)
        assert response.status_code == status
        assert response.headers.getlist("API-Version") == [told]
        response.close()


def test_an_answer_without_a_key_names_the_default(make_client, tmp_path) -> None:
    path = tmp_path / "keys.json"
    headers = pinned_key(path, OLD)
    client = make_client(keys_file=str(path))
    response = client.get("/compat/models")
    assert (response.status_code, response.headers["API-Version"]) == (401, NEW)
    assert client.get("/compat/models", headers=headers).headers["API-Version"] == OLD
    asked = {**headers, "API-Version": NEW}
    assert client.get("/compat/models", headers=asked).headers["API-Version"] == NEW
    # who may not come in is not told what is known
    response = client.get("/compat/models", headers={"API-Version": "1999-01-01"})
    assert (response.status_code, response.headers["API-Version"]) == (401, NEW)


def test_the_setting_is_for_those_who_name_none(make_client, tmp_path) -> None:
    path = tmp_path / "keys.json"
    headers = pinned_key(path, NEW)
    client = make_client(keys_file=str(path), api_version=OLD)
    assert client.get("/healthz").headers["API-Version"] == OLD
    assert client.get("/compat/models", headers=headers).headers["API-Version"] == NEW


def test_a_setting_that_is_no_version_is_refused(make_client) -> None:
    with pytest.raises(SettingsError, match="api_version: '2024-01-01' is not known; take 2025-08"):
        make_client(api_version="2024-01-01")


@pytest.mark.parametrize(
    ("value", "quoted"),
    [
        ("2024-01-01", "2024-01-01"),
        ("latest", "latest"),
        (f"{OLD}, {NEW}", f"{OLD}, {NEW}"),
        ("x\x01y", r"x\x01y"),
        ("9" * 500, "9" * 40),
    ],
)
def test_an_unknown_version_is_refused_by_all_but_the_operators_paths(
    make_client, value, quoted
) -> None:
    client = make_client()
    headers = {"API-Version": value}
    told = f'Unsupported API version "{quoted}"; known: {OLD}, {NEW}'
    response = client.get("/research/unknown", headers=headers)
    assert (response.status_code, response.json) == (400, {"error": told})
    assert response.headers["API-Version"] == NEW
    response = client.post("/compat/completions", json={}, headers=headers)
    assert response.status_code == 400
    assert response.json["error"]["message"] == told
    assert response.json["error"]["param"] == "API-Version"
    for path in ("/healthz", "/readyz", "/metrics"):
        response = client.get(path, headers=headers)
        assert response.status_code == 200
        assert response.headers["API-Version"] == NEW


@pytest.mark.parametrize("value", ["", "  "])
def test_an_empty_header_is_none(make_client, value) -> None:
    response = make_client().get("/compat/models", headers={"API-Version": value})
    assert (response.status_code, response.headers["API-Version"]) == (200, NEW)


@pytest.mark.parametrize(
    ("header", "remembered", "default", "found"),
    [
        (NEW, OLD, OLD, NEW),
        (None, OLD, NEW, OLD),
        (None, None, OLD, OLD),
        (None, None, None, NEW),
        (None, "2024-01-01", OLD, OLD),
        ("", OLD, None, OLD),
    ],
)
def test_the_version_of_a_job(make_client, header, remembered, default, found) -> None:
    app = make_client(api_version=default).application
    headers = {} if header is None else {"API-Version": header}
    with app.test_request_context(headers=headers):
        version = version_for(remembered)
        assert version.date == found
        note_version(version)
        assert current_version() == version
        assert app.process_response(app.response_class()).headers["API-Version"] == found


@pytest.mark.parametrize(
    ("header", "compute_units", "remembered"),
    [(None, True, OLD), (None, False, None), (OLD, True, None), (NEW, True, None)],
)
def test_what_a_job_remembers(make_client, header, compute_units, remembered) -> None:
    headers = {} if header is None else {"API-Version": header}
    with make_client().application.test_request_context(headers=headers):
        assert version_to_remember(compute_units=compute_units) == remembered
        assert (asked_version() is None) == (header is None)


def completed(client: FlaskClient, job_id: str, **headers: str) -> Any:
    """Return the object of a job once it has ended."""
    deadline = time.monotonic() + 60
    while True:
        response = client.get(f"/research/{job_id}", headers=headers)
        body = response.get_json()
        if body.get("status", body.get("state")) in ("completed", "failed"):
            return response
        assert time.monotonic() < deadline, body


def test_a_job_is_shown_as_its_reader_asks(make_client) -> None:
    client = make_client()
    made = client.post("/research", json={"query": "q", "compute_units": 4})
    assert (made.status_code, made.headers["API-Version"]) == (200, OLD)
    old = completed(client, made.json["id"])
    assert old.headers["API-Version"] == OLD
    assert old.json["compute_units_consumed"] == 2
    assert [result["score"] for result in old.json["results"]] == [1.0, 0.25]
    new = completed(client, made.json["id"], **{"API-Version": NEW})
    assert new.headers["API-Version"] == NEW
    assert new.json["reasoning_loops_consumed"] == 2
    assert [set(result) for result in new.json["results"]] == [
        {"id", "title", "url", "citation_index"}
    ] * 2


def test_another_version_is_one_module(make_client, tmp_path, monkeypatch) -> None:
    from caesar_server.web.api_version import versions

    (tmp_path / "v2030_01_01.py").write_text(NEXT)
    monkeypatch.setattr(versions, "__path__", [*versions.__path__, str(tmp_path)])
    try:
        known = known_versions()
    finally:
        sys.modules.pop(f"{versions.__name__}.v2030_01_01", None)
        vars(versions).pop("v2030_01_01", None)
    assert known.dates == (OLD, NEW, "2030-01-01")
    client = make_client(known)
    # the newest is spoken unless somebody says otherwise
    made = client.post("/research", json={"question": "q", "depth": 3})
    assert (made.status_code, made.headers["API-Version"]) == (200, "2030-01-01"), made.json
    told = completed(client, made.json["id"])
    assert told.headers["API-Version"] == "2030-01-01"
    assert told.json == {
        "id": made.json["id"],
        "state": "completed",
        "answer": "text [1][2]",
        "from": ["https://one.test/", "https://two.test/"],
    }
    assert completed(client, told.json["id"], **{"API-Version": NEW}).json["query"] == "q"
    page = client.get("/research").json
    assert [set(item) for item in page["data"]] == [{"id", "state", "answer", "from"}]
    refused = client.get("/research", headers={"API-Version": "2031-01-01"})
    assert refused.json["error"].endswith(f"known: {OLD}, {NEW}, 2030-01-01")


def test_keys_may_be_pinned_to_it_too(tmp_path) -> None:
    (tmp_path / "v2030_01_01.py").write_text(NEXT)
    code = (
        "import sys\n"
        "from caesar_server.web.api_version import versions\n"
        "versions.__path__.append(sys.argv.pop(1))\n"
        "from caesar_server.cli import main\n"
        "main()\n"
    )
    keys_file = str(tmp_path / "keys.json")
    create = ("keys", "create", "--version-pin", "2030-01-01", "--keys-file", keys_file)

    def run(*prefix: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *prefix], cwd=tmp_path, capture_output=True, text=True, timeout=60
        )

    result = run("-c", code, str(tmp_path), *create)
    assert result.returncode == 0, result.stderr
    assert '"api_version": "2030-01-01"' in Path(keys_file).read_text()
    # once the module is gone, nobody is let in by another version than the key's
    result = run("-m", "caesar_server", "keys", "list", "--keys-file", keys_file)
    assert result.returncode != 0
    assert "2030-01-01" in result.stderr
    assert "keys_file:" in result.stderr
