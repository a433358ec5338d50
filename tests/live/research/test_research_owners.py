"""What is of another account is not there: on every route, by every method, as a stream too."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from caesar_server.app import create_app
from caesar_server.settings import Settings

NOT_THERE = {"error": "Resource not found"}
#: Bodies with which the requests would be good ones, by the last part of their path.
BODIES = {
    "updates": {"update_content": "Look elsewhere"},
    "chat": {"content": "And then?"},
    "<collection_id>": {"name": "Mine"},
}
#: A variable of a route, whatever it has to look like.
VARIABLE = re.compile(r"<(?:\w+:)?(\w+)>")


def routes_of_one_thing() -> list[tuple[str, str]]:
    """Return method and path of each route whose path names something that has an owner."""
    app = create_app(Settings())
    try:
        return sorted(
            (method, rule.rule)
            for rule in app.url_map.iter_rules()
            if "<" in rule.rule and rule.rule.startswith(("/research", "/agents"))
            for method in (rule.methods or set()) - {"OPTIONS"}
        )
    finally:
        app.extensions["caesar_server"].close()


class Things:
    """What an account has: the value of each variable of a path."""

    def __init__(self, pair: Any, account: str) -> None:
        self.job = pair.create(account, notes=1, hold=f"go-{account}")
        pair.noted(self.job, "began")
        self.completion = self._completion(pair, account)
        upload = pair.upload(account, "mine.txt", b"Mine alone")
        collection = pair.send(account, "POST", "/research/collections", {"name": "Mine"})
        self.ids = {
            "job_id": self.job,
            "result_id": "r1",
            "file_id": upload.body["id"],
            "collection_id": collection.body["id"],
            "message_id": self.job,
        }

    @staticmethod
    def _completion(pair: Any, account: str) -> str:
        body = {"model": "caesar-research", "prompt": json.dumps({"notes": 1})}
        return str(pair.send(account, "POST", "/compat/completions", body).body["id"])

    def path(self, rule: str) -> str:
        return VARIABLE.sub(lambda match: self.ids[match[1]], rule)


@pytest.fixture(scope="module")
def owner(pair: Any) -> str:
    return str(pair.account())


@pytest.fixture(scope="module")
def things(pair: Any, owner: str) -> Iterator[Things]:
    yield Things(pair, owner)
    pair.release(f"go-{owner}")


@pytest.fixture(scope="module")
def stranger(pair: Any) -> str:
    return str(pair.account())


@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
def test_it_is_not_there_for_a_stranger(pair, things, stranger, accept) -> None:
    routes = routes_of_one_thing()
    assert len(routes) > 30
    for number, (method, rule) in enumerate(routes):
        body = BODIES.get(rule.rpartition("/")[2]) if method in ("POST", "PATCH") else None
        path = things.path(rule)
        worker = pair.workers[number % 2]
        headers = {"Accept": accept}
        answer = pair.send(stranger, method, path, body, headers=headers, worker=worker)
        assert answer.status == 404, (method, rule, answer)
        if method != "HEAD":
            assert answer.body == NOT_THERE, (method, rule)
        if method == "GET" and "job_id" in rule:
            of_completion = path.replace(things.job, things.completion)
            assert pair.send(stranger, "GET", of_completion, headers=headers).status == 404, rule


def test_all_of_it_is_still_there_for_its_owner(pair, things, owner, stranger) -> None:
    for rule in ("/research/<job_id>", "/research/<job_id>/events", "/research/files/<file_id>"):
        assert pair.send(owner, "GET", things.path(rule)).status == 200
        assert pair.send(stranger, "GET", things.path(rule)).status == 404
    assert pair.job(owner, things.job)["status"] == "searching"
    updates = pair.send(owner, "GET", f"/research/{things.job}/updates")
    assert updates.body == []


def test_lists_hold_what_is_one_s_own_alone(pair, things, owner, stranger) -> None:
    for path, own in (
        ("/research", things.job),
        ("/research/files", things.ids["file_id"]),
        ("/research/collections", things.ids["collection_id"]),
    ):
        mine = pair.send(owner, "GET", path).body
        assert own in {one["id"] for one in mine["data"]}
        others = pair.send(stranger, "GET", path).body
        assert (others["data"], others["pagination"]["has_next"]) == ([], False)
        assert others["pagination"].get("total", 0) == 0


@pytest.mark.parametrize("name", ["files", "collection_ids"])
def test_what_others_uploaded_is_unknown_in_a_request(pair, things, stranger, name) -> None:
    id = things.ids["file_id" if name == "files" else "collection_id"]
    answer = pair.send(stranger, "POST", "/research", {"query": "{}", name: [id]})
    assert answer.status == 400
    unknown = "00000000-0000-4000-8000-000000000000"
    other = pair.send(stranger, "POST", "/research", {"query": "{}", name: [unknown]})
    # in the same words as what nobody has
    assert answer.body["error"].replace(id, unknown) == other.body["error"]


def test_without_a_key_nothing_is_told(pair, things) -> None:
    for path in (f"/research/{things.job}", "/research/none", "/research"):
        answer = pair.send("", "GET", path)
        assert (answer.status, answer.body) == (401, {"error": "Missing API key"})
    with pair.events("", things.job) as stream:
        assert stream.status == 401
