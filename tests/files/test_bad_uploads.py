"""Bad uploads: 400 with a clear text, and nothing is kept."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest

FILES = "/research/files"
LIMIT = 100_000


@pytest.fixture
def small(serve_files: Any) -> Any:
    return serve_files(max_file_bytes=LIMIT)


def refused(served: Any, reply: Any, *words: str) -> None:
    """Check that an upload was refused in these words, and left nothing."""
    assert reply.status_code == 400, reply.text
    assert list(reply.json) == ["error"]
    for word in words:
        assert word in reply.json["error"]
    assert served.kept() == []
    assert served.client.get(FILES).json["data"] == []


Body = Callable[[Any], bytes]
BODIES: dict[str, tuple[Body, str]] = {
    "no part": (lambda f: f.end, "file: required and missing"),
    "another part": (lambda f: f.part("purpose", b"x") + f.end, "file: required and missing"),
    "another name": (
        lambda f: f.part("document", b"x", "a.txt") + f.end,
        "document: unexpected file; its part must have the name 'file'",
    ),
    "two files": (
        lambda f: f.part("file", b"x", "a.txt") + f.part("file", b"y", "b.txt") + f.end,
        "file: expected one part of this name, got a second",
    ),
    "an empty file": (lambda f: f.part("file", b"", "a.txt") + f.end, "the file is empty"),
    "over the limit": (
        lambda f: f.part("file", b"x" * (LIMIT + 1), "a.txt") + f.end,
        f"file: expected at most {LIMIT} bytes",
    ),
    "an unknown collection": (
        lambda f: f.part("file", b"x", "a.txt") + f.part("collection_id", b"c-1") + f.end,
        "collection_id: unknown collection 'c-1'",
    ),
    "an unknown collection before the file": (
        lambda f: f.part("collection_id", b"c-1") + f.part("file", b"x", "a.txt") + f.end,
        "collection_id: unknown collection 'c-1'",
    ),
    "bytes for a collection": (
        lambda f: f.part("collection_id", b"\0\xff\r\n") + f.part("file", b"x") + f.end,
        "collection_id: unknown collection",
    ),
    "two collections": (
        lambda f: f.part("collection_id", b"") * 2 + f.part("file", b"x") + f.end,
        "collection_id: expected one part",
    ),
    "a long collection": (
        lambda f: f.part("collection_id", b"c" * 1000) + f.part("file", b"x") + f.end,
        "collection_id: the field is too long",
    ),
    "a long field": (
        lambda f: f.part("purpose", b"c" * 70_000) + f.part("file", b"x") + f.end,
        "purpose: the field is too long",
    ),
    "many parts": (
        lambda f: f.part("a", b"x") * 10_000 + f.part("file", b"x") + f.end,
        "too many parts",
    ),
    "many small parts": (lambda f: (b"--" + f.boundary + b"\r\n") * 10_000, ""),
    "a long head": (
        lambda f: f.part("file", b"x", "a.txt", b"X: " + b"y" * 20_000) + f.end,
        "too much in the head",
    ),
    "an endless head": (
        lambda f: b"--%b\r\nX: " % f.boundary + b"y" * 200_000,
        "too much in the head",
    ),
    "many headers": (
        lambda f: f.part("file", b"x", "a.txt", *[b"X: y"] * 10_000) + f.end,
        "too much in the head",
    ),
    "a part without a head": (lambda f: b"--%b\r\n\r\nx\r\n" % f.boundary + f.end, "cut off"),
    "a part without a name": (
        lambda f: b"--%b\r\nContent-Disposition: form-data\r\n\r\nx\r\n" % f.boundary + f.end,
        "a part without a name",
    ),
    "a head that is no UTF-8": (
        lambda f: f.part("file", b"x", "a.txt", b"X: \xff") + f.end,
        "malformed",
    ),
    "base64": (
        lambda f: f.part("file", b"eA==", "a.txt", b"Content-Transfer-Encoding: base64") + f.end,
        "Content-Transfer-Encoding 'base64' is not supported",
    ),
    "another boundary": (
        lambda f: (f.part("file", b"x") + f.end).replace(f.boundary, b"b2"),
        "does not begin with the boundary",
    ),
    "another boundary, long": (
        lambda f: b"--b2\r\n" + b"x" * 100_000,
        "does not begin with the boundary",
    ),
    "nothing": (lambda f: b"", ""),
    "JSON": (lambda f: b'{"file": "x"}', "does not begin with the boundary"),
    "cut off in the head": (lambda f: f.part("file", b"x", "a.txt")[:40], "cut off"),
    "cut off in the file": (lambda f: f.part("file", b"x" * 5000, "a.txt")[:2000], "cut off"),
    "cut off before the end": (lambda f: f.part("file", b"x", "a.txt"), "cut off"),
    "cut off in the end": (
        lambda f: f.part("file", b"x", "a.txt") + b"--" + f.boundary,
        "cut off",
    ),
    "much behind the end": (
        lambda f: f.part("file", b"x", "a.txt") + f.end + b"y" * 200_000,
        "too much after the end",
    ),
}


@pytest.mark.parametrize("case", BODIES)
def test_a_bad_form_is_refused(small: Any, forms: Any, case: str) -> None:
    body, words = BODIES[case]
    refused(small, small.post_form(body(forms)), words)


@pytest.mark.parametrize("case", BODIES)
def test_it_is_refused_whatever_comes_before(small: Any, forms: Any, case: str) -> None:
    """The same behind a preamble, which forms may have."""
    body, words = BODIES[case]
    refused(small, small.post_form(b"preamble\r\n" + body(forms)), words)


@pytest.mark.parametrize(
    ("content_type", "words"),
    [
        (None, "Expected Content-Type: multipart/form-data, got none"),
        ("application/json", "multipart/form-data, got 'application/json'"),
        ("application/x-www-form-urlencoded", "Expected Content-Type: multipart/form-data"),
        ("multipart/mixed; boundary=boundary-1", "Expected Content-Type: multipart/form-data"),
        ("multipart/form-data", "needs a boundary"),
        ("multipart/form-data; boundary=", "needs a boundary"),
        ("multipart/form-data; boundary=" + "b" * 300, "needs a boundary"),
        ("multipart/form-data; boundary=\xfc", "needs a boundary"),
        ("multipart/form-data; boundary=boundary-2", "does not begin with the boundary"),
    ],
)
def test_a_body_that_is_no_form_is_refused(
    small: Any, forms: Any, content_type: str | None, words: str
) -> None:
    body = forms.part("file", b"x", "a.txt") + forms.end
    refused(small, small.post_form(body, content_type), words)


def test_a_packed_body_is_refused(small: Any, forms: Any) -> None:
    body = forms.part("file", b"x", "a.txt") + forms.end
    reply = small.post_form(body, headers={"Content-Encoding": "gzip"})
    refused(small, reply, "Content-Encoding 'gzip' is not supported")


def test_a_file_of_the_largest_size_is_taken(small: Any, forms: Any) -> None:
    body = forms.part("file", b"x" * LIMIT, "a.txt") + forms.end
    assert small.post_form(body).json["size"] == LIMIT


def test_a_body_that_is_announced_too_large_is_not_read(small: Any) -> None:
    class Unreadable:
        def read(self, *_: object) -> bytes:
            raise AssertionError("it was read")

        readline = read

    reply = small.client.post(
        FILES,
        content_type="multipart/form-data; boundary=b",
        environ_overrides={"CONTENT_LENGTH": str(10**9), "wsgi.input": Unreadable()},
    )
    refused(small, reply, f"expected at most {LIMIT} bytes")


def test_a_client_that_leaves_is_told_apart(small: Any, forms: Any) -> None:
    class Breaking:
        def __init__(self) -> None:
            self.left = [forms.part("file", b"x" * 50_000, "a.txt")[:-2]]

        def read(self, *_: object) -> bytes:
            if self.left:
                return bytes(self.left.pop())
            raise ConnectionResetError("gone")

    reply = small.client.post(
        FILES,
        content_type=forms.content_type,
        environ_overrides={"CONTENT_LENGTH": "60000", "wsgi.input": Breaking()},
    )
    refused(small, reply, "broke off")


def test_a_body_shorter_than_announced_is_refused(small: Any, forms: Any) -> None:
    body = forms.part("file", b"x", "a.txt") + forms.end
    reply = small.post_form(body, environ_overrides={"CONTENT_LENGTH": str(len(body) + 5)})
    refused(small, reply, "")


@pytest.mark.parametrize(
    ("quota", "words"),
    [
        ({"account_files": 1}, "it may have 1 files"),
        ({"account_file_bytes": 5}, "it may have 5 bytes of files"),
    ],
)
def test_an_account_that_is_full_is_refused_before_its_file_is_read(
    serve_files: Any, forms: Any, quota: dict[str, int], words: str
) -> None:
    served = serve_files(**quota)
    served.upload(b"12345")
    reply = served.post_form(b"not even a form")
    assert reply.status_code == 400
    assert words in reply.json["error"]


def test_a_file_that_does_not_fit_is_refused(serve_files: Any) -> None:
    served = serve_files(account_file_bytes=10)
    served.upload(b"12345")
    kept = served.kept()
    body = {"file": (io.BytesIO(b"123456"), "b.txt")}
    reply = served.client.post(FILES, data=body)
    assert reply.status_code == 400
    assert "no room" in reply.json["error"]
    assert served.kept() == kept
    assert served.client.get(FILES).json["pagination"]["total"] == 1
    served.upload(b"12345")


def test_a_disk_that_is_full_is_503_and_leaves_nothing(
    plain: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from caesar_server.store.blobs import directory

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(directory.os, "fsync", full)
    reply = plain.client.post(FILES, data={"file": (io.BytesIO(b"x"), "a")})
    assert (reply.status_code, plain.kept()) == (503, [])
    assert "No space" not in reply.text
