"""The mock against its peers: answers and chunks a second of chats, same text, same chunks.

Each server has one process, pinned to one core; wrk loads it from another one, and all take turns
in each round, once for each length of answer: short ones show what a request costs, long ones what
a chunk does.  The peers are installed by ``--install`` in a folder of their own, which ``--peers``
names: aimock (npm) and LLMock and fakellm (PyPI).  fakellm waits 10 ms between two chunks whatever
it is told.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from first_answer import PATIENCE_S, free_port
from mock_app import PROMPT, WORDS_VARIABLE, model_of, text_of

HERE = Path(__file__).parent
CORES = sorted(os.sched_getaffinity(0))
SERVER_CORE, LOAD_CORE = CORES[0], CORES[-1]
DEFAULT_PEERS = Path(tempfile.gettempdir()) / "caesar-benchmark-mock-peers"
AIMOCK, PYTHON_PEERS = "@copilotkit/aimock@1.43.0", ("llmock==0.2.2", "fakellm==0.3.5")

MESSAGES = [{"role": "user", "content": PROMPT}]
HEADERS = {"Content-Type": "application/json", "Authorization": "Bearer bench"}
PATH = "/v1/chat/completions"


def body(words: int, stream: bool) -> str:
    """Return the request of all contenders for an answer of so many words."""
    return json.dumps({"model": model_of(words), "messages": MESSAGES, "stream": stream})


@dataclass(frozen=True)
class Contender:
    """A server to measure.

    :param command: what starts it; ``{port}``, ``{peers}`` and ``{files}`` stand for the port, the
        folder of the peers and that of the files below.
    :param file: name of the file that it reads, and what writes that for a text.
    :param needs: what must be there, else it is left out.
    """

    name: str
    command: tuple[str, ...]
    file: tuple[str, Callable[[str], str]] | None = None
    needs: str = "/"


def _rules(text: str) -> str:
    return json.dumps({"rules": [{"when": {"prompt": PROMPT}, "reply": text}]})


def _aimock_fixtures(text: str) -> str:
    fixture = {"match": {"userMessage": PROMPT}, "response": {"content": text}}
    return json.dumps({"fixtures": [fixture]})


def _fakellm_rules(text: str) -> str:
    return (
        f"rules:\n  - name: bench\n    when: {{messages_contain: {json.dumps(PROMPT)}}}\n"
        f"    respond: {{content: {json.dumps(text)}}}\n"
    )


CONTENDERS = (
    Contender(
        "caesar-server mock (gthread)",
        (
            *(sys.executable, "-m", "caesar_server", "mock", "--port", "{port}"),
            *("--log-level", "warning", "--fixtures", "{files}/rules.json"),
        ),
        ("rules.json", _rules),
    ),
    Contender("the fixture's own server", (sys.executable, str(HERE / "mock_app.py"), "{port}")),
    Contender(
        "the mock on granian",
        (
            *(sys.executable, "-m", "granian", "--interface", "wsgi", "--port", "{port}"),
            *("--http", "1", "--no-ws", "--blocking-threads", "64", "--log-level", "warning"),
            *("--factory", "mock_app:create_app"),
        ),
    ),
    Contender(
        "aimock",
        (
            *("node", "{peers}/node_modules/@copilotkit/aimock/dist/cli.js", "--port", "{port}"),
            *("--fixtures", "{files}", "--chunk-size", "5", "--log-level", "silent"),
        ),
        ("fixtures.json", _aimock_fixtures),
        needs="{peers}/node_modules/@copilotkit/aimock",
    ),
    Contender(
        "LLMock",
        (
            *("{peers}/venv/bin/llmock", "serve", "--port", "{port}"),
            *("--response-style", "static", "--log-level", "warning"),
        ),
        needs="{peers}/venv/bin/llmock",
    ),
    Contender(
        "fakellm",
        (
            *("{peers}/venv/bin/fakellm", "serve", "--port", "{port}"),
            *("--config", "{files}/fakellm.yaml"),
        ),
        ("fakellm.yaml", _fakellm_rules),
        needs="{peers}/venv/bin/fakellm",
    ),
)


def install(peers: Path) -> None:
    """Install the peers: about 150 MB."""
    peers.mkdir(parents=True, exist_ok=True)
    venv.create(peers / "venv", with_pip=True)
    pip = [peers / "venv" / "bin" / "python", "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, *PYTHON_PEERS], check=True)
    npm = ["npm", "install", "--prefix", peers, "--no-audit", "--no-fund", "--silent"]
    subprocess.run([*npm, AIMOCK], check=True)


@contextmanager
def running(contender: Contender, peers: Path, words: int) -> Iterator[int]:
    """Run a contender on its core; give its port once it answers rightly."""
    with tempfile.TemporaryDirectory() as files, tempfile.TemporaryFile() as log:
        if contender.file is not None:
            name, written = contender.file
            (Path(files) / name).write_text(written(text_of(words)))
        port = free_port()
        places = {"port": port, "peers": peers, "files": files}
        server = subprocess.Popen(
            ["taskset", "-c", str(SERVER_CORE), *(p.format(**places) for p in contender.command)],
            cwd=HERE,
            env={**os.environ, WORDS_VARIABLE: str(words)},
            stdout=log,
            stderr=log,
        )
        try:
            _wait_for(server, port, words)
            check(contender.name, port, words)
            yield port
        except BaseException:
            log.seek(0)
            print(log.read().decode()[-4000:], file=sys.stderr)
            raise
        finally:
            server.terminate()
            try:
                server.wait(10)
            except subprocess.TimeoutExpired:  # one peer waits for its clients for ever
                server.kill()


def _wait_for(server: subprocess.Popen[bytes], port: int, words: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise RuntimeError(f"a server ended with {server.returncode}")
        try:
            post(port, body(words, stream=False))
            return
        except ConnectionError:
            time.sleep(0.02)
    raise RuntimeError("a server does not answer")


def post(port: int, text: str) -> bytes:
    """Ask once and return the body.

    :raises RuntimeError: for another status than 200.
    """
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        connection.request("POST", PATH, text, HEADERS)
        response = connection.getresponse()
        data = response.read()
    finally:
        connection.close()
    if response.status != 200:
        raise RuntimeError(f"{response.status}: {data[:500]!r}")
    return data


def check(name: str, port: int, words: int) -> None:
    """Make sure that all do the same work.

    :raises RuntimeError: if the text or the number of chunks is another one.
    """
    told = json.loads(post(port, body(words, stream=False)))["choices"][0]["message"]["content"]
    frames = re.findall(rb"^data: (\{.*)$", post(port, body(words, stream=True)), re.MULTILINE)
    deltas = [json.loads(frame)["choices"][0]["delta"].get("content") for frame in frames]
    pieces = [delta for delta in deltas if delta]
    if not told == "".join(pieces) == text_of(words):
        raise RuntimeError(f"{name} says {told!r} and {''.join(pieces)!r}")
    if len(pieces) != words:
        raise RuntimeError(f"{name} streams {len(pieces)} chunks, not {words}")


def rate(port: int, text: str, *, connections: int, seconds: float) -> float:
    """Return the answers a second of a server."""
    headers = "".join(f'wrk.headers["{name}"] = "{value}"\n' for name, value in HEADERS.items())
    script = f'wrk.method = "POST"\n{headers}wrk.body = {json.dumps(text)}\n'
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as file:
        file.write(script)
        file.flush()
        command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds:g}s", "-s", file.name]
        out = subprocess.run(
            ["taskset", "-c", str(LOAD_CORE), *command, f"http://127.0.0.1:{port}{PATH}"],
            check=True, capture_output=True, text=True,
        ).stdout  # fmt: skip
    found = re.search(r"Requests/sec:\s+([\d.]+)", out)
    if "Non-2xx" in out or found is None:
        raise RuntimeError(out)
    return float(found[1])


def measure(peers: Path, words: int, rounds: int, seconds: float, leave_out: str) -> None:
    """Print both tables for answers of so many words."""
    wanted = [c for c in CONTENDERS if not (leave_out and re.search(leave_out, c.name))]
    present = [c for c in wanted if Path(c.needs.format(peers=peers)).exists()]
    for absent in [c for c in wanted if c not in present]:
        print(f"left out: {absent.name} (--install brings it)")
    with ExitStack() as stack:
        ports = {c.name: stack.enter_context(running(c, peers, words)) for c in present}
        title = f"JSON answers of {words} words"
        _table(title, "answers/s", 1, ports, body(words, stream=False), rounds, seconds)
        title = f"Streams of {words} chunks"
        _table(title, "chunks/s", words, ports, body(words, stream=True), rounds, seconds)


def _table(
    title: str,
    unit: str,
    factor: int,
    ports: Mapping[str, int],
    text: str,
    rounds: int,
    seconds: float,
) -> None:
    for port in ports.values():  # warm up
        rate(port, text, connections=8, seconds=1)
    rates: dict[str, list[float]] = {name: [] for name in ports}
    for _ in range(rounds):
        for name, port in ports.items():
            rates[name].append(factor * rate(port, text, connections=8, seconds=seconds))
    base = statistics.median(rates.get("aimock", [float("nan")]))
    print(f"\n{title}: {unit}, median of {rounds} rounds of {seconds:g} s (least .. most)")
    for name, seen in rates.items():
        middle = statistics.median(seen)
        spread = f"({min(seen):,.0f} .. {max(seen):,.0f})"
        print(f"  {name:30}{middle:10,.0f}  {spread:24}  {middle / base:5.2f} of aimock")


def main() -> None:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument(
        "--words", type=int, nargs="+", default=[50, 200], help="lengths of answers, from 8 on"
    )
    parser.add_argument("--leave-out", default="", metavar="REGEX", help="of contenders' names")
    parser.add_argument("--peers", type=Path, default=DEFAULT_PEERS, metavar="DIR")
    parser.add_argument("--install", action="store_true", help="install the peers first")
    arguments = parser.parse_args()
    for tool in ("wrk", "taskset"):
        if shutil.which(tool) is None:
            parser.error(f"{tool} is not installed")
    if arguments.install:
        install(arguments.peers)
    for words in arguments.words:
        measure(arguments.peers, words, arguments.rounds, arguments.seconds, arguments.leave_out)


if __name__ == "__main__":
    main()
