"""What jobs that outlive their clients cost, against those that do not.

Run it from the repository's root; it prints everything, the table of ``stored_jobs.py`` at last::

    python benchmarks/durable_jobs.py [--database postgresql://USER@HOST/DATABASE] [--quick]

Each store is tried in turn: a SQLite file in a temporary folder, with both values of
``store_synchronous``, and PostgreSQL if a database is named; beside it a new one is made and
dropped.  Clients and servers share the machine, so the figures say less than those of
``http_speed.py``; compare them with one another.

* jobs/s: 16 connections, each asks for a JSON answer of 10 deltas, then for the next.
* first event: from sending a request for a stream until its first frame, one request at a time.
* an event: wall and processor time of all processes of the server, for a stream of many deltas
  without a pause and for one of a delta every 20 ms.
* followers: repeats of one request for a stream, all of which follow one job of 20 deltas a second;
  what they add to the processor time of the process that serves them, and to its memory.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import selectors
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from first_answer import PATIENCE_S, free_port
from http_speed import rate
from paced_streams import memory_kib

HERE = Path(__file__).parent
_TICKS = os.sysconf("SC_CLK_TCK")
_HEADERS = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class Place:
    """Where jobs are kept.

    :param model: the durable backend, or the one that is not.
    """

    name: str
    url: str
    model: str = "durable"
    synchronous: str = "normal"


@dataclass(frozen=True)
class Sizes:
    """How much of everything."""

    seconds: float = 5.0
    requests: int = 100
    events: int = 20_000
    paced_events: int = 250
    followers: int = 500
    followed_s: int = 20


QUICK = Sizes(seconds=1.0, requests=20, events=2000, paced_events=50, followers=50, followed_s=5)


@dataclass(frozen=True)
class Server:
    """A server, and workers beside it."""

    port: int
    process: subprocess.Popen[bytes]
    workers: Sequence[subprocess.Popen[bytes]]

    def cpu_s(self) -> float:
        """Return the processor time of all of it so far, in seconds."""
        return sum(cpu_s(process.pid) for process in (self.process, *self.workers))


def cpu_s(pid: int) -> float:
    """Return the processor time of a process and its living children, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return (int(fields[11]) + int(fields[12])) / _TICKS + sum(map(cpu_s, map(int, children)))


@contextmanager
def serving(place: Place, *flags: str, workers: int = 0) -> Iterator[Server]:
    """Run a server, and workers, for a ``with`` block."""
    port = free_port()
    backends = (
        "durable=durable_backend:DurableBackend",
        "fleeting=durable_backend:FleetingBackend",
    )
    settings = {
        "STORE": place.url,
        "STORE_SYNCHRONOUS": place.synchronous,
        "EXTRA_BACKENDS": ",".join(backends),
        "DEFAULT_BACKEND": place.model,
        "LOG_LEVEL": "warning",
        "STORED_JOBS": "1000000",
    }
    env = {**os.environ, **{f"CAESAR_SERVER_{name}": text for name, text in settings.items()}}
    command = (sys.executable, "-m", "caesar_server")
    with ExitStack() as stack:

        def run(*arguments: str) -> subprocess.Popen[bytes]:
            process = subprocess.Popen([*command, *arguments], cwd=HERE, env=env)
            stack.callback(process.wait, PATIENCE_S)
            stack.callback(process.terminate)
            return process

        server = run("serve", "--port", str(port), *flags)
        others = [run("worker") for _ in range(workers)]
        _wait(port, server)
        yield Server(port, server, others)


