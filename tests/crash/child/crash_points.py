"""Points that a process reaches, at which a test may have it killed or stopped.

A point is *armed* by a file of its name that holds the name of a signal; the first process that
reaches it takes the file and sends itself that signal.  What was sent is told in the file
``fired``.  ``CRASH_FOLDER`` is where all of it lies.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

FOLDER = Path(os.environ["CRASH_FOLDER"])


def reach(point: str, job_id: str = "-") -> None:
    """Be at a point: perhaps for the last time."""
    armed = FOLDER / point
    try:
        number = signal.Signals[armed.read_text()]
        armed.unlink()
    except FileNotFoundError:
        return
    note("fired", point, number.name, job_id)
    os.kill(os.getpid(), number)


def note(file: str, *words: str) -> None:
    """Add a line: when, which process, and the words."""
    with (FOLDER / file).open("a") as lines:
        lines.write(" ".join([f"{time.time():.6f}", str(os.getpid()), *words]) + "\n")
