"""Whether memory stays flat: many requests and streams against one worker, with its size between.

Finished jobs are kept (``stored_jobs``), so the size grows until that many are there; the figure to
watch is the growth after that.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile

from first_answer import PATIENCE_S, free_port
from http_speed import post, wait_for
from paced_streams import memory_kib

WORDS = 50
STEPS = 5


def main() -> None:
    """Print the worker's size after each part of the load."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--streams", type=int, default=10_000)
    arguments = parser.parse_args()
    port = free_port()
    settings = {"CAESAR_SERVER_DEFAULT_BACKEND": "echo", "CAESAR_SERVER_LOG_LEVEL": "warning"}
    with tempfile.TemporaryFile() as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "caesar_server", "serve", "--port", str(port)],
            env={**os.environ, **settings},
            stdout=log,
            stderr=log,
        )
        try:
            wait_for(server, port)
            _load(port, server.pid, "requests", arguments.requests, stream=False)
            _load(port, server.pid, "streams", arguments.streams, stream=True)
        finally:
            server.terminate()
            server.wait(PATIENCE_S)


def _load(port: int, server: int, what: str, count: int, *, stream: bool) -> None:
    body = json.dumps({"model": "echo", "prompt": "word " * WORDS, "stream": stream})
    sizes = []
    for _ in range(STEPS):
        for _ in range(count // STEPS):
            post(port, body)
        sizes.append(memory_kib(server) / 1024)
    shown = "  ".join(f"{size:.1f}" for size in sizes)
    print(f"MiB after each fifth of {count:,} {what}: {shown}")


if __name__ == "__main__":
    main()
