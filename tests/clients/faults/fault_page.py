"""The manual's page on faults, made of what the clients did."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from fault_cases import QUESTIONS, SOON_S, TEXT, Outcome

from caesar_server.mock.faults import HEADERS, KINDS

PAGE = Path(__file__).parents[3] / "docs" / "testing" / "faults.rst"
COMMAND = "python tests/clients/faults/record.py"
SECTIONS_BEGIN = "\n.. What follows was recorded.\n\n"

_HEAD = f"""\
.. Made by: {COMMAND}

Faults
======

What a mock can do wrong on purpose, how to ask for it, and what three clients make of it: which
class they raise, how often they try, and what text the program has in hand then.

Kinds
-----

``after_chunks`` is how many chunks that carry text leave whole before the fault, which comes right
after the last of them; of an answer that is no stream it counts bytes.  Where the answer ends
before, the fault does not happen: its rule is not used, and the journal has it in ``missed_faults``
(in Python ``entry.missed``).

A kind that needs a *stream* makes sense nowhere else, and a call whose answer is none is refused
with status 422.  A kind that needs the *connection* needs the client's socket from the host.
gunicorn lends it, with the workers ``gthread`` and ``gevent``, and so does the server of the test
fixtures.  A host that does not, such as granian and Flask's test client, refuses the call with
status 422; nothing is left out silently.  A call that the server itself refuses, for a bad
parameter, say, gets that error: faults in the body are for answers.
"""

_ASKING = """\
Asking by header
----------------

A single request can ask for a fault by itself.  Its headers win over rules, and rules over the
scope's default; no rule is used up then.  A header that makes no sense is refused with status 400.
"""

_LESSONS = f"""\
What clients do
---------------

The tables were recorded from real clients, each told to try again once, and a test compares them
with what the installed versions do.  The Python clients called the server of the test fixtures,
openai-node called ``caesar-server mock``.  The answer is ``{TEXT}``, a word a chunk, asked for at
``/compat/completions``; JSON bodies broke after 20 bytes.

*Whole text* means that the client did not notice.  **No error** is the dangerous case: the program
gets less than was said, or something else, and nothing tells it so.

- A stream that ends without ``[DONE]`` is a complete answer to all of them.  Only the finish
  reason, which did not come, tells a cut answer from a whole one: look at it.
- After the first chunk no error is tried again, whatever its kind.
- The time-out of openai-node covers the time until the headers come, not a silence in the stream.
- Node's ``fetch`` takes a connection that is reset for the end of the body if the answer's headers
  said ``Connection: close``, as those of the fixtures' server do.  gunicorn keeps connections; so
  try resets with ``caesar-server mock`` there.
- openai-python takes a delay of 0 in ``Retry-After`` for none, and waits for half a second or so of
  its own.  In a test that nobody should wait for, ask for ``retry_after_s: {SOON_S}``.
"""


def page(sections: Iterable[str]) -> str:
    """Return the whole page, with a section for each client."""
    parts = [_HEAD, _kinds(), _ASKING, _headers(), _LESSONS]
    return "\n".join(parts) + SECTIONS_BEGIN + "\n".join(sections)


def section(client: str, version: str, outcomes: Mapping[str, Outcome]) -> str:
    """Return the section of one client.

    :param outcomes: by the keys of ``QUESTIONS``.
    """
    cells: dict[str, dict[bool, str]] = {}
    for question in QUESTIONS:
        told = _cell(outcomes[question.key])
        cells.setdefault(question.case.name, {})[question.stream] = told
    rows = [
        (f"``{name}``", found[True], found.get(False, "only in a stream"))
        for name, found in cells.items()
    ]
    title = f"{client} {'.'.join(version.split('.')[:2])}"
    table = _table(("Fault", "Stream", "JSON"), rows, widths=(30, 35, 35))
    return f"{title}\n{'^' * len(title)}\n\n{table}"


def _cell(outcome: Outcome) -> str:
    """Return what happened in a few words."""
    if outcome.error is not None:
        told = f"``{outcome.error}``"
        if outcome.text:
            told += f" after ``{outcome.text}``"
    elif outcome.instead is not None:
        told = f"**no error**, {outcome.instead}"
    elif outcome.text == TEXT:
        told = "whole text"
    else:
        told = f"**no error**, ``{outcome.text}``" if outcome.text else "**no error**, no text"
    return told if outcome.tries == 1 else f"{told}; {outcome.tries} tries"


def _kinds() -> str:
    rows = []
    for kind in KINDS.values():
        marks = [
            *(["stream"] if kind.needs_stream else []),
            *(["connection"] if kind.needs_socket else []),
        ]
        fields = [f"``{name}``" for name in sorted(kind.required)]
        fields += [f"``{name}``" for name in sorted(kind.fields - kind.required)]
        does = kind.does[0].upper() + kind.does[1:]
        needs = " and ".join(f"*{mark}*" for mark in marks)
        rows.append((f"``{kind.name}``", does, ", ".join(fields) or "none", needs or "nothing"))
    columns = ("Kind", "What the client meets", "Fields, the required first", "Needs")
    return _table(columns, rows, widths=(20, 40, 25, 15))


def _headers() -> str:
    rows = [(f"``{name}``", told) for name, told in HEADERS.items()]
    return _table(("Header", "Says"), rows, widths=(40, 60))


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, widths: Sequence[int]) -> str:
    lines = [
        ".. list-table::",
        "   :header-rows: 1",
        f"   :widths: {' '.join(map(str, widths))}",
        "",
    ]
    for row in (columns, *rows):
        first, *others = row
        lines.append(f"   * - {first}")
        lines += [f"     - {cell}" for cell in others]
    return "\n".join([*lines, ""])
