"""What kind of file it is: its first bytes say so, then its name, and at last the client."""

from __future__ import annotations

import codecs
import json
import mimetypes
import re
from collections.abc import Mapping

from caesar_server.jobs.files.decoding import CONTROL_BYTES, MARKS

#: So much of a file is looked at.
HEAD_BYTES = 64 * 1024
UNKNOWN = "application/octet-stream"

#: What text with such an extension is.  Not taken from the machine, whose list may be any.
_TEXTS: Mapping[str, str] = {
    "css": "text/css",
    "csv": "text/csv",
    "eml": "message/rfc822",
    "htm": "text/html",
    "html": "text/html",
    "ics": "text/calendar",
    "js": "text/javascript",
    "json": "application/json",
    "jsonl": "application/x-ndjson",
    "markdown": "text/markdown",
    "md": "text/markdown",
    "ndjson": "application/x-ndjson",
    "py": "text/x-python",
    "rst": "text/x-rst",
    "rtf": "application/rtf",
    "svg": "image/svg+xml",
    "tex": "text/x-tex",
    "toml": "application/toml",
    "tsv": "text/tab-separated-values",
    "vcf": "text/vcard",
    "xhtml": "application/xhtml+xml",
    "xml": "application/xml",
    "yaml": "application/yaml",
    "yml": "application/yaml",
}
# Atomic and possessive: text that is made for it would else be tried in exponentially many ways.
_COMMENTS = r"(?:(?><!--.*?-->)\s*+)*+"
_PROLOG = r"(?:(?><\?xml.*?\?>)\s*+)?+"
#: What text that begins so is, whatever its name.
_BEGINNINGS = (
    (re.compile(r"%PDF-"), "application/pdf"),
    (re.compile(r"\{\\rtf"), "application/rtf"),
    (re.compile(r"%!PS"), "application/postscript"),
    (re.compile(rf"\s*+{_COMMENTS}<!doctype html|\s*+<html[\s>]", re.I | re.S), "text/html"),
    (re.compile(rf"\s*+{_PROLOG}{_COMMENTS}<svg[\s>]", re.I | re.S), "image/svg+xml"),
    (re.compile(r"\s*<\?xml\s"), "application/xml"),
)
#: Files of text by name that may begin like another kind.
_XML_KINDS = frozenset({"application/xhtml+xml", "image/svg+xml"})
_OFFICE = "application/vnd.openxmlformats-officedocument."
#: What a ZIP archive is that has a file of such a name.
_IN_ZIP = (
    (b"word/", f"{_OFFICE}wordprocessingml.document"),
    (b"xl/", f"{_OFFICE}spreadsheetml.sheet"),
    (b"ppt/", f"{_OFFICE}presentationml.presentation"),
    (b"META-INF/MANIFEST.MF", "application/java-archive"),
)
_OFFICE_NAMES: Mapping[str, str] = {
    "docx": _IN_ZIP[0][1],
    "xlsx": _IN_ZIP[1][1],
    "pptx": _IN_ZIP[2][1],
}
_ZIP = b"PK\x03\x04"
_GZIP = b"\x1f\x8b"
#: The first file of an archive of OpenDocument or EPUB: not packed, it holds the type.
_OPEN_DOCUMENT = re.compile(rb"PK\x03\x04.{26}mimetype(application/[\w.+-]{1,100}?)(?=PK|$)", re.S)
_CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
#: Extensions of text that are no kind of their own.
_PLAIN = frozenset({"asc", "log", "text", "txt"})
_TYPE = re.compile(r"(?:application|audio|font|image|model|video)/[a-z0-9][a-z0-9!#$&^_.+-]{0,100}")


