"""Many slow streams at once: who is starved, how even the pace is, what a stream costs in memory.

The figures to watch: every stream is served and the pace is off by less than a tenth.  A stream
holds two threads, the request's and the run's.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import re
import selectors
import socket
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from first_answer import PATIENCE_S, free_port
from paced_backend import CHUNKS, PACE_S

HERE = Path(__file__).parent
BODY = json.dumps({"model": "paced", "prompt": "p", "stream": True}).encode()
REQUEST = (
    b"POST /compat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY)
)


@dataclass
class Stream:
    """One stream as its client sees it; times in seconds since the request was sent."""

    sock: socket.socket
    sent_at: float
    chunks: list[float] = field(default_factory=list)
    done: bool = False


def memory_kib(pid: int) -> int:
    """Return the proportional share of memory of a process and its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    own = Path(f"/proc/{pid}/smaps_rollup").read_text()
    found = re.search(r"^Pss:\s+(\d+) kB", own, re.MULTILINE)
    return (int(found[1]) if found else 0) + sum(memory_kib(int(child)) for child in children)


def run_streams(port: int, count: int, server: int) -> tuple[list[Stream], int]:
    """Open ``count`` streams and read them to their end; with the memory of the server half-way."""
    selector = selectors.DefaultSelector()
    with concurrent.futures.ThreadPoolExecutor(1) as opener:
        opening = opener.submit(_open, port, count, selector)
        memory = _read(selector, server, opening)
        return opening.result(), memory


def _open(port: int, count: int, selector: selectors.BaseSelector) -> list[Stream]:
    streams = []
    for _ in range(count):
        sock = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        sock.sendall(REQUEST)
        sock.setblocking(False)
        streams.append(Stream(sock, time.perf_counter()))
        selector.register(sock, selectors.EVENT_READ, streams[-1])
    return streams


def _read(
    selector: selectors.BaseSelector, server: int, opening: concurrent.futures.Future[Any]
) -> int:
    half, memory = time.perf_counter() + CHUNKS * PACE_S / 2, 0
    end = time.perf_counter() + CHUNKS * PACE_S + PATIENCE_S
    while (selector.get_map() or not opening.done()) and time.perf_counter() < end:
        for key, _ in selector.select(0.1):
            if not _take(key.data):
                selector.unregister(key.fileobj)
                key.data.sock.close()
        if not memory and time.perf_counter() > half:
            memory = memory_kib(server)
    return memory


def _take(stream: Stream) -> bool:
    """Take what has come; return whether the stream goes on."""
    data = stream.sock.recv(65536)
    now = time.perf_counter() - stream.sent_at
    stream.chunks += [now] * len(re.findall(rb'"text":"\d', data))
    stream.done = stream.done or b"[DONE]" in data
    return bool(data)


def main() -> None:
    """Run one server and print what its streams saw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=500)
    count = parser.parse_args().streams
    port = free_port()
    command = [sys.executable, "-m", "caesar_server", "serve", "--port", str(port)]
    options = [
        "--threads",
        str(count + 8),
        "--max-streams",
        str(count),
        "--backend",
        "paced_backend.py",
    ]
    options += ["--log-level", "warning"]
    server = subprocess.Popen([*command, *options], cwd=HERE, stderr=subprocess.DEVNULL)
    try:
        _wait(port)
        run_streams(port, 1, server.pid)  # loads what is loaded late
        before = memory_kib(server.pid)
        streams, during = run_streams(port, count, server.pid)
    finally:
        server.terminate()
        server.wait(PATIENCE_S)
    _report(streams, during - before)


def _wait(port: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except ConnectionError:
            time.sleep(0.02)
        else:
            return
    raise RuntimeError("the server does not listen")


def _report(streams: list[Stream], memory: int) -> None:
    served = [s for s in streams if s.done and len(s.chunks) == CHUNKS]
    firsts = sorted(s.chunks[0] for s in served)
    gaps = sorted(b - a for s in served for a, b in zip(s.chunks, s.chunks[1:], strict=False))
    off = sorted(abs(gap - PACE_S) / PACE_S for gap in gaps)
    print(f"\n{len(streams)} streams of {CHUNKS} chunks, one every {PACE_S:g} s")
    print(f"  served to the end   {len(served)}")
    print(f"  first chunk         median {statistics.median(firsts) * 1000:.0f} ms", end="   ")
    print(f"99th {firsts[len(firsts) * 99 // 100] * 1000:.0f} ms")
    print(f"  pace is off by      median {statistics.median(off):.1%}", end="   ")
    print(f"99th {off[len(off) * 99 // 100]:.1%}")
    print(f"  memory a stream     {memory / len(streams):.0f} KiB")


if __name__ == "__main__":
    main()
