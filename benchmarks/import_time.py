"""How long ``import caesar_server.app`` takes in a new interpreter, beyond the interpreter itself.

Run with ``make bench``.  The figure to watch: under 0.5 s.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

ROUNDS = 9


def seconds(code: str) -> float:
    """Return how long a new interpreter takes to run ``code``."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - start


def main() -> None:
    """Print median and best for the contract alone, the app and the program."""
    for name in ("caesar_server.contract", "caesar_server.app", "caesar_server.cli"):
        seconds(f"import {name}")  # fills the byte-code cache
        differences = [seconds(f"import {name}") - seconds("pass") for _ in range(ROUNDS)]
        median, best = statistics.median(differences), min(differences)
        print(f"import {name:24} median {median:5.3f} s   best {best:5.3f} s   of {ROUNDS}")


if __name__ == "__main__":
    main()
