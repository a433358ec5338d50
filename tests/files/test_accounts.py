"""What is another account's is not there, on whatever route."""

from __future__ import annotations

import io
from typing import Any

import pytest

FILES, COLLECTIONS = "/research/files", "/research/collections"
CHAT = "/compat/chat/completions"


@pytest.fixture
def two(serve_files: Any, stored: str) -> Any:
    """An app with two accounts, of which one has a file in a collection."""
    served = serve_files(accounts=("mine", "theirs"), store=stored)
    served.mine, served.theirs = served.headers["mine"], served.headers["theirs"]
    served.collection_id = served.collection(headers=served.mine)
    served.file = served.upload(b"private", collection_id=served.collection_id, headers=served.mine)
    return served


def test_every_route_asks_for_a_key(two: Any) -> None:
    file, collection = f"{FILES}/{two.file['id']}", f"{COLLECTIONS}/{two.collection_id}"
    for method, path in (
        *(("post", FILES), ("get", FILES), ("get", file), ("delete", file)),
        *(("get", f"{file}/content"), ("post", COLLECTIONS), ("get", COLLECTIONS)),
        *(("get", collection), ("patch", collection), ("delete", collection)),
    ):
        assert getattr(two.client, method)(path).status_code == 401, (method, path)


def test_others_see_nothing_and_change_nothing(two: Any) -> None:
    file, collection = f"{FILES}/{two.file['id']}", f"{COLLECTIONS}/{two.collection_id}"
    for method, path, body in (
        *(("get", file, None), ("delete", file, None), ("get", f"{file}/content", None)),
        *(("get", collection, None), ("delete", collection, None)),
        *(("patch", collection, {"name": "x"}), ("patch", collection, {"name": 1})),
    ):
        reply = getattr(two.client, method)(path, json=body, headers=two.theirs)
        assert (reply.status_code, reply.json) == (404, {"error": "Resource not found"}), path
    for path in (FILES, COLLECTIONS, f"{FILES}?collection_id={two.collection_id}"):
        listed = two.client.get(path, headers=two.theirs).json
        assert (listed["data"], listed["pagination"]["total"]) == ([], 0)
    assert two.client.get(file, headers=two.mine).json == two.file
    assert two.client.get(f"{file}/content", headers=two.mine).data == b"private"
    assert two.client.get(collection, headers=two.mine).json["name"] == "set"


def test_others_cannot_put_files_into_a_collection(two: Any) -> None:
    reply = two.client.post(
        FILES,
        data={"file": (io.BytesIO(b"x"), "x"), "collection_id": two.collection_id},
        headers=two.theirs,
    )
    assert reply.status_code == 400
    assert two.collection_id in reply.json["error"]
    assert len(two.kept()) == 1


def test_equal_bytes_of_two_accounts_have_nothing_in_common(two: Any) -> None:
    theirs = two.upload(b"private", headers=two.theirs)
    assert len(two.kept()) == 2
    two.client.delete(f"{FILES}/{theirs['id']}", headers=two.theirs)
    reply = two.client.get(f"{FILES}/{two.file['id']}/content", headers=two.mine)
    assert reply.data == b"private"


def test_others_cannot_ask_about_a_file(two: Any) -> None:
    file_part = {"type": "file", "file": {"file_id": two.file["id"]}}
    content = [{"type": "text", "text": "q"}, file_part]
    body = {"model": "m", "messages": [{"role": "user", "content": content}]}
    assert "private" in two.client.post(CHAT, json=body, headers=two.mine).text
    reply = two.client.post(CHAT, json=body, headers=two.theirs)
    assert reply.status_code == 400
    assert two.file["id"] in reply.json["error"]["message"]
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": "q"}],
        "metadata": {"collection_ids": [two.collection_id]},
    }
    assert "private" in two.client.post(CHAT, json=body, headers=two.mine).text
    reply = two.client.post(CHAT, json=body, headers=two.theirs)
    assert (reply.status_code, reply.json["error"]["param"]) == (400, "metadata.collection_ids")


def test_quotas_are_of_each_account(serve_files: Any) -> None:
    served = serve_files(account_files=1, accounts=("mine", "theirs"))
    mine, theirs = served.headers["mine"], served.headers["theirs"]
    served.upload(b"a", headers=mine)
    served.upload(b"b", headers=theirs)
    reply = served.client.post(FILES, data={"file": (io.BytesIO(b"c"), "c")}, headers=mine)
    assert reply.status_code == 400
