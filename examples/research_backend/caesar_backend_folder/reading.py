"""Documents: the files of a folder and those of a caller, as Markdown."""

from __future__ import annotations

import mimetypes
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote, urlsplit

from caesar_backend_folder.search import Document, title_of
from caesar_server.contract.context import StoredFile

_SUFFIXES = frozenset({".txt", ".md", ".html"})
#: Elements that begin and end a paragraph.
_BLOCK = re.compile(
    "address|article|aside|blockquote|body|br|dd|div|dl|dt|figcaption|footer|h[1-6]|header|hr|html|"
    "li|main|nav|ol|p|pre|section|table|td|th|title|tr|ul"
)
_UNSEEN = frozenset({"script", "style"})


class NoTextError(ValueError):
    """A file is no text that can be read; the message says why."""


def texts_of(content_type: str, data: bytes) -> tuple[str, str]:
    """Return a file's text as it is and as Markdown; the place to add formats such as PDF.

    >>> texts_of("text/html", b"<h1>Owls</h1><p>They hunt at <b>night</b>.")[1]
    '# Owls\\n\\nThey hunt at night.'

    :raises NoTextError: if it is of another type, or not UTF-8.
    """
    if not content_type.startswith("text/"):
        raise NoTextError(f"it is {content_type}")
    try:
        raw = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise NoTextError("it is not UTF-8") from None
    return raw, _paragraphs_of(raw) if content_type == "text/html" else raw


def folder_documents(folder: Path, base_url: str, max_file_bytes: int) -> Iterator[Document]:
    """Yield the text, Markdown and HTML files below a folder, in the order of their names.

    Left out are files that are too long or no UTF-8, and links that lead out of the folder.

    :param base_url: what the URL of a document begins with; its path in the folder follows.
    """
    root = folder.resolve()
    for path in sorted(root.rglob("*")):
        inside = path.is_file() and path.resolve().is_relative_to(root)
        if not inside or path.suffix not in _SUFFIXES or path.stat().st_size > max_file_bytes:
            continue
        content_type = mimetypes.guess_type(path.name)[0] or "text/plain"
        try:
            raw, markdown = texts_of(content_type, path.read_bytes())
        except NoTextError:
            continue
        name = path.relative_to(root).as_posix()
        url = f"{base_url}{quote(name)}"
        yield Document(name, title_of(markdown) or path.stem, url, raw, markdown)


def uploaded_document(file: StoredFile, max_file_bytes: int) -> Document:
    """Return a caller's file.

    The name is what the caller knows it by.  Its URL is where the server has it for download.

    :raises NoTextError: if it is too long or no text.
    """
    if file.size > max_file_bytes:
        raise NoTextError(f"it is longer than {max_file_bytes} bytes")
    raw, markdown = texts_of(file.content_type, file.path.read_bytes())
    url = f"/research/files/{quote(file.id)}/content"
    return Document(file.id, file.name, url, raw, markdown)


def is_excluded(url: str, domains: Sequence[str]) -> bool:
    """Return whether a URL is of one of these domains or of a subdomain.

    >>> is_excluded("https://www.example.com/a", ["example.com"])
    True
    """
    host = urlsplit(url).hostname or ""
    return any(host == domain or host.endswith(f".{domain}") for domain in domains)


@dataclass(frozen=True)
class _Open:
    """A paragraph that is being read: its mark, and the pieces of its text."""

    mark: str
    pieces: list[str]


class _Paragraphs(HTMLParser):
    """Collects the paragraphs of a page, headings and list items with their marks."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[str] = []
        self._open = _Open("", [])
        self._unseen = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin a paragraph, or something that nobody sees."""
        self._unseen = tag in _UNSEEN
        if _BLOCK.fullmatch(tag):
            heading = "#" * int(tag[1]) + " " if tag[0] == "h" and tag[1:].isdigit() else ""
            self.finish("- " if tag == "li" else heading)

    def handle_endtag(self, tag: str) -> None:
        """End it."""
        self._unseen = False
        if _BLOCK.fullmatch(tag):
            self.finish()

    def handle_data(self, data: str) -> None:
        """Take text that is seen."""
        if not self._unseen:
            self._open.pieces.append(data)

    def finish(self, mark: str = "") -> None:
        """Keep the open paragraph, if it has text; the next one has this mark."""
        text = " ".join("".join(self._open.pieces).split())
        if text:
            self.done.append(self._open.mark + text)
        self._open = _Open(mark, [])


def _paragraphs_of(page: str) -> str:
    parser = _Paragraphs()
    parser.feed(page)
    parser.close()
    parser.finish()
    return "\n\n".join(parser.done)
