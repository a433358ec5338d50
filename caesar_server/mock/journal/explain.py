"""Why a check of the journal failed, in words that help."""

from __future__ import annotations

from collections.abc import Sequence

from caesar_server.mock.journal.entry import Entry
from caesar_server.mock.journal.filters import EntryFilter

#: Entries that are shown of each kind.
_SHOWN = 5


def explain(
    entries: Sequence[Entry], wanted: EntryFilter, expected: str, got: int, dropped: int = 0
) -> str:
    """Return what was expected, what matched, and of the rest the nearest with their differences.

    :param entries: all of the journal.
    :param expected: how many were expected: ``exactly 3``, ``at least 1``.
    :param got: how many there were.
    :param dropped: so many older entries the journal had no room for.
    """
    lines = [f"expected {expected.strip()} of: {wanted.describe()}", f"     got {got}"]
    if dropped:
        lines.append(f"     {gone(dropped)}")
    compared = [(wanted.failures(entry), entry) for entry in entries]
    matching = [entry for failures, entry in compared if not failures]
    others = [(failures, entry) for failures, entry in compared if failures]
    if matching:
        lines += ["", *_section("these match:", [_line(entry) for entry in matching])]
    if others:
        # Of equally near ones the newest: it is what the test has just done.
        others.sort(key=lambda pair: (len(pair[0]), -pair[1].number))
        shown = [
            "\n".join([_line(entry), *(f"      - {failure}" for failure in failures)])
            for failures, entry in others
        ]
        lines += ["", *_section("the nearest of the others:", shown)]
    if not entries:
        lines += ["", "no request has come"]
    return "\n".join(lines)


def gone(dropped: int) -> str:
    """Return what is to be said of requests that the journal had no room for."""
    room = "mock_journal_entries and mock_journal_bytes"
    return f"{dropped} older requests, which may count, are not kept any more (see {room})"


def _section(head: str, items: Sequence[str]) -> list[str]:
    more = len(items) - _SHOWN
    rest = [f"    and {more} more"] if more > 0 else []
    return [head, *items[:_SHOWN], *rest]


def _line(entry: Entry) -> str:
    call = entry.call
    parts = [f"  #{entry.number} {call.method} {call.path}".rstrip()]
    if call.prompt is not None:
        parts.append(repr(_short(call.prompt)))
    if call.attempt > 1:
        parts.append(f"attempt {call.attempt}")
    parts.append(f"-> {entry.status or 'no answer'}, {entry.ended or 'open'}")
    if entry.rule is not None:
        parts.append(f"by rule {entry.rule.name or entry.rule.id!r}")
    return " ".join(parts)


def _short(text: str, most: int = 60) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
