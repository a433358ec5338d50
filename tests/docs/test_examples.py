"""The examples of README and manual, run as they stand against a server that they start.

A ``code-block`` takes part if it has a ``:class:``:

``run``
    a shell or Python program; 127.0.0.1:8000 is replaced by the server's address
``output``
    what the block before it prints; ids, times and ports may differ
``file``
    a file named by its ``:caption:``, for the blocks below it
``serve``
    the command of another server, which the blocks below it talk to
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.rst", *sorted(ROOT.glob("docs/*.rst"))]
ADDRESS = "127.0.0.1:8000"

_UUID = re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
_TIME = re.compile(r'("created": ?)\d+')


def shell_environment() -> dict[str, str]:
    """The programs of this environment come first in the path."""
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def settled(text: str, port: int | None) -> str:
    """Return ``text`` without what differs from run to run."""
    text = text.replace(f"127.0.0.1:{port}", ADDRESS)
    return _TIME.sub(r"\g<1>0", _UUID.sub("UUID", text)).strip()


def same(printed: str, shown: str) -> bool:
    """Whether two outputs are equal, or equal as JSON, which pages lay out over several lines."""
    if printed == shown:
        return True
    try:
        return bool(json.loads(printed) == json.loads(shown))
    except ValueError:
        return False


def run(code: str, language: str, folder: Path) -> str:
    commands = {"python": [sys.executable, "-"], "shell": ["bash", "-euo", "pipefail", "-s"]}
    result = subprocess.run(
        commands[language],
        input=code,
        cwd=folder,
        env=shell_environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 0, f"{result.stdout}\n{result.stderr}"
    return result.stdout


class Reader:
    """Somebody who does what a page says, block by block, in one folder."""

    def __init__(self, folder: Path, start: Callable[[list[str]], int]) -> None:
        self._folder = folder
        self._start = start
        self._port: int | None = None
        self._printed = ""

    def follow(self, block) -> None:
        getattr(self, f"_do_{block.kind}")(block)

    def _do_file(self, block) -> None:
        (self._folder / block.caption).write_text(block.code)

    def _do_serve(self, block) -> None:
        self._port = self._start(shlex.split(block.code))

    def _do_run(self, block) -> None:
        code = block.code
        if ADDRESS in code:
            if self._port is None:
                self._port = self._start(["caesar-server", "serve"])
            code = code.replace(ADDRESS, f"127.0.0.1:{self._port}")
        self._printed = run(code, block.language, self._folder)

    def _do_output(self, block) -> None:
        printed, shown = settled(self._printed, self._port), settled(block.code, self._port)
        if not same(printed, shown):
            raise AssertionError(f"printed:\n{printed}")

    def _do_install(self, block) -> None:
        """Leave installs to tests/release."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_do_what_the_page_says(page: Path, code_blocks, serve, tmp_path: Path) -> None:
    if shutil.which("curl") is None or shutil.which("bash") is None:
        pytest.skip("the examples need curl and bash")
    with ExitStack() as stack:

        def start(command: list[str]) -> int:
            program = serve(
                lambda port: [*command, "--port", str(port)], tmp_path, shell_environment()
            )
            return stack.enter_context(program)

        reader = Reader(tmp_path, start)
        for block in code_blocks(page):
            if block.kind:
                try:
                    reader.follow(block)
                except AssertionError as error:
                    raise pytest.fail.Exception(f"{block.where}: {error}", pytrace=False) from None


def test_the_readme_has_examples_of_each_kind(code_blocks) -> None:
    kinds = [block.kind for block in code_blocks(ROOT / "README.rst")]
    assert kinds.count("run") >= 3
    assert kinds.count("output") >= 3
    assert kinds.count("install") == 1
