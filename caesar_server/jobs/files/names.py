"""From a file's name for display to one that every file system takes."""

from __future__ import annotations

#: File systems take 255 bytes; some programs put something behind the name.
_NAME_BYTES = 200
_SUFFIX_BYTES = 32
_AWKWARD = frozenset('/\\:*?"<>|')


def path_name(name: str) -> str:
    """Return a name for a path, with the extension that the file's name has.

    >>> path_name("report 1.pdf"), path_name("..")
    ('report 1.pdf', 'file')
    """
    safe = "".join(
        char if char.isprintable() and char not in '/\\:*?"<>|' else "_" for char in name
    )
    safe = safe.strip(". ")
    stem, dot, suffix = safe.rpartition(".")
    if not stem or len(suffix.encode("utf-8", "replace")) > _SUFFIX_BYTES:
        stem, dot, suffix = safe, "", ""
    room = _NAME_BYTES - len(f"{dot}{suffix}".encode("utf-8", "replace"))
    stem = stem.encode("utf-8", "replace")[:room].decode("utf-8", "ignore")
    return f"{stem}{dot}{suffix}" or "file"
