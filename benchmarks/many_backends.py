"""What 50 installed backends cost at start: each is found by its metadata and imported by nobody.

Run with ``make bench``.  The figure to watch: the difference, a few milliseconds.  The backends are
distributions as pip leaves them, each with a module that takes a second to import, a command and
settings defaults.
"""

from __future__ import annotations

import http.client
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BACKENDS = 50
ROUNDS = 7
PATIENCE_S = 30.0
#: A module that would be noticed.
SLOW_MODULE = "import time\ntime.sleep(1)\nraise RuntimeError('this was imported')\n"


def install(site: Path, number: int) -> None:
    """Leave a backend in a folder as pip would."""
    package = f"caesar_backend_dummy{number}"
    info = site / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {package.replace('_', '-')}\nVersion: 1.0\n"
    )
    (info / "entry_points.txt").write_text(
        f"[caesar_server.backends]\ndummy{number} = {package}:DummyBackend\n"
        f"[caesar_server.commands]\ndummy{number} = {package}:command\n"
        f"[caesar_server.settings_defaults]\ndummy{number} = {package}:defaults.toml\n"
    )
    (site / package).mkdir()
    (site / package / "__init__.py").write_text(SLOW_MODULE)
    (site / package / "defaults.toml").write_text("request_timeout_s = 500\n")


def command_s(arguments: list[str], env: dict[str, str]) -> float:
    """Return how long a command of the server takes."""
    start = time.perf_counter()
    program = [sys.executable, "-m", "caesar_server", *arguments]
    subprocess.run(program, check=True, env=env, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def serve_s(env: dict[str, str]) -> float:
    """Return how long ``serve`` takes until ``/healthz`` answers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    start = time.perf_counter()
    server = subprocess.Popen(
        [sys.executable, "-m", "caesar_server", "serve", "--port", str(port)],
        env=env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while not answers(port):
            if server.poll() is not None or time.perf_counter() - start > PATIENCE_S:
                raise RuntimeError(f"no answer; exit status {server.poll()}")
            time.sleep(0.002)
        return time.perf_counter() - start
    finally:
        server.terminate()
        server.wait(PATIENCE_S)


def answers(port: int) -> bool:
    """Return whether a server is there."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def main() -> None:
    """Print the medians without and with the backends, measured in turn."""
    with tempfile.TemporaryDirectory() as folder:
        for number in range(BACKENDS):
            install(Path(folder), number)
        without = {**os.environ}
        path = os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))
        with_them = {**os.environ, "PYTHONPATH": path}
        measures = {
            "caesar-server --help": lambda env: command_s(["--help"], env),
            "caesar-server settings": lambda env: command_s(["settings"], env),
            "serve to /healthz": serve_s,
        }
        for name, measure in measures.items():
            measure(with_them)  # fills the byte-code cache
            pairs = [(measure(without), measure(with_them)) for _ in range(ROUNDS)]
            none, many = (statistics.median(column) for column in zip(*pairs, strict=True))
            print(
                f"{name:24} median {none:5.3f} s without, {many:5.3f} s with {BACKENDS} backends   "
                f"difference {1000 * (many - none):+4.0f} ms   of {ROUNDS}"
            )


if __name__ == "__main__":
    main()
