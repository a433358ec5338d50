"""What it costs to put a server in front of another: through ours, through LiteLLM, and without.

A small server stands upstream and answers at once.  The proxy has one worker, pinned to one core;
the server upstream and the load share the other.  All contenders take turns in each round, so the
differences mean something and the figures themselves little.

LiteLLM takes part if it is installed in an environment of its own: ``--litellm DIR`` names it, and
``--install`` makes it there (about 1 GB).
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import venv
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from first_answer import free_port

CORES = sorted(os.sched_getaffinity(0))
PROXY_CORE, LOAD_CORE = CORES[0], CORES[-1]
CHUNKS = 20
CLIENTS = 16
PATIENCE_S = 120.0
DEFAULT_LITELLM = Path(tempfile.gettempdir()) / "caesar-benchmark-litellm"
#: One worker with as many threads as there are clients, and some more.
SERVE = (sys.executable, "-m", "caesar_server", "serve", "--port", "{port}", "--config", "{config}")
LITELLM = (
    "{litellm}/bin/litellm",
    "--port",
    "{port}",
    "--config",
    "{config}",
    "--num_workers",
    "1",
)

#: LiteLLM does not start without a key of some strength; the others do not ask for one.
KEY = "sk-" + secrets.token_hex(32)
HEADERS = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}


def request_body(stream: bool) -> bytes:
    """Return the request of all contenders."""
    messages = [{"role": "user", "content": "To be, or not to be"}]
    return json.dumps({"model": "bench", "messages": messages, "stream": stream}).encode()


class Upstream(asyncio.Protocol):
    """Answers chats at once: ``CHUNKS`` words, as JSON or as a stream."""

    def __init__(self) -> None:
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer each whole request."""
        self._data += data
        head, found, rest = self._data.partition(b"\r\n\r\n")
        if not found:
            return
        length = 0
        for line in head.split(b"\r\n"):
            if line.lower().startswith(b"content-length:"):
                length = int(line[15:])
        if len(rest) >= length:
            self._data = rest[length:]
            stream = b'"stream":true' in rest.replace(b" ", b"")
            self._transport.write(_STREAM if stream else _JSON)


def _chunk(delta: dict[str, str], reason: str | None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    body = {**_BASE, "object": "chat.completion.chunk", "choices": [choice]}
    data = b"data: " + json.dumps(body).encode() + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(data), data)


_BASE = {"id": "chatcmpl-1", "created": 1, "model": "bench"}
_USAGE = {"prompt_tokens": 6, "completion_tokens": CHUNKS, "total_tokens": CHUNKS + 6}
_MESSAGE = {"role": "assistant", "content": "word " * CHUNKS}
_BODY = json.dumps(
    {
        **_BASE,
        "object": "chat.completion",
        "choices": [{"index": 0, "message": _MESSAGE, "finish_reason": "stop"}],
        "usage": _USAGE,
    }
).encode()
_JSON = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(_BODY)
) + _BODY
_STREAM = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    + _chunk({"role": "assistant", "content": ""}, None)
    + _chunk({"content": "word "}, None) * CHUNKS
    + _chunk({}, "stop")
    + b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
)


async def serve_upstream(port: int) -> None:
    """Be the server upstream."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Upstream, "127.0.0.1", port)
    await server.serve_forever()


@dataclass(frozen=True)
class Contender:
    """A way to the server upstream: its port and path."""

    name: str
    port: int
    path: str


def ask(connection: http.client.HTTPConnection, contender: Contender, body: bytes) -> None:
    """Ask once and read all of the answer.

    :raises RuntimeError: if it is not whole.
    """
    connection.request("POST", contender.path, body, HEADERS)
    response = connection.getresponse()
    data = response.read()
    if response.status != 200 or data.count(b"word ") < CHUNKS:
        raise RuntimeError(f"{contender.name}: {response.status} {data[:500]!r}")


def latency_ms(contender: Contender, body: bytes, times: int) -> float:
    """Return the median of one client's answers, one after the other, in milliseconds."""
    connection = http.client.HTTPConnection("127.0.0.1", contender.port, timeout=PATIENCE_S)
    seen = []
    try:
        for _ in range(times):
            start = time.perf_counter()
            ask(connection, contender, body)
            seen.append(time.perf_counter() - start)
    finally:
        connection.close()
    return statistics.median(seen) * 1000


