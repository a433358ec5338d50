"""Which questions are asked about a query: pure.

Caesar asks two to seven, and none about a query that is specific already
(https://docs.caesar.xyz, "Brainstorming").
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any, TypeAlias

from caesar_server.contract.errors import BackendError

logger = logging.getLogger(__name__)

#: ``{"id": str, "question": str, "options": [str, ...]}``.
Question: TypeAlias = Mapping[str, Any]

MAX_QUESTIONS = 7
_MAX_OPTIONS = 20

_USUAL: tuple[Question, ...] = (
    {
        "id": "q1",
        "question": "What is the answer for?",
        "options": ["To get an overview", "To make a decision", "To work on it in depth"],
    },
    {
        "id": "q2",
        "question": "Which period matters?",
        "options": ["The latest developments", "The last few years", "The whole history"],
    },
    {
        "id": "q3",
        "question": "How long should the answer be?",
        "options": ["A few sentences", "A page", "A detailed report"],
    },
)
#: A query of so many words, or of more characters, says what it wants.
_SPECIFIC_WORDS = 12
_SPECIFIC_CHARACTERS = 500
_WORD = re.compile(r"\w+")
# a year, an amount, a quotation, an address: whoever writes such things has something in mind
_SPECIFIC = re.compile(r"""\d|["“„«][^"”“»]+["”“»]|https?://""")


def usual_questions(query: str) -> tuple[Question, ...]:
    """Return what is asked where the backend asks nothing itself; nothing if the query is specific.

    They are in English, so a query in another script than Latin gets none.

    >>> [question["id"] for question in usual_questions("quantum computing")]
    ['q1', 'q2', 'q3']
    >>> usual_questions("Which of the 2024 papers on surface codes report logical error rates?")
    ()
    """
    if len(query) > _SPECIFIC_CHARACTERS:
        return ()
    letters = [letter for letter in query if letter.isalpha()]
    foreign = any(ord(letter) > 0x24F for letter in letters) or not letters
    if foreign or _SPECIFIC.search(query) or len(_WORD.findall(query)) >= _SPECIFIC_WORDS:
        return ()
    return _USUAL


def told_questions(details: Mapping[str, Any]) -> tuple[Question, ...]:
    """Return the questions of a backend's ``Completed``; what goes beyond seven is left out.

    :raises BackendError: if they are none.
    """
    found = details.get("questions", ())
    if not isinstance(found, (list, tuple)) or not all(map(_is_question, found)):
        logger.error("a backend's questions are no list of {question, options}: %.200r", found)
        raise BackendError("The backend asked no proper questions")
    return tuple(
        {
            "id": f"q{number}",
            "question": one["question"],
            "options": list(one.get("options", ()))[:_MAX_OPTIONS],
        }
        for number, one in enumerate(found[:MAX_QUESTIONS], 1)
    )


def _is_question(value: object) -> bool:
    if not isinstance(value, Mapping) or not isinstance(value.get("question"), str):
        return False
    options = value.get("options", ())
    return isinstance(options, (list, tuple)) and all(isinstance(one, str) for one in options)
