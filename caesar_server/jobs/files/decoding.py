"""Text from bytes whose encoding nobody names."""

from __future__ import annotations

import codecs
import re

#: Byte order marks and the encodings that they tell; of the two that begin alike the longer first.
MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    (codecs.BOM_UTF8, "utf-8-sig"),
)
#: What text does not have.
CONTROL_BYTES = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
#: What Windows writes in the west; the printable characters of Latin-1 are the same in it.
_OLDER = "cp1252"


class UndecodableError(ValueError):
    """The bytes are no text that can be read; the message says what they are instead."""


def decoded(data: bytes, *, older: bool) -> str:
    """Return the text that ``data`` is.

    A byte order mark tells the encoding; without one it is UTF-8.

    :param older: read what is no UTF-8 as Windows-1252, if it can be that.  One byte is one
        character there, so that almost any bytes could be read: what has control characters is no
        text, what is UTF-8 for the most part is a broken one, and where the characters beyond ASCII
        are more than the others, it is another alphabet's encoding.
    :raises UndecodableError: if it is none.

    >>> decoded(b"\\xff\\xfea\\0", older=False), decoded(b"Gr\\xfcn", older=True)
    ('a', 'Grün')
    """
    encoding = next((name for mark, name in MARKS if data.startswith(mark)), None)
    try:
        text = data.decode(encoding or "utf-8")
    except UnicodeDecodeError:
        if encoding is not None or not older:
            name = (encoding or "utf-8").removesuffix("-sig").upper()
            raise UndecodableError(f"no {name} text") from None
        text = _older_text(data)
    if "\0" in text:
        raise UndecodableError("no text: it has NUL characters")
    return text


def _older_text(data: bytes) -> str:
    if CONTROL_BYTES.search(data):
        raise UndecodableError("no text: it has control characters")
    read = data.decode("utf-8", "replace")
    bad = read.count("\ufffd")
    ascii_ones = sum(char < "\x80" for char in read if not char.isspace())
    beyond_ascii = sum(byte >= 0x80 for byte in data)
    if sum(char >= "\x80" for char in read) - bad >= bad or beyond_ascii > ascii_ones:
        raise UndecodableError("no UTF-8 text, nor Windows-1252")
    try:
        return data.decode(_OLDER)
    except UnicodeDecodeError:
        raise UndecodableError("no UTF-8 text, nor Windows-1252") from None
