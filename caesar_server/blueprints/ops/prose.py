"""The little CommonMark that descriptions use, as HTML: paragraphs, lists, code."""

from __future__ import annotations

import re

from markupsafe import Markup, escape

_CODE = re.compile(r"`([^`]+)`")


def prose(text: str) -> Markup:
    """Return ``text`` as HTML; what is no paragraph, list or code is shown as it stands."""
    return Markup("").join(map(_block, filter(None, re.split(r"\n{2,}", text.strip()))))


def _block(text: str) -> Markup:
    lines = text.split("\n")
    if all(line.startswith("- ") for line in lines):
        items = Markup("").join(Markup("<li>{}</li>").format(_inline(line[2:])) for line in lines)
        return Markup("<ul>{}</ul>").format(items)
    return Markup("<p>{}</p>").format(_inline(text))


def _inline(text: str) -> Markup:
    parts = _CODE.split(text)
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if position % 2 else escape(part)
        for position, part in enumerate(parts)
    )