def _wait(port: int, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and server.poll() is None:
        try:
            _ask(port, "1 0")
        except ConnectionError:
            time.sleep(0.02)
        else:
            return
    raise RuntimeError("the server does not answer")


def _body(prompt: str, *, stream: bool) -> str:
    return json.dumps({"model": "any", "prompt": prompt, "stream": stream})


def _ask(port: int, prompt: str, *, stream: bool = False) -> tuple[float, int]:
    """Ask once; return seconds until the first bytes of the body, and the body's length."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10 * PATIENCE_S)
    try:
        began = time.perf_counter()
        body = _body(prompt, stream=stream)
        connection.request("POST", "/compat/completions", body, _HEADERS)
        response = connection.getresponse()
        data = response.read1(65536)
        first_s = time.perf_counter() - began
        data += response.read()
    finally:
        connection.close()
    if response.status != 200 or b"error" in data[:20]:
        raise RuntimeError(f"{response.status}: {data[:200]!r}")
    return first_s, len(data)


def jobs_a_second(place: Place, sizes: Sizes) -> None:
    """Print the rates with one and two processes."""
    for processes in (1, 2):
        with serving(place, "--workers", str(processes)) as server:
            body = _body("10 0", stream=False)
            per_s = rate(server.port, body, connections=16, seconds=sizes.seconds)
        print(f"  {f'jobs/s, {processes} workers of serve':42}{per_s:10.0f}")


def first_event(place: Place, sizes: Sizes) -> None:
    """Print the times until the first event; also where another process runs the job."""
    ways: list[tuple[str, tuple[str, ...], int]] = [("first event, ms: median, 95th", (), 0)]
    if place.model == "durable":
        ways.append(("the same, run by `caesar-server worker`", ("--no-run-jobs",), 1))
    for name, flags, workers in ways:
        with serving(place, *flags, workers=workers) as server:
            _ask(server.port, "1 0", stream=True)
            times = sorted(
                _ask(server.port, "3 0", stream=True)[0] * 1e3 for _ in range(sizes.requests)
            )
        median, late = statistics.median(times), times[len(times) * 95 // 100]
        print(f"  {name:42}{median:10.1f}{late:10.1f}")


def events(place: Place, sizes: Sizes) -> None:
    """Print what an event costs."""
    with serving(place) as server:
        for name, count, pace_s in (
            ("an event, us: wall, processor", sizes.events, 0.0),
            ("the same, one every 20 ms", sizes.paced_events, 0.02),
        ):
            before, began = server.cpu_s(), time.perf_counter()
            _ask(server.port, f"{count} {pace_s}", stream=True)
            wall_us = (time.perf_counter() - began) / count * 1e6
            cpu_us = (server.cpu_s() - before) / count * 1e6
            print(f"  {name:42}{wall_us:10.0f}{cpu_us:10.0f}")


def followers(place: Place, sizes: Sizes) -> None:
    """Print what followers cost the process that serves them, in which the job does not run."""
    threads, streams = str(sizes.followers + 20), str(sizes.followers)
    flags = ("--threads", threads, "--max-streams", streams, "--no-run-jobs")
    with serving(place, *flags, workers=1) as server:
        alone = _follow(server, 1, sizes.followed_s)
        many = _follow(server, sizes.followers, sizes.followed_s)
    count = sizes.followers - 1
    cpu_ms = (many[0] - alone[0]) / sizes.followed_s / count * 1e3
    kib = (many[1] - alone[1]) / count
    print(f"  {f'{sizes.followers} followers: ms of processor a second, KiB each':42}", end="")
    print(f"{cpu_ms:10.2f}{kib:10.0f}")
    print(f"  {'the process, % of a core: 1, all':42}", end="")
    print("".join(f"{one[0] / sizes.followed_s:10.0%}" for one in (alone, many)))


def _follow(server: Server, count: int, seconds: int) -> tuple[float, int]:
    """Follow one job ``count`` times to its end.

    :return: the server's processor seconds from the moment when all follow to the end, scaled to
        the length of the job, and its memory in KiB half-way.
    """
    deltas = 20 * seconds
    prompt = f"{deltas} 0.05 {uuid.uuid4()}"
    with selectors.DefaultSelector() as selector:
        ended = [_open(server.port, prompt, selector, repeat=False)]
        _read_for(selector, ended, 1.0)
        ended += [_open(server.port, prompt, selector, repeat=True) for _ in range(count - 1)]
        began, before = time.perf_counter(), cpu_s(server.process.pid)
        _read_for(selector, ended, seconds / 2)
        memory = memory_kib(server.process.pid)
        _read_for(selector, ended, PATIENCE_S)
        took_s, used_s = time.perf_counter() - began, cpu_s(server.process.pid) - before
    whole = sum(stream.data.count(b'"text":"word') == deltas for stream in ended)
    if whole != count:
        raise RuntimeError(f"only {whole} of {count} followers got the whole text")
    return used_s * seconds / took_s, memory


@dataclass
class _Stream:
    sock: socket.socket
    data: bytearray


def _open(port: int, prompt: str, selector: selectors.BaseSelector, *, repeat: bool) -> _Stream:
    body = _body(prompt, stream=True)
    sock = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
    sock.sendall(
        "POST /compat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        f"x-stainless-retry-count: {int(repeat)}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
    )
    stream = _Stream(sock, bytearray())
    selector.register(sock, selectors.EVENT_READ, stream)
    return stream


def _read_for(selector: selectors.BaseSelector, streams: Sequence[_Stream], seconds: float) -> None:
    """Read what comes until all have ended or the time is up."""
    until = time.perf_counter() + seconds
    while selector.get_map() and time.perf_counter() < until:
        for key, _ in selector.select(0.1):
            data = key.data.sock.recv(65536)
            key.data.data += data
            if not data:
                selector.unregister(key.fileobj)
                key.data.sock.close()


@contextmanager
def new_database(url: str) -> Iterator[str]:
    """Make a database beside the one that is named, for a ``with`` block; gives its URL."""
    import psycopg

    name = f"caesar_bench_{uuid.uuid4().hex}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        try:
            yield urllib.parse.urlsplit(url)._replace(path=f"/{name}").geturl()
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--database", metavar="URL", help="also try PostgreSQL")
    parser.add_argument("--quick", action="store_true", help="only see that all of it works")
    given = parser.parse_args()
    sizes = QUICK if given.quick else Sizes()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        files = [f"sqlite:///{folder / f'{number}.sqlite3'}" for number in range(3)]
        places = [
            Place("not durable, jobs in SQLite", files[0], model="fleeting"),
            Place("SQLite, synchronous normal", files[1]),
            Place("SQLite, synchronous full", files[2], synchronous="full"),
        ]
        if given.database:
            places.append(Place("PostgreSQL", stack.enter_context(new_database(given.database))))
        for place in places:
            print(place.name)
            jobs_a_second(place, sizes)
            first_event(place, sizes)
            events(place, sizes)
            if place.model == "durable" and place.synchronous == "normal":
                followers(place, sizes)
        stored = ["1000,10000" if given.quick else "1000,1000000"]
        for place in places[1::2]:
            print(f"\n{place.name}: calls of the store by the number of jobs in it", flush=True)
            named = [] if place.url.startswith("sqlite") else ["--store", place.url]
            _forget(place)
            script = [sys.executable, str(HERE / "stored_jobs.py"), "--jobs", *stored, *named]
            subprocess.run(script, check=True)


def _forget(place: Place) -> None:
    """Drop the tables that the servers have left in a database."""
    command = [sys.executable, "-m", "caesar_server", "store", "downgrade", "base", "--yes"]
    env = {**os.environ, "CAESAR_SERVER_STORE": place.url}
    subprocess.run(command, check=True, env=env, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
