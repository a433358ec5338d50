"""A folder with a backend that is not packaged, and the command run in it."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from caesar_server.cli import main

WITHIN_S = 60

#: ``hello:HelloBackend`` answers, and leaves a mark beside itself when it is opened and closed;
#: ``hello:FragileBackend`` does not open.
HELLO = """
from dataclasses import dataclass
from pathlib import Path

from caesar_server.contract import *

@dataclass(frozen=True)
class HelloOptions:
    greeting: str = option("Hello", help="The word to answer with.")
    times: int = option(1, help="How often it is said.", unit="words", minimum=1, maximum=9)
    api_key: str | None = option(None, help="Key of the service.", secret=True)
    headers: dict[str, str] = option(default_factory=dict, help="Headers to send.")

class HelloBackend(Backend):
    options_schema = HelloOptions
    capabilities = Capabilities(accepts=frozenset({"completion", "chat"}), token_prompts=True)

    def open(self):
        self.mark("opened")

    def run(self, request, context):
        if request.type not in self.capabilities.accepts:
            raise InvalidRequestError(f"hello takes no {request.type}", param=None)
        for choice in range(request.choices):
            yield ContentDelta(" ".join([self.options.greeting] * self.options.times), choice)
            yield ChoiceFinished(choice)
        yield Completed()

    def close(self):
        self.mark("closed")

    def mark(self, what):
        import os
        Path(__file__).with_name(f"{what}-{os.getpid()}").touch()

class FragileBackend(HelloBackend):
    def open(self):
        raise RuntimeError("broken glass")

class WrongBackend(HelloBackend):
    def run(self, request, context):
        yield Completed()
        yield ContentDelta("too late")
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Run in an empty folder with ``hello.py``; path, modules and log are as before afterwards."""
    (tmp_path / "hello.py").write_text(HELLO)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    logger = logging.getLogger("caesar_server")
    handlers, level = list(logger.handlers), logger.level
    yield tmp_path
    logger.handlers[:] = handlers
    logger.setLevel(level)
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(f"{tmp_path}/"):
            del sys.modules[name]


@pytest.fixture
def run() -> Callable[..., Result]:
    """Call ``caesar-server`` in this process."""
    return lambda *arguments: CliRunner().invoke(main, arguments)


class Program:
    """``caesar-server`` or gunicorn as a process of its own; what it writes to stderr is kept."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.log = ""
        self._written = threading.Condition()
        self._at_end = False
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._written:
                self.log += line
                self._written.notify_all()
        with self._written:
            self._at_end = True
            self._written.notify_all()

    def wait_for(self, pattern: str) -> str:
        """Return what matches ``pattern`` in the log, as soon as something does."""
        with self._written:
            self._written.wait_for(lambda: self._at_end or re.search(pattern, self.log), WITHIN_S)
            match = re.search(pattern, self.log)
        assert match, f"{pattern!r} was not written:\n{self.log}"
        return match[0]

    @property
    def url(self) -> str:
        return self.wait_for(r"http://\S+:\d+")

    def wait(self) -> int:
        """Return the exit status, once all of its processes have ended."""
        self._reader.join(WITHIN_S)
        return self.process.wait(WITHIN_S)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and return the exit status."""
        self.process.send_signal(number)
        return self.wait()


Start = Callable[..., Program]


@pytest.fixture
def start(folder: Path) -> Iterator[Start]:
    """Start a Python module as a program; what is left of it is killed at the end.

    Called with the arguments of ``python -m``, ``cwd`` and variables.
    """
    programs = []

    def begin(*arguments: str, cwd: Path = folder, **variables: str) -> Program:
        root = Path(__file__).resolve().parents[2]
        env = {**os.environ, "PYTHONPATH": str(root), "HOME": str(folder), **variables}
        process = subprocess.Popen(
            [sys.executable, "-m", *arguments],
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        programs.append(Program(process))
        return programs[-1]

    yield begin
    for program in programs:
        if program.process.poll() is None:
            os.killpg(program.process.pid, signal.SIGKILL)
        program.wait()
        assert program.process.stderr is not None
        program.process.stderr.close()
