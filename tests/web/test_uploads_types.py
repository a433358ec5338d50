"""Types of uploads: bytes before name, name before what the client says."""

from __future__ import annotations

import gzip
import io
import subprocess
import sys
import zipfile

import pytest

from caesar_server.web.uploads.types import HEAD_BYTES, content_type_of

OFFICE = "application/vnd.openxmlformats-officedocument."


def archive(*names: str, stored: dict[str, str] | None = None) -> bytes:
    """A ZIP archive; what is ``stored`` comes first and is not packed."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, text in (stored or {}).items():
            packed.writestr(zipfile.ZipInfo(name), text)
        for name in names:
            packed.writestr(name, "<x/>" * 200)
    return file.getvalue()


def office(*names: str) -> bytes:
    return archive("[Content_Types].xml", "_rels/.rels", *names)


PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 40


@pytest.mark.parametrize(
    ("head", "name", "expected"),
    [
        # text
        (b"Hello.\n", "a.txt", "text/plain"),
        (b"Hello.\n", "upload", "text/plain"),
        (b"Hello.\n", "a.pdf", "text/plain"),
        (b"Hello.\n", "a.exe", "text/plain"),
        ("Grüße".encode(), "upload", "text/plain"),
        ("Grüße".encode("utf-8-sig"), "upload", "text/plain"),
        ("Grüße".encode("utf-16"), "upload", "text/plain"),
        ("Grüße".encode("utf-32"), "a.csv", "text/csv"),
        (b"a,b\n1,2\n", "a.csv", "text/csv"),
        (b"a,b\n1,2\n", "A.CSV", "text/csv"),
        (b"a\tb\n", "a.tsv", "text/tab-separated-values"),
        (b"# Title\n", "README.md", "text/markdown"),
        (b'{"a": [1]}', "upload", "application/json"),
        (b'{"a": [1]}', "a.json", "application/json"),
        (b"[1, 2", "upload", "text/plain"),
        (b"17", "upload", "text/plain"),
        (b"[" * 50_000, "upload", "text/plain"),
        (b"<!DOCTYPE html><p>x", "upload", "text/html"),
        (b"\n<!-- x -->\n<!doctype HTML>", "a.txt", "text/html"),
        (b"<html><body>", "a.txt", "text/html"),
        (b"<p>x</p>", "a.html", "text/html"),
        (b"<?xml version='1.0'?><a/>", "upload", "application/xml"),
        (b"<?xml version='1.0'?><svg xmlns='x'/>", "upload", "image/svg+xml"),
        (b"<svg xmlns='x'/>", "a.txt", "image/svg+xml"),
        (b"<?xml version='1.0'?><html/>", "a.xhtml", "application/xhtml+xml"),
        (b"{\\rtf1 x}", "upload", "application/rtf"),
        (b"a: 1\n", "a.yaml", "application/yaml"),
        # bytes
        (b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", "a.txt", "application/pdf"),
        (b"%PDF-1.7\n", "upload", "application/pdf"),
        (PNG, "a.jpg", "image/png"),
        (b"\xff\xd8\xff\xe0\0\x10JFIF\0" + b"\0" * 40, "upload", "image/jpeg"),
        (b"GIF89a" + b"\0" * 40, "upload", "image/gif"),
        (b"RIFF\x10\0\0\0WEBPVP8 " + b"\0" * 40, "upload", "image/webp"),
        (b"\0\0\0\x18ftypmp42" + b"\0" * 40, "upload", "video/mp4"),
        (b"SQLite format 3\0" + b"\0" * 40, "upload", "application/x-sqlite3"),
        (bytes.fromhex("d0cf11e0a1b11ae1") + b"\0" * 600, "a.doc", "application/msword"),
        (office("word/document.xml"), "a.docx", OFFICE + "wordprocessingml.document"),
        (office("word/document.xml"), "upload", OFFICE + "wordprocessingml.document"),
        (office("word/document.xml"), "a.zip", OFFICE + "wordprocessingml.document"),
        (office("xl/workbook.xml"), "upload", OFFICE + "spreadsheetml.sheet"),
        (office("ppt/presentation.xml"), "upload", OFFICE + "presentationml.presentation"),
        (office("docProps/app.xml"), "a.pptx", OFFICE + "presentationml.presentation"),
        (office("docProps/app.xml"), "a.txt", "application/zip"),
        (archive("a.txt"), "a.docx", "application/zip"),
        (archive("word/x"), "upload", "application/zip"),
        (archive("META-INF/MANIFEST.MF"), "a.jar", "application/java-archive"),
        (
            archive("content.xml", stored={"mimetype": "application/vnd.oasis.opendocument.text"}),
            "upload",
            "application/vnd.oasis.opendocument.text",
        ),
        (
            archive("OPS/a.xhtml", stored={"mimetype": "application/epub+zip"}),
            "a.zip",
            "application/epub+zip",
        ),
    ],
)
def test_the_bytes_tell(head: bytes, name: str, expected: str) -> None:
    assert content_type_of(head, name, "application/x-wrong") == expected


BYTES = bytes(range(256))


@pytest.mark.parametrize(
    ("name", "declared", "expected"),
    [
        ("upload", "application/octet-stream", "application/octet-stream"),
        ("upload", None, "application/octet-stream"),
        ("upload", "application/x-thing; v=1", "application/x-thing"),
        ("a.wasm", "application/x-thing", "application/wasm"),
        # what is no text is none, whatever it is called
        ("a.txt", "text/html", "application/octet-stream"),
        ("a.html", "text/html; charset=utf-8", "application/octet-stream"),
        ("upload", "nonsense", "application/octet-stream"),
        ("upload", "image/png\r\nX: y", "application/octet-stream"),
        ("upload", "application/" + "x" * 500, "application/octet-stream"),
    ],
)
def test_where_bytes_do_not_tell_the_name_does_and_then_the_client(
    name: str, declared: str | None, expected: str
) -> None:
    assert content_type_of(BYTES, name, declared) == expected


def test_a_character_that_is_cut_in_two_is_still_text() -> None:
    text = ("x" * (HEAD_BYTES - 1) + "ü").encode()
    assert content_type_of(text[:HEAD_BYTES], "upload") == "text/plain"
    assert content_type_of(b"x\xc3", "upload") != "text/plain"


def test_controls_are_no_text() -> None:
    assert content_type_of(b"abc\0def", "upload") == "application/octet-stream"
    assert content_type_of(b"\x1b[31mred\x1b[0m\n", "log") == "text/plain"


OLD_TEXT = "Größe;Preis €\n1;2\n".encode("cp1252")


@pytest.mark.parametrize(
    ("head", "name", "declared", "expected"),
    [
        (OLD_TEXT, "a.csv", None, "text/csv"),
        (OLD_TEXT, "a.txt", None, "text/plain"),
        (OLD_TEXT, "upload", "text/plain; charset=windows-1252", "text/plain"),
        (OLD_TEXT, "a.md", "application/pdf", "text/markdown"),
        # nobody says that it is text, or its kind has a charset of its own
        (OLD_TEXT, "upload", None, "application/octet-stream"),
        (OLD_TEXT, "a.json", "text/plain", "application/json"),
        # what the bytes say comes first
        (OLD_TEXT + b"\0", "a.bin", "text/plain", "application/octet-stream"),
        (b"%PDF-1.7\n\xff\xfe\xfd", "a.txt", "text/plain", "application/pdf"),
        (PNG, "a.txt", "text/plain", "image/png"),
        (gzip.compress(b"x", mtime=0), "a.gz", None, "application/gzip"),
        (gzip.compress(b"x", mtime=0), "a.txt", "text/plain", "application/gzip"),
    ],
)
def test_bytes_that_are_no_utf_8(head: bytes, name: str, declared: str, expected: str) -> None:
    assert content_type_of(head, name, declared) == expected


def test_the_table_of_kinds_is_loaded_only_for_bytes() -> None:
    code = (
        "import sys; from caesar_server.web.uploads.types import content_type_of;"
        "content_type_of(b'text', 'a.txt'); assert 'puremagic' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize(
    "text",
    [
        "<!--a-->" * 8_000 + "x",
        "<?xml ?>" * 8_000 + "x",
        " " * 65_000 + "x",
        "<!--" * 16_000,
        "<?xml " + "?><!--" * 10_000,
    ],
)
@pytest.mark.timeout(10)
def test_text_that_is_made_to_be_tried_in_many_ways_is_not(text: str) -> None:
    assert content_type_of(text.encode(), "upload") in ("text/plain", "application/xml")
