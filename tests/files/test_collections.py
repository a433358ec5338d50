"""Collections: create, list, retrieve, change, delete."""

from __future__ import annotations

from typing import Any

import pytest

COLLECTIONS = "/research/collections"


def test_a_collection_comes_back_as_it_was_made(served: Any) -> None:
    made = served.client.post(COLLECTIONS, json={"name": "Reports", "description": "Of 2025"})
    assert made.status_code == 200
    assert set(made.json) == {"id", "name", "description", "created_at", "updated_at"}
    assert (made.json["name"], made.json["description"]) == ("Reports", "Of 2025")
    assert made.json["created_at"] == made.json["updated_at"]
    assert served.client.get(f"{COLLECTIONS}/{made.json['id']}").json == made.json


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "name: required and missing"),
        ({"name": None}, "name: expected a string, got null"),
        ({"name": 5}, 'incorrect JSON type for field "name"'),
        ({"name": ""}, "not blank"),
        ({"name": " \n "}, "not blank"),
        ({"name": "n" * 256}, "at most 255 characters"),
        ({"name": "a\0b"}, "without control characters"),
        ({"name": "a\nb"}, "without control characters"),
        ({"name": "\ud800"}, "without control characters"),
        ({"name": "gpj.\u202eexe"}, "without control characters"),
        ({"name": "\u2066a"}, "without control characters"),
        ({"name": "a", "description": 5}, 'incorrect JSON type for field "description"'),
        ({"name": "a", "description": "d" * 10_001}, "at most 10000 characters"),
        ({"name": "a", "description": "\0"}, "without control characters"),
    ],
)
def test_wrong_values_are_named(served: Any, body: dict[str, Any], words: str) -> None:
    reply = served.client.post(COLLECTIONS, json=body)
    assert reply.status_code == 400
    assert words in reply.json["error"]
    assert served.client.get(COLLECTIONS).json["data"] == []


def test_what_is_long_but_not_too_long_is_taken(served: Any) -> None:
    body = {"name": "ü" * 255, "description": "line\nline\t" + "d" * 9_000, "more": 1}
    made = served.client.post(COLLECTIONS, json=body).json
    assert (made["name"], made["description"]) == (body["name"], body["description"])


def test_an_account_has_so_many_collections_and_no_more(serve_files: Any, stored: str) -> None:
    served = serve_files(store=stored, account_collections=2, accounts=("mine", "theirs"))
    headers = served.headers["mine"]
    first, _ = (served.collection(name, headers=headers) for name in ("a", "b"))
    reply = served.client.post(COLLECTIONS, json={"name": "c"}, headers=headers)
    assert (reply.status_code, reply.json) == (
        400,
        {
            "error": "the account has no room for another collection: it may have 2; delete some "
            "with DELETE /research/collections/{id}"
        },
    )
    served.collection(headers=served.headers["theirs"])
    assert served.client.delete(f"{COLLECTIONS}/{first}", headers=headers).status_code == 200
    served.collection("c", headers=headers)
    assert served.client.get(COLLECTIONS, headers=headers).json["pagination"]["total"] == 2


def test_without_a_limit_there_may_be_any_number(serve_files: Any) -> None:
    served = serve_files(account_collections=0)
    for _ in range(3):
        served.collection()


def test_a_change_leaves_the_rest(served: Any) -> None:
    path = f"{COLLECTIONS}/{served.collection('old', description='d')}"
    before = served.client.get(path).json
    changed = served.client.patch(path, json={"name": "new"}).json
    assert (changed["name"], changed["description"]) == ("new", "d")
    assert changed["created_at"] == before["created_at"]
    assert changed["updated_at"] >= before["updated_at"]
    assert served.client.patch(path, json={"description": None}).json["description"] is None
    assert served.client.patch(path, json={"description": "e"}).json["description"] == "e"
    assert served.client.get(path).json["name"] == "new"


def test_a_change_of_nothing_changes_nothing(served: Any) -> None:
    path = f"{COLLECTIONS}/{served.collection()}"
    before = served.client.get(path).json
    reply = served.client.patch(path, json={})
    assert (reply.status_code, reply.json) == (200, before)


@pytest.mark.parametrize("body", [{"name": None}, {"name": " "}, {"name": 1}, {"description": []}])
def test_a_wrong_change_is_refused(served: Any, body: dict[str, Any]) -> None:
    path = f"{COLLECTIONS}/{served.collection()}"
    before = served.client.get(path).json
    assert served.client.patch(path, json=body).status_code == 400
    assert served.client.get(path).json == before


def test_a_deleted_collection_leaves_its_files(served: Any) -> None:
    collection = served.collection()
    file = served.upload(collection_id=collection)
    path = f"{COLLECTIONS}/{collection}"
    assert served.client.delete(path).json == {"id": collection, "deleted": True}
    assert served.client.get(f"/research/files/{file['id']}").json["collection_id"] is None
    for reply in (
        served.client.get(path),
        served.client.delete(path),
        served.client.patch(path, json={"name": "x"}),
    ):
        assert (reply.status_code, reply.json) == (404, {"error": "Resource not found"})


def test_collections_are_listed_in_pages(served: Any) -> None:
    made = [served.collection(f"c{number}") for number in range(3)][::-1]
    first = served.client.get(f"{COLLECTIONS}?limit=2").json
    second = served.client.get(f"{COLLECTIONS}?limit=2&page=2").json
    assert [one["id"] for one in (*first["data"], *second["data"])] == made
    assert (first["pagination"]["has_next"], second["pagination"]["has_next"]) == (True, False)
    assert first["pagination"]["total"] == 3


def test_fields_that_are_not_known_can_be_refused(serve_files: Any) -> None:
    served = serve_files(unknown_fields="reject")
    reply = served.client.post(COLLECTIONS, json={"name": "a", "nmae": "b"})
    assert (reply.status_code, reply.json) == (400, {"error": "nmae: unknown field"})
