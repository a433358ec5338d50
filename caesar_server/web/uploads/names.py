"""From whatever a client calls a file to a name that can be shown."""

from __future__ import annotations

import re
import unicodedata

#: Of a file without a name; the clients of Caesar call raw bytes so.
DEFAULT_NAME = "upload"
MAX_NAME_CHARS = 255

_LONGEST_SUFFIX = 32
_SEPARATORS = re.compile(r"[/\\]")
#: Controls, halves of surrogate pairs, line and paragraph separators; and format characters, which
#: turn the direction of text around or are not seen at all.
_NOT_SHOWN = frozenset({"Cc", "Cs", "Zl", "Zp", "Cf"})
#: Of the latter those that join or part letters: scripts and emoji need them.
_JOINERS = frozenset("\u200c\u200d")


def display_name(given: str | None) -> str:
    """Return the name that an upload is shown with; never empty, without folders.

    >>> display_name("../../etc/passwd"), display_name("a\\\\b.pdf"), display_name("..")
    ('passwd', 'b.pdf', 'upload')
    """
    last = _SEPARATORS.split(given or "")[-1]
    shown = unicodedata.normalize("NFC", "".join(filter(_is_shown, last))).strip()
    if not shown.strip("."):
        return DEFAULT_NAME
    return shown if len(shown) <= MAX_NAME_CHARS else _shortened(shown)


def _is_shown(char: str) -> bool:
    return char in _JOINERS or unicodedata.category(char) not in _NOT_SHOWN


def _shortened(name: str) -> str:
    stem, dot, suffix = name.rpartition(".")
    if not stem or len(suffix) > _LONGEST_SUFFIX:
        return name[:MAX_NAME_CHARS]
    return stem[: MAX_NAME_CHARS - len(suffix) - 1] + dot + suffix
