"""Whether a fault makes sense."""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Iterator, Mapping

import msgspec

from caesar_server.mock.faults.kinds import KINDS, Kind
from caesar_server.mock.model.fault import Fault

_EVERYWHERE = {"kind", "probability"}
_DEFAULTS = {
    field.name: field.default if field.default is not msgspec.NODEFAULT else {}
    for field in msgspec.structs.fields(Fault)
    if not field.required
}
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
#: They say where the body ends; the host writes them.
_FRAMING = {"content-length", "transfer-encoding", "connection"}
_NO_BODY = {204, 205, 304}


class FaultError(ValueError):
    """A fault makes no sense.

    :param problems: field and what is wrong with it, at least one.
    """

    def __init__(self, problems: list[tuple[str, str]]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(f"{field}: {message}" for field, message in problems))


def check_fault(fault: Fault) -> Fault:
    """Return ``fault`` if it makes sense.

    :raises FaultError: if it does not, with every field that is wrong.
    """
    if problems := fault_problems(fault):
        raise FaultError(problems)
    return fault


def fault_problems(fault: Fault) -> list[tuple[str, str]]:
    """Return what is wrong with ``fault``: pairs of field and message; none if all is well."""
    kind = KINDS.get(fault.kind)
    if kind is None:
        return [("kind", f"unknown fault {fault.kind!r}{nearest(str(fault.kind), KINDS)}")]
    # what Python code makes was never looked at
    if (misfit := _misfit(fault)) is not None:
        return [misfit]
    return [*_misplaced(fault, kind), *_bad_values(fault)]


def nearest(word: str, known: Mapping[str, object]) -> str:
    """Return the known words that ``word`` may be meant for, as the end of a sentence."""
    found = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {found[0]!r}?" if found else f"; known are {', '.join(known)}"


def _misfit(fault: Fault) -> tuple[str, str] | None:
    """Return the first field whose value has a wrong type or is out of range."""
    for name, value in msgspec.structs.asdict(fault).items():
        if isinstance(value, float) and not math.isfinite(value):
            return name, f"expected a finite number, got {value}"
    try:
        msgspec.convert(_plain(fault), Fault)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at `$.")
        return where.rstrip("`") or "fault", message.replace("`", "")
    return None


def _plain(fault: Fault) -> dict[str, object]:
    return {name: getattr(fault, name) for name in fault.__struct_fields__ if name != "body"}


def _misplaced(fault: Fault, kind: Kind) -> Iterator[tuple[str, str]]:
    for name, default in _DEFAULTS.items():
        given = getattr(fault, name) != default
        if given and name not in kind.fields | _EVERYWHERE:
            yield name, f"does not belong to {kind.name}; {_allowed(kind)}"
        if not given and name in kind.required:
            yield name, f"{kind.name} needs it"


def _allowed(kind: Kind) -> str:
    return f"it takes {', '.join(sorted(kind.fields))}" if kind.fields else "it takes no fields"


def _bad_values(fault: Fault) -> Iterator[tuple[str, str]]:
    if fault.status is not None and fault.status < 200:
        yield "status", "200 to 599: no answer ends with an interim status; see early_hints"
    if fault.status in _NO_BODY and fault.body is not None:
        yield "body", f"status {fault.status} has none"
    for name in ("body", "message", "code"):
        yield from _unsendable(name, getattr(fault, name))
    for name, value in fault.headers.items():
        if not _HEADER_NAME.fullmatch(name):
            yield "headers", f"{name!r} is no header name"
        elif name.lower() in _FRAMING:
            yield "headers", f"{name} cannot be set; a body that is cut off is a fault of its own"
        elif not _HEADER_VALUE.fullmatch(value):
            yield "headers", f"the value of {name} has characters that a header cannot have"
    if fault.content_type is not None and not _HEADER_VALUE.fullmatch(fault.content_type):
        yield "content_type", "it has characters that a header cannot have"


def _unsendable(name: str, value: object) -> Iterator[tuple[str, str]]:
    try:
        # the standard one has no words for bytes, sets and NaN, of which others make something
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:
        yield name, "has half a surrogate pair, which is no text"
    except (TypeError, ValueError, RecursionError) as error:
        yield name, f"expected text or a JSON value: {error}"