def content_type_of(head: bytes, name: str, declared: str | None = None) -> str:
    """Return a MIME type, without parameters.

    :param head: the first :data:`HEAD_BYTES` bytes, or all there are.
    :param name: the file's; its extension decides between kinds that the bytes leave open.
    :param declared: what the client says it is; believed where nothing else is known.

    >>> content_type_of(b"a,b\\n1,2\\n", "table.csv"), content_type_of(b"%PDF-1.7", "notes.txt")
    ('text/csv', 'application/pdf')
    """
    suffix = name.rpartition(".")[2].lower() if "." in name else ""
    text = _text(head)
    if text is not None:
        return _kind_of_text(text, suffix, whole=len(head) < HEAD_BYTES)
    if head.startswith(_ZIP):
        return _kind_of_zip(head, suffix)
    if head.startswith(_GZIP):
        return "application/gzip"
    if _is_called_text(suffix, declared) and not CONTROL_BYTES.search(head):
        # in an older charset, which nobody names: what counts is ASCII in most of them
        return _kind_of_text(head.decode("latin-1"), suffix, whole=False)
    return _known_bytes(head, suffix) or _named(suffix) or _declared(declared) or UNKNOWN


def _text(head: bytes) -> str | None:
    """Return the head as text, or None if it is none."""
    encoding = next((name for mark, name in MARKS if head.startswith(mark)), "utf-8")
    decoder = codecs.getincrementaldecoder(encoding)()
    try:
        # not final: the last character may be cut in two
        text = decoder.decode(head, final=len(head) < HEAD_BYTES)
    except UnicodeDecodeError:
        return None
    return None if _CONTROLS.search(text) else text


def _is_called_text(suffix: str, declared: str | None) -> bool:
    """Return whether name or client say that it is text, of the kind that may be in any charset."""
    if _TEXTS.get(suffix, "").startswith("text/") or suffix in _PLAIN:
        return True
    return suffix not in _TEXTS and (declared or "").strip().lower().startswith("text/")


def _kind_of_text(text: str, suffix: str, *, whole: bool) -> str:
    named = _TEXTS.get(suffix)
    for beginning, kind in _BEGINNINGS:
        if beginning.match(text):
            return named if named in _XML_KINDS and kind == "application/xml" else kind
    if named is not None:
        return named
    return "application/json" if whole and _is_json(text) else "text/plain"


def _is_json(text: str) -> bool:
    """Return whether a text is an object or array; a bare number or word is text like any other."""
    if not text.lstrip().startswith(("{", "[")):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _kind_of_zip(head: bytes, suffix: str) -> str:
    if found := _OPEN_DOCUMENT.match(head):
        return found[1].decode("ascii")
    names = [part[26:] for part in head.split(_ZIP)[1:]]
    is_office = any(name.startswith(b"[Content_Types].xml") for name in names)
    for beginning, kind in _IN_ZIP:
        if is_office == kind.startswith(_OFFICE) and any(
            name.startswith(beginning) for name in names
        ):
            return kind
    # its parts may come in any order, and those that tell may be far behind
    return _OFFICE_NAMES.get(suffix, "application/zip") if is_office else "application/zip"


def _known_bytes(head: bytes, suffix: str) -> str | None:
    """Return what the bytes are known as, or None; of several kinds the one that is named so."""
    # a table of 200 KB, which only uploads of bytes need
    import puremagic

    try:
        found = [match for match in puremagic.magic_string(head) if match.mime_type]
    except puremagic.PureError:
        return None
    named = [match for match in found if match.extension == f".{suffix}"]
    best = max(named or found, key=lambda match: match.confidence, default=None)
    return None if best is None else str(best.mime_type)


def _named(suffix: str) -> str | None:
    """Return what a file of bytes with such an extension is, or None."""
    known = mimetypes.MimeTypes(filenames=()).guess_type(f"a.{suffix}")[0]
    return known if known is not None and _TYPE.fullmatch(known) else None


def _declared(declared: str | None) -> str | None:
    """Return what the client says, if it is a type that bytes may have."""
    kind = (declared or "").partition(";")[0].strip().lower()
    return kind if _TYPE.fullmatch(kind) and kind != UNKNOWN else None
