"""Real servers under gunicorn, with models that are asked over HTTP."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

#: Seconds after which something that should happen did not.
DEADLINE_S = 60.0
#: Longer than any test waits: 60,000 tokens.
ENDLESS = {"ignore_eos": True, "max_tokens": 60_000}

#: A backend that lets an assertion of the native library fail, in its worker.
CRASH = """
import ctypes

from caesar_server.contract import Backend


class CrashBackend(Backend):
    def run(self, request, context):
        from caesar_backend_local_llm.engine.native import native

        library = native().lib._lib
        abort = ctypes.CDLL(library._name, handle=library._handle).ggml_abort
        abort(b"file.c", 7, b"GGML_ASSERT(%s) failed", b"all is well")
        yield
"""


class Live:
    """One server: a master and its workers.

    :param settings: of the file, in TOML.
    """

    def __init__(self, folder: Path, settings: str, *flags: str) -> None:
        (folder / "caesar-server.toml").write_text(settings)
        (folder / "crash.py").write_text(CRASH)
        self.log_path = folder / "log"
        # several workers share no memory
        store = f"sqlite:///{folder}/jobs.sqlite3"
        command = [sys.executable, "-m", "caesar_server", "serve", "--port", "0", "--store", store]
        command += flags
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        try:
            self.port = int(self.wait(lambda: re.search(r"Serving on \S+:(\d+)", self.log))[1])
            self.wait(self._answers)
        except BaseException:
            self.end()
            raise

    @property
    def log(self) -> str:
        """What it has logged so far."""
        return self.log_path.read_text()

    @property
    def base_url(self) -> str:
        """For clients of OpenAI's API."""
        return f"http://127.0.0.1:{self.port}/compat"

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

    def _answers(self) -> bool:
        with contextlib.suppress(OSError):
            return self.get("/healthz")[0] == 200
        return False

    def get(self, path: str) -> tuple[int, str]:
        """Return status and body of a page."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_S)
        with contextlib.closing(connection):
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()

    def ask(
        self, model: str, prompt: Any, **fields: Any
    ) -> tuple[int, Any, http.client.HTTPMessage]:
        """Return status, body and headers of a completion."""
        body = json.dumps({"model": f"local_llm/{model}", "prompt": prompt, **fields})
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_S)
        with contextlib.closing(connection):
            headers = {"Content-Type": "application/json"}
            connection.request("POST", "/compat/completions", body, headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read()), response.headers

    def send(self, model: str, prompt: Any, **fields: Any) -> Asked:
        """Send a completion request and return its open connection."""
        body = json.dumps({"model": model, "prompt": prompt, **fields}).encode()
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE_S)
        sock.sendall(
            b"POST /compat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
        )
        return Asked(sock)

    def stream(self, model: str, **fields: Any) -> Asked:
        """Return a stream without end from which some has come."""
        asked = self.send(f"local_llm/{model}", "Once upon", stream=True, **ENDLESS, **fields)
        asked.read_chunks(2)
        return asked

    def worker_of(self, asked: Asked) -> int:
        """Return the process id of the worker that answers on a connection."""
        ends = f":{self.port:04X}", f":{asked.socket.getsockname()[1]:04X}"
        table = Path("/proc/net/tcp").read_text().splitlines()[1:]
        rows = [line.split() for line in table]  # number, own end, other end, ..., inode
        (inode,) = [row[9] for row in rows if (row[1][-5:], row[2][-5:]) == ends]
        (pid,) = [pid for pid in self.workers() if f"socket:[{inode}]" in _open_files(pid)]
        return pid

    def at_work(self, model: str) -> int:
        """Return how many instances of a model are at work in the only worker."""
        found = re.search(rf"{model}: loaded, (\d+) of", self.get("/readyz")[1])
        return int(found[1]) if found else 0

    def metric(self, name: str, model: str) -> float:
        """Return a figure of ``/metrics``; 0 if there is none yet."""
        found = re.search(
            rf'^caesar_backend_local_llm_{name}\{{.*model="{model}".*\}} (\S+)$',
            self.get("/metrics")[1],
            re.MULTILINE,
        )
        return float(found[1]) if found else 0.0

    def end(self) -> None:
        """Stop it, by force if need be."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(DEADLINE_S)
            except subprocess.TimeoutExpired:
                for pid in self.workers():
                    os.kill(pid, 9)
                self.process.kill()
                self.process.wait()


class Asked:
    """A connection on which an answer comes."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self._file = sock.makefile("rb")

    def read_chunks(self, count: int) -> list[bytes]:
        """Return so many chunks of the stream; fewer if it ends."""
        chunks: list[bytes] = []
        while len(chunks) < count and (line := self._file.readline()):
            if line.startswith(b"data: "):
                chunks.append(line)
        return chunks

    def leave(self) -> None:
        """Hang up."""
        self._file.close()
        self.socket.close()


def _open_files(pid: int) -> set[str]:
    found = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.add(str(link.readlink()))
    return found


@pytest.fixture(scope="session")
def settings(engine: Any, tiny_model: Callable[..., Any]) -> str:
    """Settings with models of several kinds."""
    noise, script = tiny_model("random", fill_in=True).path, tiny_model("echo").path
    deep = tiny_model("random", layers=40, context=8192).path
    return f"""
default_backend = "local_llm"

[backends.local_llm.models.noise]
path = "{noise}"
n_ctx = 65536
instances = 2

[backends.local_llm.models.script]
path = "{script}"
temperature = 0

[backends.local_llm.models.alone]
path = "{noise}"
n_ctx = 65536
queue = 1
wait_s = 60

[backends.local_llm.models.hasty]
path = "{noise}"
n_ctx = 65536
wait_s = 0.2

[backends.local_llm.models.deep]
path = "{deep}"
n_ctx = 8192
batch_tokens = 8192
"""


@pytest.fixture(scope="session")
def server(settings: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A server with two workers, for clients that do no harm."""
    live = Live(tmp_path_factory.mktemp("server"), settings, "--workers", "2")
    yield live
    live.end()


@pytest.fixture(scope="session")
def one_worker(settings: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A server with one worker: who asks twice asks the same."""
    live = Live(tmp_path_factory.mktemp("one-worker"), settings, "--threads", "16")
    yield live
    live.end()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Live]]:
    """Start a server that a test may break."""
    servers: list[Live] = []

    def start_one(settings: str, *flags: str) -> Live:
        servers.append(Live(tmp_path, settings, *flags))
        return servers[-1]

    yield start_one
    for one in servers:
        one.end()
