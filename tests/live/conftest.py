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

DEADLINE_S = 60.0

#: ``ticks`` never ends, nor does ``silent``, which says nothing; ``steps`` waits for a file before
#: each delta; ``busy`` declares that it computes; ``slow`` answers after ``tenths`` tenths of a
#: second; ``lasting`` is durable and waits for a file before each word of its text; each run
#: that is over leaves a line in the file ``journal``.
BACKENDS = """
import os
from dataclasses import dataclass

from caesar_server.contract import (
    Backend, Cancelled, Capabilities, ChoiceFinished, Completed, ContentDelta, option,
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


class SilentBackend(Backend):
    def run(self, request, context):
        note(f"began {request.prompts[0]}")
        try:
            context.sleep(3600)
            yield Completed()
        except (Cancelled, GeneratorExit) as end:
            note(f"ended {request.prompts[0]} {type(end).__name__}")
            raise

    def close(self):
        note("closed silent")


class StepsBackend(Backend):
    def run(self, request, context):
        note(f"began {request.prompts[0]}")
        for number in range(3):
            while not os.path.exists(f"step-{number}"):
                context.sleep(0.01)
            yield ContentDelta(f"step {number}")
        yield ChoiceFinished()
        yield Completed()


class BusyBackend(Backend):
    capabilities = Capabilities(cpu_bound=True)

    def run(self, request, context):
        yield ContentDelta("busy")
        yield ChoiceFinished()
        yield Completed()


class SlowBackend(Backend):
    def run(self, request, context):
        note(f"began {request.prompts[0]}")
        context.sleep(int(request.extra.get("tenths", 10)) / 10)
        yield ContentDelta(f"from {os.getpid()}")
        for _ in range(int(request.extra.get("megabytes", 0))):
            yield ContentDelta("x" * 1_000_000)
        yield ChoiceFinished()
        yield Completed()


class LastingBackend(Backend):
    capabilities = Capabilities(durable=True)

    def run(self, request, context):
        text = (context.restored or {}).get("text")
        if text is None:
            note(f"found {request.prompts[0]}")
            text = f"found by {os.getpid()} "
            context.checkpoint({"text": text})
        note(f"attempt {context.attempt} {request.prompts[0]}")
        for number, word in enumerate(text.split()):
            while not os.path.exists(f"word-{number}"):
                context.sleep(0.01)
            yield ContentDelta(word + " ")
        yield ChoiceFinished()
        yield Completed()
"""


#: Each host that can run the server, and the modules that it needs.
HOSTS = {"gthread": (), "gevent": ("gevent", "packaging"), "granian": ("granian",)}


def serve_command(host: str) -> list[str]:
    """Return what starts the server on gunicorn."""
    return [sys.executable, "-m", "caesar_server", "serve", "--worker-class", host, "--port", "0"]


def granian_command(port: int) -> list[str]:
    """Return what starts the server on granian, as the manual has it."""
    return [
        *(sys.executable, "-m", "granian", "--interface", "wsgi", "--http", "1", "--no-ws"),
        *("--blocking-threads", "64", "--port", str(port), "--factory"),
        "caesar_server.cli.workers.granian_app:create_app",
    ]


def environment(flags: tuple[str, ...]) -> dict[str, str]:
    """Return the variables that say the same as flags; each flag has a value."""
    names = [flag.removeprefix("--").replace("-", "_").upper() for flag in flags[::2]]
    return {f"CAESAR_SERVER_{name}": value for name, value in zip(names, flags[1::2], strict=True)}


_NAMES = ("Ticks", "Silent", "Steps", "Busy", "Slow", "Lasting")
EXTRA_BACKENDS = [f"{name.lower()}=backends:{name}Backend" for name in _NAMES]


class Live:
    """One server: a master and its workers.

    :param flags: settings as ``serve`` takes them.
    :param host: one of ``HOSTS``.
    :param port: for granian, which cannot tell one that it has chosen.
    """

    def __init__(self, folder: Path, *flags: str, host: str = "gthread", port: int = 0) -> None:
        self.folder = folder
        self.log_path = folder / "log"
        command = granian_command(port) if host == "granian" else serve_command(host)
        variables = {"CAESAR_SERVER_EXTRA_BACKENDS": ",".join(EXTRA_BACKENDS)}
        if host == "granian":
            variables |= environment(flags)
        else:
            command += flags
            if any(flag.startswith("--workers") for flag in flags) and "--store" not in flags:
                # several processes share no memory
                command += ("--store", f"sqlite:///{folder}/jobs.sqlite3")
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                env={**os.environ, **variables},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        begun = r"(?:Serving on|Listening at:) \S+:(\d+)\s"
        try:
            self.port = int(self.wait(lambda: re.search(begun, self.log))[1])
            self.wait(self.answers)
        except BaseException:
            self.end()
            raise

    @property
    def log(self) -> str:
        """What it has logged so far."""
        return self.log_path.read_text(errors="replace")

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
        return self.send_raw(json.dumps({"model": model, "prompt": prompt, **fields}).encode())

    def send_raw(self, body: bytes, *headers: str) -> socket.socket:
        """Send a completion request with this body and further headers, likewise."""
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE_S)
        more = "".join(f"{header}\r\n" for header in headers).encode()
        sock.sendall(
            b"POST /compat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%b"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
            % (more, len(body), body)
        )
        return sock

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the master."""
        self.process.send_signal(number)

    def exit_code(self) -> int:
        """Wait until it has ended and return its exit code."""
        return self.process.wait(DEADLINE_S)

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
def host() -> str:
    """What runs every server; a test that is parametrised with it runs on several."""
    return "gthread"


@pytest.fixture
def start(tmp_path: Path, host: str, free_port: Callable[[], int]) -> Iterator[Callable[..., Live]]:
    """Start a server with the given flags; it ends with the test."""
    for module in HOSTS[host]:
        pytest.importorskip(module)
    (tmp_path / "backends.py").write_text(BACKENDS)
    servers: list[Live] = []

    def start_one(*flags: str) -> Live:
        servers.append(Live(tmp_path, *flags, host=host, port=free_port()))
        return servers[-1]

    yield start_one
    for server in servers:
        server.end()


#: What a slow machine must not seem to exceed, by module.
LONG_WAITS = """
from caesar_server.cli import gunicorn_options
from caesar_server.web.limiting import rates

gunicorn_options._KEEP_ALIVE_S = 600
rates._STORAGE_TIMEOUT_S = 60.0
"""


@pytest.fixture
def long_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let servers wait for idle connections and for Redis far longer than a test does."""
    (tmp_path / "sitecustomize.py").write_text(LONG_WAITS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


@pytest.fixture(scope="session")
def live() -> type[Live]:
    """What starts a server of several tests: called with a folder and flags; end it."""
    return Live


@pytest.fixture
def read() -> Callable[[socket.socket], bytes]:
    """Read a connection to its end."""
    return read_all
