"""Which rule a call matches, and which it nearly matches."""

from caesar_server.mock.matching.asked import ConditionError, conditions
from caesar_server.mock.matching.matchers import (
    Matcher,
    absent,
    anything,
    contains,
    exact,
    glob,
    predicate,
    regex,
)

__all__ = [
    "ConditionError",
    "Matcher",
    "absent",
    "anything",
    "conditions",
    "contains",
    "exact",
    "glob",
    "predicate",
    "regex",
]
