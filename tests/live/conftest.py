"""Real servers in processes of their own, to be killed, reloaded and kept waiting."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

DEADLINE_S = 30.0

#: ``ticks`` never ends; ``slow`` answers after ``tenths`` tenths of a second; each run that is over
#: leaves a line in the file ``journal``.
BACKENDS = """
import os
from dataclasses import dataclass

from caesar_server.contract import (
    Backend, Cancelled, ChoiceFinished, Completed, ContentDelta, option,
)


def note(line):
    with open("journal", "a") as journal:
        journal.write(f"{os.getpid()} {line}\\n")


class TicksBackend(Backend):
    def run(self, request, context):
        note(f"began {request.prompts[0]}")
        try:
            while True:
                yield ContentDelta("tick " * int(request.extra.get("words", 1)))
                if not request.extra.get("hurry"):
                    context.sleep(0.02)
        except (Cancelled, GeneratorExit) as end:
            note(f"ended {request.prompts[0]} {type(end).__name__}")
            raise


class SlowBackend(Backend):
    def run(self, request, context):
        note(f"began {request.prompts[0]}")
        context.sleep(int(request.extra.get("tenths", 10)) / 10)
        yield ContentDelta(f"from {os.getpid()}")
        yield ChoiceFinished()
        yield Completed()
"""


class Live:
    """One server: a gunicorn master and its workers."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self.folder = folder
        self.log_path = folder / "log"
        command = [sys.executable, "-m", "caesar_server", "serve", "--port", "0", *flags]
        for name in ("ticks:TicksBackend", "slow:SlowBackend"):
            command += ["--backend", f"{name.split(':')[0]}=backends:{name.split(':')[1]}"]
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        try:
            self.port = int(self.wait(lambda: re.search(r"Serving on \S+:(\d+)", self.log))[1])
            self.wait(self.answers)
        except BaseException:
            self.end()
            raise

    @property
    def log(self) -> str:
        """What it has logged so far."""
        return self.log_path.read_text()

    @property
    def journal(self) -> list[str]:
        """What the backends have noted so far."""
        path = self.folder / "journal"
        return path.read_text().splitlines() if path.exists() else []

    def workers(self) -> set[int]:
        """Return the process ids of the workers."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return set(map(int, children.read_text().split()))

    def wait(self, look: Callable[[], Any]) -> Any:
        """Return what ``look`` returns once it is true."""
        deadline = time.monotonic() + DEADLINE_S
        while not (seen := look()):
            code = self.process.poll()
            assert code is None or look(), f"the server ended with {code}:\n{self.log}"
            assert time.monotonic() < deadline, f"nothing came; log:\n{self.log}"
            time.sleep(0.01)
        return seen

    def answers(self) -> bool:
        """Return whether ``/healthz`` says 200."""
        try:
            return self.request("GET", "/healthz")[0] == 200
        except OSError:
            return False

    def request(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Return status and JSON body of one request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_S)
        with contextlib.closing(connection):
            headers = {"Content-Type": "application/json"}
            connection.request(method, path, body and json.dumps(body), headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read())

    def ask(self, model: str, prompt: str, **fields: Any) -> tuple[int, Any]:
        """Return status and body of a completion."""
        body = {"model": model, "prompt": prompt, **fields}
        return self.request("POST", "/compat/completions", body)

    def send(self, model: str, prompt: str, **fields: Any) -> socket.socket:
        """Send a completion request and return its open connection."""
        body = json.dumps({"model": model, "prompt": prompt, **fields}).encode()
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE_S)
        sock.sendall(
            b"POST /compat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
        )
        return sock

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the master."""
        self.process.send_signal(number)

    def end(self) -> None:
        """Stop it, by force if need be."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(DEADLINE_S)
            except subprocess.TimeoutExpired:
                for pid in self.workers():
                    os.kill(pid, signal.SIGKILL)
                self.process.kill()
                self.process.wait()


def read_all(sock: socket.socket) -> bytes:
    """Return all that comes until the other side closes."""
    with sock:
        return b"".join(iter(lambda: sock.recv(65536), b""))


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Live]]:
    """Start a server with the given flags; it ends with the test."""
    (tmp_path / "backends.py").write_text(BACKENDS)
    servers: list[Live] = []

    def start_one(*flags: str) -> Live:
        servers.append(Live(tmp_path, *flags))
        return servers[-1]

    yield start_one
    for server in servers:
        server.end()


@pytest.fixture
def read() -> Callable[[socket.socket], bytes]:
    """Read a connection to its end."""
    return read_all
