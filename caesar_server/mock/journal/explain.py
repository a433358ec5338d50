"""Why a check of the journal failed, in words that help."""

from __future__ import annotations

from collections.abc import Sequence

from caesar_server.mock.journal.entry import Entry, FaultNote
from caesar_server.mock.journal.filters import EntryFilter
from caesar_server.mock.model.rule import Rule, label

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
    matching, others = _compared(entries, wanted)
    if matching:
        lines += ["", *_section("these match:", matching)]
    if others:
        lines += ["", *_section("the nearest of the others:", others)]
    if not entries:
        lines += ["", "no request has come"]
    return "\n".join(lines)


def explain_unused(entries: Sequence[Entry], rule: Rule, dropped: int = 0) -> str:
    """Return why a rule was not used (more often), for people.

    :param entries: all of the journal.
    :param dropped: so many older entries the journal had no room for.
    """
    told = _unused(entries, rule)
    return f"{told}\n{gone(dropped)}" if dropped else told


def _unused(entries: Sequence[Entry], rule: Rule) -> str:
    left = [entry for entry in entries if rule.id not in entry.used_rules]
    matching, others = _compared(left, EntryFilter(conditions=rule.conditions))
    if matching:
        passed = f" (it lets the first {rule.skip} pass)" if rule.skip else ""
        head = f"these have all that it asks for, but it did nothing{passed}:"
        return "\n".join(_section(head, matching))
    if others:
        return "\n".join(_section("the nearest requests:", others))
    return "no other request has come" if entries else "no request has come"


def _compared(entries: Sequence[Entry], wanted: EntryFilter) -> tuple[list[str], list[str]]:
    """Return the entries that match, and the others, the nearest first, with what they lack."""
    compared = [(wanted.failures(entry), entry) for entry in entries]
    # Of equally near ones the newest: it is what the test has just done.
    others = sorted(
        ((failures, entry) for failures, entry in compared if failures),
        key=lambda pair: (len(pair[0]), -pair[1].number),
    )
    return (
        [_line(entry) for failures, entry in compared if not failures],
        [
            "\n".join([_line(entry), *(f"      - {failure}" for failure in failures)])
            for failures, entry in others
        ],
    )


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
    parts.append(f"-> {entry.status or 'no answer'}")
    ends = [entry.ended or "open"]
    if entry.rule is not None:
        ends[0] += f" by rule {entry.rule.label}"
    ends += [f"{fault.kind} by {_asked_by(fault)}" for fault in entry.faults]
    ends += [f"{kind} not reached" for kind in entry.missed]
    return ", ".join([" ".join(parts), *ends])


def _asked_by(fault: FaultNote) -> str:
    if not fault.rule:
        return "header or default"
    return f"rule {label(fault.rule_name or fault.rule, fault.rule_source)}"


def _short(text: str, most: int = 60) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
