"""How soon each host notices that a client has left: the time until its run is cancelled.

Three cases: an answer as JSON, for which nothing is written until it is complete; a stream that is
silent; a stream that gets a word every 50 ms.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from first_answer import PATIENCE_S, free_port
from leaving_backends import JOURNAL

HERE = Path(__file__).parent
PORT_FILE = "port"
#: What is not noticed within so many seconds is called not noticed.
LONGEST_S = 8.0


@dataclass(frozen=True)
class Host:
    """What runs the server.

    :param command: ``{port}`` stands for the port.
    :param needs: the module without which it is left out.
    """

    name: str
    command: tuple[str, ...]
    needs: str | None = None


@dataclass(frozen=True)
class Case:
    """What goes on when the client leaves."""

    name: str
    backend: str
    stream: bool


SERVE = (sys.executable, "-m", "caesar_server", "serve", "--port", "{port}")
GRANIAN = (
    *(sys.executable, "-m", "granian", "--interface", "wsgi", "--port", "{port}", "--http", "1"),
    *("--blocking-threads", "64", "--no-ws", "--factory"),
    "caesar_server.cli.workers.granian_app:create_app",
)
HOSTS = (
    Host("gunicorn, gthread", SERVE),
    Host("gunicorn, gevent", (*SERVE, "--worker-class", "gevent"), needs="gevent"),
    Host("granian", GRANIAN, needs="granian"),
    Host("LiveServer (tests)", (sys.executable, str(HERE / "client_gone.py"), "--live")),
)
CASES = (
    Case("JSON", "silent", stream=False),
    Case("silent stream", "silent", stream=True),
    Case("writing stream", "writing", stream=True),
)


@contextmanager
def running(host: Host, heartbeat_s: float) -> Iterator[tuple[int, Path]]:
    """Run a host; give its port once it answers, and its folder."""
    port = free_port()
    settings = {
        "CAESAR_SERVER_EXTRA_BACKENDS": (
            "silent=leaving_backends:SilentBackend,writing=leaving_backends:WritingBackend"
        ),
        "CAESAR_SERVER_HEARTBEAT_S": str(heartbeat_s),
        "CAESAR_SERVER_FIRST_EVENT_WAIT_S": "0",
        "CAESAR_SERVER_LOG_LEVEL": "error",
        "PYTHONPATH": str(HERE),
    }
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("wb") as output:
            server = subprocess.Popen(
                [part.format(port=port) for part in host.command],
                cwd=folder,
                env={**os.environ, **settings},
                stdout=output,
                stderr=output,
            )
        try:
            deadline = time.monotonic() + PATIENCE_S
            while (listening := _listening(port, Path(folder))) is None:
                if server.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(log.read_text())
                time.sleep(0.02)
            yield listening, Path(folder)
        finally:
            server.terminate()
            server.wait(PATIENCE_S)


def _listening(port: int, folder: Path) -> int | None:
    """Return the port on which connections are taken: the given one, or what the file says."""
    if (file := folder / PORT_FILE).exists():
        return int(file.read_text())
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except ConnectionError:
        return None
    return port


def notes(folder: Path, what: str) -> dict[str, float]:
    """Return when the runs began or ended, by prompt."""
    path = folder / JOURNAL
    lines = path.read_text().splitlines() if path.exists() else []
    rows = [line.split() for line in lines]
    return {prompt: float(at) for kind, prompt, at in rows if kind == what}


def noticed_after(port: int, folder: Path, case: Case, prompt: str) -> float | None:
    """Leave in the middle; return the seconds until the run learned of it, or None."""
    body = json.dumps({"model": case.backend, "prompt": prompt, "stream": case.stream}).encode()
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as client:
        client.sendall(
            b"POST /compat/completions HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
        )
        while prompt not in notes(folder, "began"):
            time.sleep(0.005)
        # somewhere within a heartbeat, as real clients leave
        time.sleep(0.3)
    left = time.monotonic()
    while (ended := notes(folder, "ended").get(prompt)) is None:
        if time.monotonic() > left + LONGEST_S:
            return None
        time.sleep(0.005)
    return max(0.0, ended - left)


def measure(host: Host, rounds: int, heartbeat_s: float) -> None:
    """Print the line of a host."""
    cells = []
    for case in CASES:
        # A server each: what was not noticed holds a thread.
        with running(host, heartbeat_s) as (port, folder):
            seen = [noticed_after(port, folder, case, f"p{n}") for n in range(rounds)]
        times = [at for at in seen if at is not None]
        cell = "not noticed"
        if times:
            cell = f"{1000 * statistics.median(times):.1f} ms (most {1000 * max(times):.1f})"
        cells.append(cell + ("" if len(times) in (0, rounds) else f", {rounds - len(times)} not"))
    print(f"  {host.name:20}" + "".join(f"{cell:26}" for cell in cells))


def serve_live() -> None:
    """Serve with the test server, which takes a free port and says which in a file."""
    from caesar_server.app import create_app
    from caesar_server.testing import LiveServer

    with LiveServer(create_app()) as server:
        unfinished = Path("port.new")
        unfinished.write_text(str(server.port))
        unfinished.rename(PORT_FILE)
        signal.sigwait({signal.SIGTERM})


def main() -> None:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--heartbeat-s", type=float, default=1.0)
    parser.add_argument("--live", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.live:
        serve_live()
        return
    print(f"Time until a client that left is noticed, heartbeat_s = {arguments.heartbeat_s:g},")
    print(f"median of {arguments.rounds} (most); not noticed: not within {LONGEST_S:g} s")
    print(f"  {'':20}" + "".join(f"{case.name:26}" for case in CASES))
    for host in HOSTS:
        if host.needs and importlib.util.find_spec(host.needs) is None:
            print(f"  {host.name:20}{host.needs} is not installed")
        else:
            measure(host, arguments.rounds, arguments.heartbeat_s)


if __name__ == "__main__":
    main()
