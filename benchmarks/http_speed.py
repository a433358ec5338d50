"""Requests and chunks a second, against the same answers written by hand.

Each server runs with one worker pinned to one core, the load comes from another core (from wrk
where it is installed), and all contenders take turns in each round: only the ratios mean anything.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import http.client
import importlib.util
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from first_answer import PATIENCE_S, free_port
from floors import WORDS

HERE = Path(__file__).parent
CORES = sorted(os.sched_getaffinity(0))
SERVER_CORE, LOAD_CORE = CORES[0], CORES[-1]

JSON_BODY = json.dumps({"model": "echo", "prompt": "To be, or not to be"})
SSE_BODY = json.dumps({"model": "echo", "prompt": "word " * WORDS, "stream": True})


@dataclass(frozen=True)
class Contender:
    """A server to measure.

    :param command: what starts it; ``{port}`` stands for the port.
    :param needs: the module without which it is left out.
    :param store: where jobs are kept, if it keeps any.
    """

    name: str
    command: tuple[str, ...]
    needs: str | None = None
    streams: bool = True
    store: str | None = None


def _gunicorn(app: str, *, kind: str = "gthread") -> tuple[str, ...]:
    options = ("--threads", "64", "--worker-connections", "264") if kind == "gthread" else ()
    return (
        *(sys.executable, "-m", "gunicorn", "-k", kind, "-w", "1", *options),
        *("-b", "127.0.0.1:{port}", "--no-control-socket", app),
    )


SERVE = (sys.executable, "-m", "caesar_server", "serve", "--port", "{port}")
GRANIAN = (
    *(sys.executable, "-m", "granian", "--interface", "wsgi", "--port", "{port}"),
    *("--http", "1", "--no-ws", "--blocking-threads", "64", "--factory"),
    "caesar_server.cli.workers.granian_app:create_app",
)
CONTENDERS = (
    Contender("bare WSGI callable", _gunicorn("floors:bare"), streams=False),
    Contender("hand-written view", _gunicorn("floors:view")),
    *(
        Contender(f"{host}, jobs in {store}", command, needs, store=store)
        for store in ("memory", "sqlite")
        for host, command, needs in (
            ("gthread", SERVE, None),
            ("gevent", (*SERVE, "--worker-class", "gevent"), "gevent"),
            ("granian", GRANIAN, "granian"),
        )
    ),
)
FLOOR = "hand-written view"


@contextmanager
def running(contender: Contender) -> Iterator[int]:
    """Run a contender on its core; give its port once it answers."""
    port = free_port()
    command = [part.format(port=port) for part in contender.command]
    settings = {"CAESAR_SERVER_DEFAULT_BACKEND": "echo", "CAESAR_SERVER_LOG_LEVEL": "warning"}
    with tempfile.TemporaryFile() as log, tempfile.TemporaryDirectory() as data:
        if contender.store is not None:
            settings["CAESAR_SERVER_STORE"] = contender.store
            settings["XDG_STATE_HOME"] = data
        server = subprocess.Popen(
            ["taskset", "-c", str(SERVER_CORE), *command],
            cwd=HERE,
            env={**os.environ, **settings},
            stdout=log,
            stderr=log,
        )
        try:
            wait_for(server, port)
            yield port
        except RuntimeError:
            log.seek(0)
            print(log.read().decode(), file=sys.stderr)
            raise
        finally:
            server.terminate()
            server.wait(PATIENCE_S)


def wait_for(server: subprocess.Popen[bytes], port: int) -> None:
    """Wait until a server answers.

    :raises RuntimeError: if it ends or stays silent.
    """
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise RuntimeError(f"a server ended with {server.returncode}")
        try:
            post(port, JSON_BODY)
        except ConnectionError:
            time.sleep(0.02)
        else:
            return
    raise RuntimeError("a server does not answer")


def post(port: int, body: str) -> bytes:
    """Ask once and return the body.

    :raises RuntimeError: for another status than 200.
    """
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        connection.request("POST", "/compat/completions", body, _HEADERS)
        response = connection.getresponse()
        data = response.read()
    finally:
        connection.close()
    if response.status != 200:
        raise RuntimeError(f"{response.status}: {data[:200]!r}")
    return data


_HEADERS: Mapping[str, str] = {"Content-Type": "application/json"}


def rate(port: int, body: str, *, connections: int, seconds: float) -> float:
    """Return the answers a second of a server."""
    if shutil.which("wrk"):
        return _wrk(port, body, connections, seconds)
    end = time.perf_counter() + seconds
    with concurrent.futures.ThreadPoolExecutor(connections) as pool:
        counts = list(pool.map(lambda _: _ask_until(port, body, end), range(connections)))
    return sum(counts) / seconds


def _ask_until(port: int, body: str, end: float) -> int:
    count = 0
    while time.perf_counter() < end:
        post(port, body)
        count += 1
    return count


def _wrk(port: int, body: str, connections: int, seconds: float) -> float:
    script = (
        'wrk.method = "POST"\nwrk.headers["Content-Type"] = "application/json"\n'
        f"wrk.body = {json.dumps(body)}\n"
    )
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as file:
        file.write(script)
        file.flush()
        command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds:g}s", "-s", file.name]
        url = f"http://127.0.0.1:{port}/compat/completions"
        out = subprocess.run(
            ["taskset", "-c", str(LOAD_CORE), *command, url],
            check=True, capture_output=True, text=True,
        ).stdout  # fmt: skip
    if "Non-2xx" in out:
        raise RuntimeError(out)
    found = re.search(r"Requests/sec:\s+([\d.]+)", out)
    if found is None:
        raise RuntimeError(out)
    return float(found[1])


def measure(rounds: int, seconds: float, leave_out: str) -> None:
    """Print both tables."""
    wanted = [c for c in CONTENDERS if not (leave_out and re.search(leave_out, c.name))]
    present = [c for c in wanted if not c.needs or importlib.util.find_spec(c.needs)]
    for absent in set(wanted) - set(present):
        print(f"left out: {absent.name} ({absent.needs} is not installed)")
    with ExitStack() as stack:
        ports = {c.name: stack.enter_context(running(c)) for c in present}
        _table("JSON answers", "answers/s", 1, ports, JSON_BODY, 16, rounds, seconds)
        streaming = {c.name: ports[c.name] for c in present if c.streams}
        title = f"Streams of {WORDS} chunks"
        _table(title, "chunks/s", WORDS, streaming, SSE_BODY, 8, rounds, seconds)


def _table(
    title: str,
    unit: str,
    factor: int,
    ports: Mapping[str, int],
    body: str,
    connections: int,
    rounds: int,
    seconds: float,
) -> None:
    for port in ports.values():  # warm up
        rate(port, body, connections=connections, seconds=1)
    rates: dict[str, list[float]] = {name: [] for name in ports}
    for _ in range(rounds):
        for name, port in ports.items():
            rates[name].append(factor * rate(port, body, connections=connections, seconds=seconds))
    floor = statistics.median(rates[FLOOR])
    print(f"\n{title}: {unit}, median of {rounds} rounds of {seconds:g} s (least .. most)")
    for name, seen in rates.items():
        middle = statistics.median(seen)
        spread = f"({min(seen):,.0f} .. {max(seen):,.0f})"
        print(f"  {name:26}{middle:10,.0f}  {spread:24}  {middle / floor:5.2f} of the floor")


def main() -> None:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--leave-out", default="", metavar="REGEX", help="of contenders' names")
    arguments = parser.parse_args()
    measure(arguments.rounds, arguments.seconds, arguments.leave_out)


if __name__ == "__main__":
    main()
