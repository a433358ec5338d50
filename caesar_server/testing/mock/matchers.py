"""What a condition of a rule may be besides a plain value."""

from __future__ import annotations

from caesar_server.mock.matching import (
    Matcher,
    absent,
    anything,
    contains,
    exact,
    glob,
    predicate,
    regex,
)

__all__ = ["Matcher", "absent", "anything", "contains", "exact", "glob", "predicate", "regex"]
