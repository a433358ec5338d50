"""What the scope of a test is called.  Imports nothing of the server; see the plugin."""

from __future__ import annotations

import hashlib
import re

#: Of a name, what is legible.
LONGEST_SLUG = 60


def scope_name(test_id: str, shown: str) -> str:
    """Return a name for a test's scope, the same in each run, since ids depend on it.

    >>> scope_name("tests/test_a.py::test_b[c/d]", "test_b[c/d]")
    'test_b-c-d-54076368'

    :param test_id: what no other test is called.
    :param shown: what makes the name legible.
    """
    slug = re.sub(r"[^A-Za-z0-9_]+", "-", shown).strip("-")
    digest = hashlib.sha256(test_id.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{slug[:LONGEST_SLUG]}-{digest}"
