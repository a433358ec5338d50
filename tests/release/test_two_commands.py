"""``make run`` and the README's pip lines, in a copy that holds nothing but the sources."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

MADE_BY_TOOLS = (
    ".git",
    ".venv",
    "*.egg-info",
    "build",
    "dist",
    "node_modules",
    ".*_cache",
    "__pycache__",
    "_build",
)


@pytest.fixture
def clone(root: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "clone"
    shutil.copytree(root, folder, ignore=shutil.ignore_patterns(*MADE_BY_TOOLS))
    return folder


def make(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    return subprocess.run(
        ["make", *arguments], cwd=folder, capture_output=True, text=True, timeout=300
    )


def test_make_run_installs_once_and_serves(clone: Path, serve) -> None:
    ready = make(clone, ".venv/.run-ready")
    assert ready.returncode == 0, ready.stderr
    command = lambda port: ["make", "run", f"ARGS=--port {port}"]  # noqa: E731
    with serve(command, clone):
        pass
    # It started from the environment that was there and installed nothing again.
    (log,) = clone.glob("server-*.log")
    assert "Installing" not in log.read_text()


def test_a_changed_setup_is_installed_again(clone: Path) -> None:
    (clone / ".venv").mkdir()
    for stamp in (".venv/bin/python", ".venv/.run-ready"):
        (clone / stamp).parent.mkdir(exist_ok=True)
        (clone / stamp).touch()
    assert make(clone, "--question", ".venv/.run-ready").returncode == 0
    stamp = (clone / ".venv/.run-ready").stat()
    os.utime(clone / "backends/echo/setup.cfg", (stamp.st_atime + 5, stamp.st_mtime + 5))
    assert make(clone, "--question", ".venv/.run-ready").returncode == 1


@pytest.mark.parametrize("python", ["no-such-python", "./old-python"])
def test_a_python_that_is_too_old_is_named(clone: Path, python: str) -> None:
    old = clone / "old-python"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    result = make(clone, "run", f"PYTHON={python}")
    assert result.returncode == 2
    assert f"Python 3.11 or newer is needed; looked for: {python}." in result.stderr
    assert not (clone / ".venv").exists()


def test_the_pip_lines_of_the_readme_install_the_program(clone: Path, code_blocks) -> None:
    (block,) = (block for block in code_blocks(clone / "README.rst") if block.kind == "install")
    *install, serve_line = block.code.strip().splitlines()
    assert serve_line == ".venv/bin/caesar-server serve"
    script = "\n".join([*install, ".venv/bin/caesar-server backends"])
    result = subprocess.run(
        ["sh", "-euc", script], cwd=clone, capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stderr
    assert "echo" in result.stdout
