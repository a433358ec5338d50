"""Files: upload, list, retrieve, download, delete."""

from __future__ import annotations

import hashlib
import io
from datetime import datetime
from typing import Any

import pytest

FILES = "/research/files"
MISSING = ["00000000-0000-4000-8000-000000000000", "nonsense", "%00", "a%2Fb", "x" * 300, "%FF"]


def test_an_upload_is_told_in_both_documented_shapes(served: Any) -> None:
    data = "Grüße\n".encode()
    told = served.upload(data, "notes/Grüße.txt")
    assert set(told) == {
        *("id", "file_name", "filename", "content_type", "size", "created_at", "collection_id"),
        "sha256",
    }
    assert (told["file_name"], told["filename"]) == ("Grüße.txt", "Grüße.txt")
    assert (told["content_type"], told["size"]) == ("text/plain", len(data))
    assert told["sha256"] == hashlib.sha256(data).hexdigest()
    assert told["collection_id"] is None
    assert datetime.fromisoformat(told["created_at"]).tzinfo is not None
    assert served.client.get(f"{FILES}/{told['id']}").json == told


@pytest.mark.parametrize("size", [1, 65_535, 65_536, 65_537, 200_000])
@pytest.mark.parametrize("block", [b"\0", b"\n", b"\r\n", b"\r\n--boundary-1", b"--", b"\xff-"])
def test_bytes_come_back_as_they_went(plain: Any, forms: Any, size: int, block: bytes) -> None:
    data = (block * (size // len(block) + 1))[:size]
    # what looks like the end of the part is not sent by anybody who chose the boundary
    if b"\r\n--boundary-1\r\n" in data + b"\r\n" or b"\r\n--boundary-1--" in data:
        data = data.replace(b"boundary-1", b"boundary-2")
    told = plain.post_form(forms.part("file", data, "a.bin") + forms.end).json
    reply = plain.client.get(f"{FILES}/{told['id']}/content")
    assert (reply.data, told["size"]) == (data, size)


def test_the_field_may_come_first_or_last_and_others_are_ignored(served: Any, forms: Any) -> None:
    collection = served.collection()
    file, field = (
        forms.part("file", b"x", "a.txt"),
        forms.part("collection_id", collection.encode()),
    )
    for body in (file + field, field + file, forms.part("purpose", b"p") + field + file):
        assert served.post_form(body + forms.end).json["collection_id"] == collection
    empty = forms.part("collection_id", b" ")
    assert served.post_form(empty + file + forms.end).json["collection_id"] is None


def test_a_part_without_a_filename_is_a_file_too(plain: Any, forms: Any) -> None:
    told = plain.post_form(forms.part("file", b'{"a": 1}') + forms.end).json
    assert (told["file_name"], told["content_type"]) == ("upload", "application/json")


@pytest.mark.parametrize(
    ("disposition", "shown"),
    [
        ('filename="a b.txt"', "a b.txt"),
        ('filename="../../etc/passwd"', "passwd"),
        ('filename="a\\"b.txt"', 'a"b.txt'),
        # as browsers and requests send it, and as httpx does
        (r'filename="C:\Users\me\report.txt"', "report.txt"),
        (r'filename="C:\\Users\\me\\report.txt"', "report.txt"),
        (r'filename="\\server\share\a\"b.txt"', 'a"b.txt'),
        (r'filename="a\b.txt"; x="\"', "b.txt"),
        ('filename="Grüße.txt"', "Grüße.txt"),
        ("filename*=UTF-8''Gr%C3%BC%C3%9Fe.txt", "Grüße.txt"),
        ("filename=\"x.txt\"; filename*=UTF-8''..%2F..%2Fe%00vil.txt", "evil.txt"),
        ('filename="\x01\x1b[31m.txt"', "[31m.txt"),
        ('filename="a\u202etxt.exe"', "atxt.exe"),
        ('filename=""', "upload"),
        ('filename=".."', "upload"),
        (f'filename="{"n" * 300}.txt"', "n" * 251 + ".txt"),
    ],
)
def test_names_are_made_fit_to_be_shown(
    plain: Any, forms: Any, disposition: str, shown: str
) -> None:
    head = f'Content-Disposition: form-data; name="file"; {disposition}\r\n\r\n'.encode()
    body = b"--%b\r\n%bx\r\n" % (forms.boundary, head) + forms.end
    told = plain.post_form(body).json
    assert told["file_name"] == shown
    reply = plain.client.get(f"{FILES}/{told['id']}/content")
    assert reply.data == b"x"
    disposition = reply.headers["Content-Disposition"]
    assert disposition.startswith("attachment; filename=")
    assert not set(disposition) & set("\r\n\x01\x1b")


def test_equal_bytes_of_an_account_are_stored_once(served: Any) -> None:
    one, two = served.upload(b"same", "a.txt"), served.upload(b"same", "b.txt")
    assert one["id"] != two["id"]
    assert len(served.kept()) == 1
    served.client.delete(f"{FILES}/{one['id']}")
    assert served.client.get(f"{FILES}/{two['id']}/content").data == b"same"
    served.client.delete(f"{FILES}/{two['id']}")
    assert served.kept() == []


def test_files_are_listed_in_pages_newest_first(served: Any) -> None:
    collection = served.collection()
    told = [
        served.upload(
            b"%d" % number, f"{number}.txt", collection_id=collection if number % 2 else ""
        )
        for number in range(5)
    ][::-1]
    pages = [served.client.get(f"{FILES}?limit=2&page={page}").json for page in (1, 2, 3, 4)]
    assert [one for page in pages for one in page["data"]] == told
    assert [page["pagination"]["has_next"] for page in pages] == [True, True, False, False]
    assert pages[0]["pagination"] == {"page": 1, "limit": 2, "has_next": True, "total": 5}
    odd = served.client.get(f"{FILES}?collection_id={collection}").json
    assert odd["data"] == [one for one in told if one["collection_id"]]
    assert odd["pagination"]["total"] == 2
    assert served.client.get(f"{FILES}?collection_id=unknown").json["data"] == []
    assert served.client.get(f"{FILES}?limit=0").status_code == 400
    twice = served.client.get(f"{FILES}?collection_id=unknown&collection_id=other")
    assert twice.status_code == 400
    assert twice.json == {"error": "collection_id: expected one value, got 2"}


def test_a_download_is_never_a_page_of_this_server(served: Any) -> None:
    told = served.upload(b"<script>alert(1)</script>", "x.html")
    reply = served.client.get(f"{FILES}/{told['id']}/content")
    assert reply.data == b"<script>alert(1)</script>"
    assert reply.headers["Content-Type"] == "text/html"
    assert reply.headers["Content-Disposition"] == "attachment; filename=x.html"
    assert reply.headers["X-Content-Type-Options"] == "nosniff"
    assert "sandbox" in reply.headers["Content-Security-Policy"]
    assert reply.headers["ETag"] == f'"{told["sha256"]}"'


@pytest.mark.parametrize(
    ("headers", "status", "expected"),
    [
        ({"Range": "bytes=2-4"}, 206, b"234"),
        ({"Range": "bytes=7-"}, 206, b"789"),
        ({"Range": "bytes=-2"}, 206, b"89"),
        ({"Range": "bytes=5-100"}, 206, b"56789"),
        ({"Range": "bytes=0-"}, 200, b"0123456789"),
        ({"Range": "bytes=-20"}, 200, b"0123456789"),
        ({"Range": "bytes=0-1,4-5"}, 200, b"0123456789"),
        ({"Range": "bytes=0-1,40-50"}, 200, b"0123456789"),
        ({"Range": "bytes=4-2"}, 200, b"0123456789"),
        ({"Range": "bytes=-0", "If-Range": '"other"'}, 200, b"0123456789"),
        ({"Range": "bytes=--0"}, 200, b"0123456789"),
        ({"Range": "bytes=4-0"}, 200, b"0123456789"),
        ({"Range": "bytes=-01"}, 206, b"9"),
        ({"Range": "bytes=x"}, 200, b"0123456789"),
        ({"Range": "lines=20-"}, 200, b"0123456789"),
        ({"Range": "bytes=20-", "If-Range": '"other"'}, 200, b"0123456789"),
        ({"Range": "bytes=2-4", "If-Range": "W/ETAG"}, 200, b"0123456789"),
        ({"Range": "bytes=20-", "If-None-Match": "ETAG"}, 304, b""),
        ({"Range": "lines=1-2"}, 200, b"0123456789"),
        ({"Range": "bytes=2-4", "If-Range": '"other"'}, 200, b"0123456789"),
        ({"Range": "bytes=2-4", "If-Range": "ETAG"}, 206, b"234"),
        (
            {"Range": "bytes=2-4", "If-Range": "Wed, 21 Oct 2015 07:28:00 GMT"},
            200,
            b"0123456789",
        ),
        ({"If-None-Match": "ETAG"}, 304, b""),
        ({"If-None-Match": "W/ETAG"}, 304, b""),
        ({"If-None-Match": '"other", W/ETAG'}, 304, b""),
        ({"If-None-Match": '"other"'}, 200, b"0123456789"),
        ({"If-Match": '"other", ETAG'}, 200, b"0123456789"),
        ({"If-Match": "*", "Range": "bytes=2-4"}, 206, b"234"),
    ],
)
def test_ranges_are_served(
    plain: Any, headers: dict[str, str], status: int, expected: bytes
) -> None:
    told = plain.upload(b"0123456789")
    etag = f'"{told["sha256"]}"'
    sent = {name: value.replace("ETAG", etag) for name, value in headers.items()}
    reply = plain.client.get(f"{FILES}/{told['id']}/content", headers=sent)
    assert (reply.status_code, reply.data) == (status, expected)
    if status == 206:
        start = b"0123456789".index(expected)
        assert reply.headers["Content-Range"] == f"bytes {start}-{start + len(expected) - 1}/10"


@pytest.mark.parametrize("header", ['"other"', "W/ETAG"])
def test_other_bytes_than_those_that_are_asked_for_are_not_sent(plain: Any, header: str) -> None:
    told = plain.upload(b"0123456789")
    only_if = header.replace("ETAG", f'"{told["sha256"]}"')
    for method in (plain.client.get, plain.client.head):
        reply = method(f"{FILES}/{told['id']}/content", headers={"If-Match": only_if})
        assert reply.status_code == 412
    reply = plain.client.get(f"{FILES}/{told['id']}/content", headers={"If-Match": only_if})
    assert reply.json["error"].startswith("If-Match: ")


@pytest.mark.parametrize(
    "wanted",
    ["bytes=10-", "bytes=20-", "bytes=10-19", "bytes=10-11,20-", "bytes=-0", "bytes=-00"],
)
@pytest.mark.parametrize("only_if", [None, "ETAG"])
def test_a_range_behind_the_end_is_refused(plain: Any, wanted: str, only_if: str | None) -> None:
    told = plain.upload(b"0123456789")
    headers = {"Range": wanted}
    if only_if:
        headers["If-Range"] = f'"{told["sha256"]}"'
    reply = plain.client.get(f"{FILES}/{told['id']}/content", headers=headers)
    assert (reply.status_code, reply.headers["Content-Range"]) == (416, "bytes */10")
    assert reply.json == {
        "error": f"Range: expected bytes of the 10 that the file has, got '{wanted}'"
    }


@pytest.mark.parametrize("wanted", [None, "bytes=2-4", "bytes=20-"])
def test_head_tells_the_size_alone(plain: Any, wanted: str | None) -> None:
    told = plain.upload(b"0123456789")
    headers = {"Range": wanted} if wanted else {}
    reply = plain.client.head(f"{FILES}/{told['id']}/content", headers=headers)
    assert (reply.status_code, reply.data, reply.content_length) == (200, b"", 10)


def test_a_deleted_file_is_gone(served: Any) -> None:
    path = f"{FILES}/{served.upload()['id']}"
    assert served.client.delete(path).json["deleted"] is True
    assert served.kept() == []
    for reply in (
        served.client.get(path),
        served.client.get(f"{path}/content"),
        served.client.delete(path),
    ):
        assert (reply.status_code, reply.json) == (404, {"error": "Resource not found"})


@pytest.mark.parametrize("id_", MISSING)
@pytest.mark.parametrize("method", ["get", "delete", "content"])
def test_what_is_not_there_is_404(served: Any, method: str, id_: str) -> None:
    served.upload()
    if method == "content":
        reply = served.client.get(f"{FILES}/{id_}/content")
    else:
        reply = getattr(served.client, method)(f"{FILES}/{id_}")
    assert reply.status_code == 404
    assert set(reply.json) == {"error"}


def test_bytes_that_are_gone_are_503(plain: Any, caplog: pytest.LogCaptureFixture) -> None:
    told = plain.upload()
    (path,) = plain.kept()
    path.unlink()
    reply = plain.client.get(f"{FILES}/{told['id']}/content")
    assert reply.status_code == 503
    assert told["id"] in caplog.text
    assert str(path) not in reply.text


def test_an_upload_before_any_other_makes_the_folder(plain: Any) -> None:
    assert not plain.folder.exists()
    assert plain.client.get(FILES).json["data"] == []
    assert not plain.folder.exists()
    plain.upload()
    assert plain.folder.stat().st_mode & 0o777 == 0o700


def test_without_a_place_by_name_files_go_with_the_jobs_in_memory(serve_files: Any) -> None:
    served = serve_files(files=None)
    root = served.services.blobs.root
    told = served.upload(b"x")
    assert served.client.get(f"{FILES}/{told['id']}/content").data == b"x"
    assert root.is_dir()
    served.services.close()
    assert not root.exists()


def test_the_surface_marks_its_extensions(plain: Any) -> None:
    paths = plain.client.get("/openapi.json").json["paths"]
    marked = {
        operation["operationId"]
        for path in paths.values()
        for operation in path.values()
        if isinstance(operation, dict) and operation.get("x-caesar-extension")
    }
    assert {
        "retrieve_research_file",
        "retrieve_research_file_content",
        "delete_research_file",
        "delete_research_collection",
    } <= marked
    assert not marked & {"create_research_file", "list_research_files"}
    upload = paths[FILES]["post"]["requestBody"]
    assert list(upload["content"]) == ["multipart/form-data"]


def test_chunks_whose_length_nobody_announced_are_read(plain: Any, forms: Any) -> None:
    body = io.BytesIO(forms.part("file", b"x" * 100_000, "a.txt") + forms.end)
    reply = plain.client.post(
        FILES,
        content_type=forms.content_type,
        input_stream=body,
        environ_overrides={"wsgi.input_terminated": True, "CONTENT_LENGTH": ""},
    )
    assert reply.json["size"] == 100_000