def rate(contender: Contender, body: bytes, seconds: float) -> float:
    """Return the answers a second that many clients get."""
    counts: list[int] = []
    end = time.perf_counter() + seconds

    def client() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", contender.port, timeout=PATIENCE_S)
        count = 0
        while time.perf_counter() < end:
            ask(connection, contender, body)
            count += 1
        connection.close()
        counts.append(count)

    threads = [threading.Thread(target=client) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / seconds


@contextmanager
def running(command: tuple[str, ...], core: int, port: int, folder: Path) -> Iterator[None]:
    """Run a server on a core until the block ends."""
    quiet = {"CAESAR_SERVER_LOG_LEVEL": "warning", "LITELLM_LOG": "ERROR"}
    env = {**os.environ, **quiet, "LITELLM_MASTER_KEY": KEY}
    with tempfile.TemporaryFile() as log:
        server = subprocess.Popen(
            ["taskset", "-c", str(core), *command], cwd=folder, env=env, stdout=log, stderr=log
        )
        try:
            _wait_for(server, port)
            yield
        except RuntimeError:
            log.seek(0)
            print(log.read().decode(errors="replace")[-3000:], file=sys.stderr)
            raise
        finally:
            server.terminate()
            server.wait(PATIENCE_S)


def _wait_for(server: subprocess.Popen[bytes], port: int) -> None:
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        if server.poll() is not None:
            raise RuntimeError(f"a server ended with {server.returncode}")
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("GET", "/")
            connection.getresponse()
        except OSError:
            time.sleep(0.1)
        else:
            return
        finally:
            connection.close()
    raise RuntimeError("a server does not answer")


def caesar_config(folder: Path, port: int, *, stream: bool) -> Path:
    """Write the settings of our server."""
    path = folder / f"caesar-{stream}.toml"
    path.write_text(
        'default_backend = "upstream"\nunknown_model = "default"\n'
        "[backends.upstream]\nmodels_ttl_s = 0\n"
        f'[backends.upstream.servers.one]\nurl = "http://127.0.0.1:{port}/v1"\n'
        f"stream = {str(stream).lower()}\n"
    )
    return path


def litellm_config(folder: Path, port: int) -> Path:
    """Write the settings of LiteLLM's proxy."""
    path = folder / "litellm.yaml"
    path.write_text(
        "model_list:\n  - model_name: bench\n    litellm_params:\n      model: openai/bench\n"
        f"      api_base: http://127.0.0.1:{port}/v1\n      api_key: sk-none\n"
    )
    return path


def litellm_folder(folder: Path, install: bool) -> Path | None:
    """Return the environment of LiteLLM, made if that is wanted; None if it is not there."""
    program = folder / "bin" / "litellm"
    if not program.exists() and install:
        venv.create(folder, with_pip=True)
        subprocess.run([folder / "bin" / "pip", "install", "-q", "litellm[proxy]"], check=True)
    if program.exists():
        return folder
    print(f"left out: LiteLLM is not in {folder}; --install installs it there")
    return None


def measure(rounds: int, seconds: float, litellm: Path | None) -> None:
    """Run all contenders and print what they took."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        port = free_port()
        own = (sys.executable, str(Path(__file__).resolve()), "--upstream", str(port))
        stack.enter_context(running(own, LOAD_CORE, port, folder))
        contenders = [Contender("direct", port, "/v1/chat/completions")]
        for name, stream in (("caesar_server", True), ("caesar_server, stream = false", False)):
            config = caesar_config(folder, port, stream=stream)
            contenders.append(_start(stack, name, SERVE, folder, config))
        if litellm is not None:
            config = litellm_config(folder, port)
            contenders.append(_start(stack, "LiteLLM", LITELLM, folder, config, litellm))
        os.sched_setaffinity(0, {LOAD_CORE})
        for title, stream in (("plain", False), (f"streamed, {CHUNKS} chunks", True)):
            _compare(title, contenders, request_body(stream), rounds, seconds)


def _start(
    stack: ExitStack,
    name: str,
    command: tuple[str, ...],
    folder: Path,
    config: Path,
    litellm: Path | None = None,
) -> Contender:
    port = free_port()
    values = {"port": port, "config": config, "litellm": litellm}
    filled = tuple(part.format(**values) for part in command)
    stack.enter_context(running(filled, PROXY_CORE, port, folder))
    return Contender(name, port, "/v1/chat/completions")


def _compare(
    title: str, contenders: list[Contender], body: bytes, rounds: int, seconds: float
) -> None:
    times: dict[str, list[float]] = {one.name: [] for one in contenders}
    rates: dict[str, list[float]] = {one.name: [] for one in contenders}
    for one in contenders:
        latency_ms(one, body, 30)  # warm up
    for _ in range(rounds):
        for one in contenders:
            times[one.name].append(latency_ms(one, body, 100))
            rates[one.name].append(rate(one, body, seconds))
    direct = statistics.median(times["direct"])
    print(f"\n{title}: median of {rounds} rounds")
    print(f"  {'':32}{'one client':>12}{'added':>12}{f'{CLIENTS} clients':>14}")
    for name, seen in times.items():
        middle = statistics.median(seen)
        answers = statistics.median(rates[name])
        print(f"  {name:32}{middle:9.2f} ms{middle - direct:9.2f} ms{answers:11,.0f}/s")


def main() -> None:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--litellm", type=Path, default=DEFAULT_LITELLM, metavar="DIR")
    parser.add_argument("--install", action="store_true", help="LiteLLM into --litellm")
    parser.add_argument("--upstream", type=int, metavar="PORT", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.upstream is not None:
        asyncio.run(serve_upstream(arguments.upstream))
        return
    litellm = litellm_folder(arguments.litellm, arguments.install)
    measure(arguments.rounds, arguments.seconds, litellm)


if __name__ == "__main__":
    main()
