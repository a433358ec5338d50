"""Following the pages: see ``test_examples.py`` for what a reader does with each kind of block."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

ADDRESS = "127.0.0.1:8000"

_UUID = re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
_TIME = re.compile(r'("created": ?)\d+')
#: Of the conformance suite: how long something took, how many rules there are, which thread won.
_SECONDS = re.compile(r"\b\d+\.\d\d s\b")
_COUNTS = re.compile(r"\b\d+ passed, \d+ skipped\b")
_NUMBERED = re.compile(r"\b(Question|request) \d\b")


#: How long a server that reloads may take to see a saved file, in seconds.
RELOAD_WITHIN_S = 60.0


#: Readers do not have these plugins, which take seconds to load.
_PYTEST_OPTIONS = "-p no:langsmith_plugin -p no:schemathesis"


def shell_environment() -> dict[str, str]:
    """The programs of this environment come first in the path."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTEST_ADDOPTS": _PYTEST_OPTIONS}


def settled(text: str, port: int | None) -> str:
    """Return ``text`` without what differs from run to run."""
    text = text.replace(f"127.0.0.1:{port}", ADDRESS)
    for pattern, word in (
        (_UUID, "UUID"),
        (_TIME, r"\g<1>0"),
        (_SECONDS, "N s"),
        (_COUNTS, "N passed, N skipped"),
        (_NUMBERED, r"\g<1> N"),
    ):
        text = pattern.sub(word, text)
    return text.strip()


def same(printed: str, shown: str) -> bool:
    """Whether two outputs are equal, or equal as JSON, which pages lay out over several lines."""
    if printed == shown:
        return True
    try:
        return bool(json.loads(printed) == json.loads(shown))
    except ValueError:
        return False


def run(
    code: str, language: str, folder: Path, env: Mapping[str, str], *, fails: bool = False
) -> str:
    commands = {"python": [sys.executable, "-"], "shell": ["bash", "-euo", "pipefail", "-s"]}
    result = subprocess.run(
        commands[language],
        input=code,
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert (result.returncode != 0) == fails, f"{result.stdout}\n{result.stderr}"
    return result.stdout


class Reader:
    """Somebody who does what a page says, block by block, in one folder.

    :param start: runs a server and returns its port.
    :param env: variables of the programs.
    """

    def __init__(
        self, folder: Path, start: Callable[[list[str]], int], env: Mapping[str, str]
    ) -> None:
        self._folder = folder
        self._start = start
        self._env = env
        self._port: int | None = None
        self._reloads = False
        self._again: Callable[[], str] = str
        self._printed = ""

    def follow(self, block) -> None:
        getattr(self, f"_do_{block.kind}")(block)

    def _do_file(self, block) -> None:
        (self._folder / block.caption).write_text(block.code)

    def _do_serve(self, block) -> None:
        command = shlex.split(block.code)
        self._port, self._reloads = self._start(command), "--reload" in command

    def _do_run(self, block, *, fails: bool = False) -> None:
        code = block.code
        if ADDRESS in code:
            if self._port is None:
                self._port = self._start(["caesar-server", "serve"])
            code = code.replace(ADDRESS, f"127.0.0.1:{self._port}")
        self._again = partial(run, code, block.language, self._folder, self._env, fails=fails)
        self._printed = self._again()

    def _do_fails(self, block) -> None:
        self._do_run(block, fails=True)

    def _do_output(self, block) -> None:
        shown = settled(block.code, self._port)
        until = time.monotonic() + (RELOAD_WITHIN_S if self._reloads else 0)
        while not same(printed := settled(self._printed, self._port), shown):
            # A file was saved a moment ago: a person would not be so quick.
            if time.monotonic() > until:
                raise AssertionError(f"printed:\n{printed}")
            self._printed = self._again()

    def _do_install(self, block) -> None:
        """Leave installs to tests/release."""


@pytest.fixture(scope="session")
def manual(root: Path, once: Callable[..., Path]) -> Path:
    """The manual as HTML, built with every warning an error."""

    def build(folder: Path) -> None:
        strict = ["--fail-on-warning", "--keep-going", "--quiet"]
        folders = ["-d", folder / "trees", "docs", folder / "html"]
        result = subprocess.run(
            [sys.executable, "-m", "sphinx", *strict, *folders],
            cwd=root,
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert result.returncode == 0, result.stderr

    return once("manual", build) / "html"


@pytest.fixture
def follow(code_blocks, serve, tmp_path: Path):
    """Do what a page says, in a new folder; the second argument are variables to do it with."""

    def follow(page: Path, env: Mapping[str, str] | None = None) -> int:
        if shutil.which("curl") is None or shutil.which("bash") is None:
            pytest.skip("the examples need curl and bash")
        variables = env or shell_environment()
        followed = 0
        with ExitStack() as stack:

            def start(command: list[str]) -> int:
                program = serve(lambda port: [*command, "--port", str(port)], tmp_path, variables)
                return stack.enter_context(program)

            reader = Reader(tmp_path, start, variables)
            for block in code_blocks(page):
                if not block.kind:
                    continue
                try:
                    reader.follow(block)
                except AssertionError as error:
                    message = f"{block.where}: {error}"
                    raise pytest.fail.Exception(message, pytrace=False) from None
                followed += 1
        return followed

    return follow
