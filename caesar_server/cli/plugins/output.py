"""Keeping what plugins print out of what a command prints."""

from __future__ import annotations

import contextlib
import sys
from contextlib import AbstractContextManager
from typing import TextIO


def prints_aside() -> AbstractContextManager[TextIO]:
    """Send to stderr what is printed within: stdout is the command's own, and may be JSON."""
    return contextlib.redirect_stdout(sys.stderr)
