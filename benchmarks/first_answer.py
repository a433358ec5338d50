"""How long ``caesar-server serve`` takes from its start to the end of its first answer.

Run with ``make bench``.  The figure to watch: under 1.5 s.
"""

from __future__ import annotations

import http.client
import json
import socket
import statistics
import subprocess
import sys
import time

ROUNDS = 5
PATIENCE_S = 30.0
BODY = json.dumps({"model": "echo", "prompt": "To be, or not to be"})


def free_port() -> int:
    """Return a port of 127.0.0.1 that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def ask(port: int) -> bool:
    """Ask once; return whether the server is there yet.

    :raises RuntimeError: if it answers with anything but a completion.
    """
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        connection.request(
            "POST", "/compat/completions", BODY, {"Content-Type": "application/json"}
        )
        response = connection.getresponse()
        text = response.read()
    except ConnectionError:
        return False
    finally:
        connection.close()
    if response.status != 200 or not json.loads(text)["choices"][0]["text"]:
        raise RuntimeError(f"{response.status}: {text!r}")
    return True


def seconds() -> float:
    """Start a server, wait for its first answer, stop it."""
    port = free_port()
    start = time.perf_counter()
    command = [sys.executable, "-m", "caesar_server", "serve", "--port", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not ask(port):
            if server.poll() is not None:
                raise RuntimeError(f"the server ended with {server.returncode}")
            if time.perf_counter() - start > PATIENCE_S:
                raise RuntimeError(f"no answer within {PATIENCE_S} s")
            time.sleep(0.005)
        return time.perf_counter() - start
    finally:
        server.terminate()
        server.wait(PATIENCE_S)


def main() -> None:
    """Print median and best."""
    times = [seconds() for _ in range(ROUNDS)]
    print(f"serve to first answer: median {statistics.median(times):5.3f} s", end="   ")
    print(f"best {min(times):5.3f} s   of {ROUNDS}")


if __name__ == "__main__":
    main()
