"""The test suites for programs in other languages, run as their authors would."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def run(folder: Path, *command: str) -> str:
    """Run a suite with this environment's ``caesar-server``; return what it prints."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PATH": path, "NO_COLOR": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def copy(root: Path, tmp_path: Path):
    def copy(name: str) -> Path:
        left = shutil.ignore_patterns("node_modules", "__pycache__")
        return Path(shutil.copytree(root / "examples" / name, tmp_path / name, ignore=left))

    return copy


@pytest.fixture
def node_modules(root: Path) -> Path:
    folder = root / "tests" / "clients" / "node" / "node_modules"
    if shutil.which("node") is None:
        pytest.skip("Node.js is not installed")
    if not (folder / "vitest").is_dir():
        pytest.skip("not installed yet: npm ci --prefix tests/clients/node")
    return folder


def test_the_suite_in_node(copy, node_modules):
    folder = copy("mock_node")
    (folder / "node_modules").symlink_to(node_modules)
    printed = run(folder, "npm", "test", "--silent")
    assert "5 passed" in printed


def test_its_packages_are_those_of_the_other_tests(root: Path):
    example = json.loads((root / "examples" / "mock_node" / "package.json").read_text())
    tested = json.loads((root / "tests" / "clients" / "node" / "package.json").read_text())
    for kind in ("dependencies", "devDependencies"):
        assert example[kind].items() <= tested[kind].items()


def test_the_suite_in_shell(copy):
    if shutil.which("curl") is None or shutil.which("bash") is None:
        pytest.skip("the suite needs bash and curl")
    printed = run(copy("mock_shell"), "bash", "test_ask.sh")
    assert printed.splitlines() == [
        "ok: the answer is printed",
        "ok: a busy server is asked again",
        "ok: it was asked twice",
        "ok: a refusal is a failure",
    ]
