"""Which sources a text cites by ``[n]``: pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, TypeAlias

from caesar_server.blueprints.research.rendering.objects import sound
from caesar_server.contract.events import ResultFound
from caesar_server.contract.request import Source

#: What a citation may stand for: ``id``, ``title``, ``url`` and ``citation_index`` of both count.
Citable: TypeAlias = ResultFound | Source

_CITATION = re.compile(r"\[([0-9]{1,9})\]")


def cited_numbers(text: str) -> frozenset[int]:
    """Return the numbers that a text has in brackets.

    >>> sorted(cited_numbers("As shown [2], and [10][2]."))
    [2, 10]
    """
    return frozenset(map(int, _CITATION.findall(text)))


def cited_results(
    text: str, found: Iterable[Citable], known: Iterable[Citable]
) -> list[dict[str, Any]]:
    """Return the results that a follow-up's answer cites, by citation index.

    :param found: what the follow-up found itself; it counts first.
    :param known: what the job that it is about had found.
    """
    by_number: dict[int, Citable] = {}
    for one in (*known, *found):
        if one.citation_index is not None:
            by_number[one.citation_index] = one
    return [
        {
            "id": sound(by_number[number].id),
            "title": sound(by_number[number].title),
            "url": sound(by_number[number].url),
            "citation_index": number,
        }
        for number in sorted(cited_numbers(text) & by_number.keys())
    ]
