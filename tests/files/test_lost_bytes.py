"""Bytes that the server has lost, and bytes that somebody deletes while they are asked for."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from caesar_server.store.blobs.directory import DirectoryBlobs

FILES = "/research/files"
CHAT = "/compat/chat/completions"


def lose(served: Any) -> None:
    """Lose the bytes of the one file."""
    (path,) = served.kept()
    path.unlink()


def content(served: Any, file_id: str) -> Any:
    return served.client.get(f"{FILES}/{file_id}/content")


def test_an_upload_of_the_same_bytes_brings_them_back(
    served: Any, caplog: pytest.LogCaptureFixture
) -> None:
    first = served.upload(b"hello")["id"]
    lose(served)
    second = served.upload(b"hello")["id"]
    third = served.upload(b"hello")["id"]
    assert [content(served, one).data for one in (first, second, third)] == [b"hello"] * 3
    assert len(served.kept()) == 1
    assert "bytes are missing" in caplog.text
    for one in (first, second):
        served.client.delete(f"{FILES}/{one}")
    assert content(served, third).data == b"hello"
    served.client.delete(f"{FILES}/{third}")
    assert served.kept() == []


def test_bytes_of_another_account_stay_its_own(serve_files: Any) -> None:
    served = serve_files(accounts=("a", "b"))
    ours, theirs = served.headers["a"], served.headers["b"]
    file_id = served.upload(b"hello", headers=ours)["id"]
    lose(served)
    served.upload(b"hello", headers=theirs)
    reply = served.client.get(f"{FILES}/{file_id}/content", headers=ours)
    assert reply.status_code == 503


def test_two_uploads_at_once_bring_them_back_once(
    served: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = served.upload(b"hello")["id"]
    lose(served)
    both, has, ids = threading.Barrier(2, timeout=60), DirectoryBlobs.has, []

    def has_for_both(blobs: DirectoryBlobs, key: str) -> bool:
        found = has(blobs, key)
        both.wait()
        return found

    def upload() -> None:
        client = served.app.test_client()
        body = b"--b\r\nContent-Disposition: form-data; name=file\r\n\r\nhello\r\n--b--\r\n"
        reply = client.post(FILES, data=body, content_type="multipart/form-data; boundary=b")
        ids.append(reply.json["id"])

    monkeypatch.setattr(DirectoryBlobs, "has", has_for_both)
    threads = [threading.Thread(target=upload) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [content(served, one).data for one in (first, *ids)] == [b"hello"] * 3
    assert len(served.kept()) == 1


def test_a_question_about_lost_bytes_says_so(served: Any, caplog: pytest.LogCaptureFixture) -> None:
    file_id = served.upload(b"hello")["id"]
    lose(served)
    part = {"type": "file", "file": {"file_id": file_id}}
    for model in ("reading", "blind"):
        caplog.clear()
        body = {"model": model, "messages": [{"role": "user", "content": [part]}]}
        reply = served.client.post(CHAT, json=body)
        error = reply.json["error"]
        assert (reply.status_code, error["code"]) == (500, "file_bytes_missing"), model
        assert "are missing on the server" in error["message"]
        assert f"the bytes of file {file_id} are missing" in caplog.text


@pytest.mark.parametrize("method", ["get", "head"])
def test_lost_bytes_are_503(plain: Any, method: str) -> None:
    file_id = plain.upload(b"hello")["id"]
    lose(plain)
    reply = getattr(plain.client, method)(f"{FILES}/{file_id}/content")
    assert (reply.status_code, reply.headers["Retry-After"]) == (503, "5")
    if method == "get":
        assert reply.json["error"] == "The server cannot store files now; try again in a moment"


@pytest.mark.parametrize("method", ["get", "head"])
def test_a_file_that_is_deleted_while_it_is_asked_for_is_404(
    served: Any, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file_id = served.upload(b"hello")["id"]
    read, deleted = DirectoryBlobs.read, []

    def read_late(blobs: DirectoryBlobs, *args: Any) -> Any:
        if not deleted:
            deleted.append(served.app.test_client().delete(f"{FILES}/{file_id}").status_code)
        return read(blobs, *args)

    monkeypatch.setattr(DirectoryBlobs, "read", read_late)
    reply = getattr(served.client, method)(f"{FILES}/{file_id}/content")
    assert (reply.status_code, deleted) == (404, [200])


def test_a_head_has_the_length_and_no_body(served: Any) -> None:
    file_id = served.upload(b"hello")["id"]
    reply = served.client.head(f"{FILES}/{file_id}/content")
    assert (reply.status_code, reply.content_length, reply.data) == (200, 5, b"")
