"""The examples of the pages about the local model, run with it, and all options named there."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from caesar_backend_local_llm import LocalLlmBackend, LocalLlmOptions
from caesar_server.contract.options import parse_options

ROOT = Path(__file__).resolve().parents[3]
HERE = ROOT / "backends" / "local_llm"
MANUAL = ROOT / "docs" / "local_llm.rst"
README = ROOT / "README.rst"
ADDRESS = "127.0.0.1:8000"

_BLOCK = re.compile(
    r"^(?:\.\. code-block:: (?P<language>\w+)|\S.*::)\n(?P<body>(?:\n| +.*\n)+)", re.MULTILINE
)
_UUID = re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
_CREATED = re.compile(r'("created": ?)\d+')


@dataclass(frozen=True)
class Block:
    """An example of a page: its language, and the code without its indent."""

    language: str
    code: str


def blocks(text: str) -> list[Block]:
    return [
        Block(match["language"] or "", textwrap.dedent(match["body"]).strip("\n"))
        for match in _BLOCK.finditer(text + "\n")
    ]


def readme_section() -> str:
    return README.read_text().split("A language model\n---", 1)[1].split("Host it\n---", 1)[0]


def shown(text: str) -> list[tuple[str, str]]:
    """Return the programs of a page, each with what the page shows of its output."""
    found = blocks(text)
    return [
        (block.code, output.code)
        for block, output in pairwise(found)
        if block.language == "shell" and output.language in ("json", "text")
    ]


def settings_examples() -> list[str]:
    pages = (MANUAL.read_text(), readme_section(), (HERE / "README.rst").read_text())
    found = [block.code for text in pages for block in blocks(text)]
    return [code for code in found if "[backends.local_llm" in code]


def test_there_are_examples() -> None:
    assert len(settings_examples()) >= 4
    assert len(shown(MANUAL.read_text())) >= 3
    assert len(shown(readme_section())) == 1


@pytest.mark.parametrize("example", [*settings_examples(), (HERE / "smollm2.toml").read_text()])
def test_an_example_of_settings_is_valid(example: str) -> None:
    values = tomllib.loads(example)["backends"]["local_llm"]
    options = parse_options(LocalLlmOptions, values)
    assert LocalLlmBackend(options).options == options
    assert len(LocalLlmBackend(options).models()) >= len(options.models) > 0


@pytest.fixture(scope="module")
def folder(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as `make llm` leaves it."""
    folder = tmp_path_factory.mktemp("reader")
    (folder / ".venv").mkdir()
    (folder / ".venv" / "smollm2.gguf").symlink_to(smollm2)
    shutil.copy(HERE / "smollm2.toml", folder / "caesar-server.toml")
    return folder


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    """Serve the model as `make run-llm` does, and return host and port."""
    command = [sys.executable, "-m", "caesar_server", "serve", "--port", "0"]
    server = subprocess.Popen(
        command, cwd=folder, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    assert server.stderr is not None
    said = ""
    try:
        for line in server.stderr:
            said += line
            if found := re.search(r"http://(127\.0\.0\.1:\d+)", line):
                break
        else:
            pytest.fail(f"no server:\n{said}")
        yield found[1]
    finally:
        server.terminate()
        server.communicate(timeout=40)


def settled(text: str) -> str:
    return _CREATED.sub(r"\g<1>0", _UUID.sub("UUID", text)).strip()


def same(printed: str, expected: str) -> bool:
    try:
        return bool(json.loads(settled(printed)) == json.loads(settled(expected)))
    except ValueError:
        return settled(printed) == settled(expected)


@pytest.mark.slow
def test_the_examples_print_what_the_pages_show(folder: Path, address: str) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    for code, expected in (*shown(readme_section()), *shown(MANUAL.read_text())):
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", code.replace(ADDRESS, address)],
            cwd=folder,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"
        printed = done.stdout.replace(f"{folder}/", "/home/you/")
        assert same(printed, expected), f"{code}\nprinted:\n{printed}"
