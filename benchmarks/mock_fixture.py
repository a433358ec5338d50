"""How soon the fixture ``caesar_mock`` is ready, and what a test pays for it.

Run with ``make bench``.  The figure to watch: ready within 100 ms after the imports.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys

ROUNDS = 9
#: For a new interpreter: prints the seconds that :data:`NAMES` names.
PROGRAM = """
import http.client, json, sys, time

def seconds(since):
    return time.perf_counter() - since

start = time.perf_counter()
from caesar_server.testing import mock_server
imports = seconds(start)

def ask(mock):
    connection = http.client.HTTPConnection(mock.base_url.removeprefix("http://"))
    connection.request("GET", "/healthz")
    assert connection.getresponse().status == 200
    connection.close()

start = time.perf_counter()
server = mock_server()
with server as mock:
    ready = seconds(start)
    ask(mock)
    answered = seconds(start)
    start = time.perf_counter()
    for number in range(100):
        with server.scope(f"test-{number}") as one:
            one.on(prompt="Hi").reply("Hello")
    scope = seconds(start) / 100
    start = time.perf_counter()
stop = seconds(start)
print(json.dumps([imports, ready, answered, scope, stop]))
"""
NAMES = (
    "imports",
    "ready after them",
    "first answer after them",
    "each further test",
    "stop at the end",
)


def main() -> None:
    """Print the median and the worst of each figure."""
    runs = []
    for _ in range(ROUNDS + 1):
        command = [sys.executable, "-c", PROGRAM]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        runs.append(json.loads(done.stdout))
    for name, seen in zip(
        NAMES, zip(*runs[1:], strict=True), strict=True
    ):  # the first fills caches
        median, worst = 1000 * statistics.median(seen), 1000 * max(seen)
        print(f"fixture: {name:26} median {median:7.1f} ms   worst {worst:7.1f} ms   of {ROUNDS}")


if __name__ == "__main__":
    main()
