"""Where a value first differs from the one that is wanted, for people."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Any

from caesar_server.mock.matching.matchers import Matcher, same_json
from caesar_server.mock.model.rule import LONGEST_SHOWN, shortened

#: Characters that are shown of a long text before the first one that differs.
_BEFORE = 40
#: The same, and what follows.
_AROUND = 120
#: Stands for what one of the two does not have.
_NOTHING: Any = object()


def difference(wanted: Any, seen: Any, null: str = "nothing") -> str:
    """Return where two values first differ, and how: ``[0].content: wanted 'Hi', got 'Hello'``.

    :param wanted: what JSON has, perhaps with matchers in it; not the same as ``seen``.
    :param null: what null is called: a member may be null, which is not the same as none.
    """
    for step, one, other in _members(wanted, seen):
        if one is _NOTHING or other is _NOTHING or not same_json(one, other):
            return step + difference(one, other, null="null")
    if isinstance(wanted, str) and isinstance(seen, str):
        return _of_texts(wanted, seen)
    return f": wanted {told(wanted, null)}, got {told(seen, null)}"


def told(value: Any, null: str = "nothing") -> str:
    """Return a value for people, in at most 200 characters."""
    if value is None or value is _NOTHING:
        return null if value is None else "nothing"
    if isinstance(value, (Mapping, list, tuple)):
        return shortened(json.dumps(value, ensure_ascii=False, default=repr))
    return shortened(repr(value))


def _members(wanted: Any, seen: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the members of two lists or objects, each with its step in a path."""
    if isinstance(wanted, (list, tuple)) and isinstance(seen, (list, tuple)):
        for place, (one, other) in enumerate(zip_longest(wanted, seen, fillvalue=_NOTHING)):
            yield f"[{place}]", one, other
    elif isinstance(wanted, Mapping) and isinstance(seen, Mapping):
        for name in dict.fromkeys((*wanted, *seen)):
            one, other = wanted.get(name, _NOTHING), seen.get(name, _NOTHING)
            if not (other is _NOTHING and isinstance(one, Matcher) and one.test(None)):
                yield f".{name}", one, other


def _of_texts(wanted: str, seen: str) -> str:
    """Return how two texts differ: of long ones what is around the first character that does."""
    if len(repr(wanted)) <= LONGEST_SHOWN and len(repr(seen)) <= LONGEST_SHOWN:
        return f": wanted {wanted!r}, got {seen!r}"
    pairs = enumerate(zip(wanted, seen, strict=False))
    shorter = min(len(wanted), len(seen))
    same = next((place for place, (one, other) in pairs if one != other), shorter)
    start = max(0, same - _BEFORE)
    where = f" from character {same + 1} on" if same else ""
    return f"{where}: wanted {_part(wanted, start)}, got {_part(seen, start)}"


def _part(text: str, start: int) -> str:
    end = start + _AROUND
    before, after = "…" if start else "", "…" if end < len(text) else ""
    return repr(f"{before}{text[start:end]}{after}")
