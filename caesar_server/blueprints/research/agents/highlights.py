"""The passages of a source that have most to do with a question: pure."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping

MOST_HIGHLIGHTS = 3
#: Characters of a passage that are shown, and of a source that are looked at.
_LONGEST = 500
_LOOKED_AT = 1_000_000

# What a browser shows nothing of, and where each ends.
_HIDDEN = re.compile(r"<(script|style|!--)", re.IGNORECASE)
_ENDS: Mapping[str, re.Pattern[str]] = {
    "script": re.compile(r"</script\s*>", re.IGNORECASE),
    "style": re.compile(r"</style\s*>", re.IGNORECASE),
    "!--": re.compile("-->"),
}
_TAG = re.compile(r"</?[A-Za-z][^<>]*>")
# A point within a number or a name ends no sentence.  The last three are those of Chinese and
# Japanese, after which there is no space.
_SENTENCE_ENDS = re.compile(r"(?<=[.!?])\s+|\n+|(?<=[\u3002\uff01\uff1f])")
# Shorter words are in every text.
_WORD = re.compile(r"\w{3,}")


def highlights(text: str, query: str) -> list[str]:
    """Return up to three sentences of a text that share most words with a query, in their order.

    A sentence that shares none is no highlight.

    >>> text = "Ions are slow. Qubits are noisy! Codes help <b>noisy</b> qubits."
    >>> highlights(text, "noisy qubits")
    ['Qubits are noisy!', 'Codes help noisy qubits.']

    :param text: Markdown, plain text, or HTML, whose tags are left out.
    """
    asked = _words(query)
    sentences = list(dict.fromkeys(_sentences(text[:_LOOKED_AT])))
    shared = {
        place: common
        for place, sentence in enumerate(sentences)
        if (common := len(asked & _words(sentence)))
    }
    # of equally good ones the first
    best = sorted(shared, key=lambda place: (-shared[place], place))[:MOST_HIGHLIGHTS]
    return [sentences[place] for place in sorted(best)]


def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text.casefold()))


def _sentences(text: str) -> Iterator[str]:
    plain = html.unescape(_TAG.sub(" ", " ".join(_shown_parts(text))))
    for found in _SENTENCE_ENDS.split(plain):
        if sentence := " ".join(found.split()):
            yield sentence[:_LONGEST]


def _shown_parts(text: str) -> Iterator[str]:
    """Yield what is between scripts, styles and comments."""
    at = 0
    while hidden := _HIDDEN.search(text, at):
        yield text[at : hidden.start()]
        end = _ENDS[hidden[1].lower()].search(text, hidden.end())
        if end is None:
            return
        at = end.end()
    yield text[at:]
