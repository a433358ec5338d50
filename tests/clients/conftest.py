"""A real server, two gunicorn workers on a free port, for real clients."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
NODE_FOLDER = HERE / "node"

#: What the mock answers: one prompt for each thing that a client must cope with.
FIXTURES: dict[str, Any] = {
    "capital?": "The capital is Paris.",
    "research": {
        "text": "Much is new [1].",
        "statuses": ["searching", "summarizing"],
        "progress": ["Reading"],
        "results": [{"title": "News", "url": "https://a.example/", "citation_index": 1}],
    },
    "two": {"text": ["One answer.", "Another."]},
    "refused": {"error": {"status": 400, "code": "bad_idea", "message": "Not that"}},
    "slow down": {
        "error": {
            "status": 429,
            "type": "rate_limit_error",
            "code": "rate_limit_exceeded",
            "message": "Too many requests - rate limit exceeded.",
            "retry_after_s": 0.01,
            "transient": True,
        }
    },
    "breaks": {"text": "Half an", "error": {"status": 503, "code": "lost", "message": "Gone"}},
}
#: Those of client_backends.py.
BACKENDS = {
    "endless": "EndlessBackend",
    "limited": "LimitedBackend",
    "lost": "LostBackend",
    "mirror": "MirrorBackend",
}
#: When to try again after a refusal: later than any client would by itself; the AI SDK after 2 s.
RETRY_AFTER_S = 2.5

SETTINGS = f"""
default_backend = "mock"
workers = 2

[backends]
mock = {{ fixtures = "fixtures.json" }}
endless = {{ journal = "journal" }}
lost = {{ journal = "journal" }}
limited = {{ journal = "journal", retry_after_s = {RETRY_AFTER_S} }}
"""

DEADLINE_S = 60.0
#: How long a client of another process may take, in seconds; far more than it needs.
CLIENT_WITHIN_S = 60.0


def ai_sdk_prompt(prompt: str) -> str:
    """Return what the AI SDK's completion models make of a prompt."""
    return f"user:\n{prompt}\n\nassistant:\n"


@dataclass(frozen=True)
class Server:
    """A running server.

    :param url: ``http://127.0.0.1:PORT``.
    :param journal: where the backends of client_backends.py note what they see.
    :param retry_after_s: the delay that the backend ``limited`` names.
    """

    url: str
    journal: Path
    retry_after_s: float = RETRY_AFTER_S

    @property
    def base_url(self) -> str:
        """What an OpenAI client takes as its base URL."""
        return f"{self.url}/compat"

    def attempts(self, prompt: str) -> list[float]:
        """Return when the runs for ``prompt`` began, in seconds of a clock of this machine."""
        return self._notes(prompt, "tried")

    def wait_for_end_of(self, prompt: str) -> list[float]:
        """Return when the endless run for ``prompt`` ended, as soon as it did."""
        return wait_until(lambda: self._notes(prompt, "ended"))

    def _notes(self, prompt: str, what: str) -> list[float]:
        lines = map(json.loads, self.journal.read_text().splitlines())
        prompts = (prompt, ai_sdk_prompt(prompt))
        return [line["at"] for line in lines if line["prompt"] in prompts and line["what"] == what]


def wait_until(look: Callable[[], Any]) -> Any:
    """Return what ``look`` returns once it is true."""
    deadline = time.monotonic() + DEADLINE_S
    while not (seen := look()):
        assert time.monotonic() < deadline, "nothing came"
        time.sleep(0.01)
    return seen


@pytest.fixture(scope="session")
def server(serve: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Return a server with the mock as its backend and those of client_backends.py beside it."""
    folder: Path = tmp_path_factory.mktemp("clients")
    fixtures = FIXTURES | {ai_sdk_prompt(prompt): reply for prompt, reply in FIXTURES.items()}
    (folder / "fixtures.json").write_text(json.dumps(fixtures))
    shutil.copy(HERE / "client_backends.py", folder)
    journal = folder / "journal"
    journal.touch()
    (folder / "caesar-server.toml").write_text(SETTINGS)
    flags = [f"--backend={name}=client_backends:{kind}" for name, kind in BACKENDS.items()]
    flags.append(f"--store=sqlite:///{folder}/jobs.sqlite3")

    def command(port: int) -> list[str]:
        return [sys.executable, "-m", "caesar_server", "serve", "--port", str(port), *flags]

    with serve(command, folder) as port:
        yield Server(f"http://127.0.0.1:{port}", journal)


@pytest.fixture(scope="session")
def node() -> str:
    """The program that runs the clients in the folder ``node``."""
    program = shutil.which("node")
    if program is None:
        pytest.skip("Node.js is not installed")
    if not (NODE_FOLDER / "node_modules").is_dir():
        pytest.skip("not installed yet: npm ci --prefix tests/clients/node")
    return program


@pytest.fixture(scope="session")
def staying_node(node: str, server: Server) -> Callable[..., AbstractContextManager[Any]]:
    """Run a scenario of a Node client against the server.

    Called with the script, the scenario and the scenario's own arguments; gives what the scenario
    returned, while the client's process is still there.
    """

    @contextmanager
    def run(script: str, scenario: str, **arguments: Any) -> Iterator[Any]:
        given = {"baseURL": server.base_url, **arguments}
        with subprocess.Popen(
            [node, script, scenario, json.dumps(given)],
            cwd=NODE_FOLDER,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as client:
            try:
                printed = client.stdout.readline()
                assert printed, "it failed, see its standard error"
                yield json.loads(printed)
                assert client.poll() is None
                client.communicate(timeout=CLIENT_WITHIN_S)
                assert client.returncode == 0
            finally:
                client.kill()

    return run


@pytest.fixture(scope="session")
def run_node(staying_node: Callable[..., AbstractContextManager[Any]]) -> Callable[..., Any]:
    """Return what a scenario of a Node client returned; see ``staying_node``."""

    def run(script: str, scenario: str, **arguments: Any) -> Any:
        with staying_node(script, scenario, **arguments) as result:
            return result

    return run
