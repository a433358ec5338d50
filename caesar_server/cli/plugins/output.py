"""Keeping what plugins print out of what a command prints."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator

_STDOUT, _STDERR = 1, 2


@contextlib.contextmanager
def prints_aside() -> Iterator[None]:
    """Send to stderr what is printed within: stdout is the command's own, and may be JSON.

    Also what libraries written in C print, and programs that are started.
    """
    with contextlib.redirect_stdout(sys.stderr), _descriptor_aside():
        yield


@contextlib.contextmanager
def _descriptor_aside() -> Iterator[None]:
    try:
        kept = os.dup(_STDOUT)
    except OSError:  # it is closed
        yield
        return
    try:
        with contextlib.suppress(OSError):  # stderr is closed
            os.dup2(_STDERR, _STDOUT)
        yield
    finally:
        # C keeps what is printed until there is enough of it, or until the end of the process
        ctypes.CDLL(None).fflush(None)
        os.dup2(kept, _STDOUT)
        os.close(kept)
