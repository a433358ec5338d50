"""The package without its engine, and ``caesar-server models``."""

from __future__ import annotations

import configparser
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from caesar_server.cli import main

ROOT = Path(__file__).resolve().parents[3]
HERE = ROOT / "backends" / "local_llm"
TinyModels = Callable[..., Any]

#: As on a machine where nothing was compiled.
WITHOUT_ENGINE = """
import sys
sys.modules["llama_cpp"] = sys.modules["numpy"] = None
from caesar_backend_local_llm import LocalLlmBackend, LocalLlmOptions, ModelOptions
from caesar_server.contract import BackendError

backend = LocalLlmBackend()
backend.open()
print(len(backend.models()), backend.health().status)
backend.close()

wanted = LocalLlmBackend(LocalLlmOptions(models={"one": ModelOptions(path="one.gguf")}))
print(len(wanted.models()))
try:
    wanted.open()
except BackendError as error:
    print(error.message)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def configure(folder: Path) -> Callable[..., None]:
    """Write a settings file with these models."""

    def configure(**models: str | Path) -> None:
        tables = (
            f"[backends.local_llm.models.{name}]\npath = {json.dumps(str(path))}\n"
            for name, path in models.items()
        )
        (folder / "caesar-server.toml").write_text("".join(tables))

    return configure


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["models", *arguments])


def test_without_the_engine_only_models_are_missing() -> None:
    """The package can be imported, and opened as long as it has nothing to run."""
    command = [sys.executable, "-W", "error", "-c", WITHOUT_ENGINE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    without, with_one, sentence = done.stdout.splitlines()
    assert (without, with_one) == ("0 down", "1")
    assert sentence.startswith("llama-cpp-python cannot be imported (")
    assert "pip install llama-cpp-python" in sentence


def test_the_engine_is_wanted_in_one_version() -> None:
    config = configparser.ConfigParser()
    config.read(HERE / "setup.cfg")
    (ours,) = (
        line
        for line in config["options"]["install_requires"].splitlines()
        if line.startswith("llama-cpp-python")
    )
    assert ours in (ROOT / "requirements-llm.txt").read_text().splitlines()


def test_what_make_run_installs_is_not_compiled() -> None:
    for name in ("requirements.txt", "requirements-dev.txt"):
        lines = (ROOT / name).read_text().splitlines()
        needed = {line.strip() for line in lines if not line.startswith("#")}
        assert not any("local_llm" in line or "llama" in line for line in needed)


def test_the_configured_models_are_listed(configure, tiny_model: TinyModels) -> None:
    configure(echo=tiny_model("echo").path, noise=tiny_model("random", "bpe", half=False).path)
    result = run()
    assert result.exit_code == 0, result.output
    head, echo, noise = (line.split() for line in result.stdout.splitlines())
    assert head == [
        "MODEL",
        "SIZE",
        "PARAMETERS",
        "ARCHITECTURE",
        "CONTEXT",
        "QUANTISATION",
        "TEMPLATE",
    ]
    assert echo == ["local_llm/echo", "1.43", "MB", "706K", "llama", "2048", "F16", "yes"]
    assert (noise[0], noise[-2:]) == ("local_llm/noise", ["F32", "yes"])


def test_a_file_that_cannot_be_served_is_explained_and_the_status_is_1(
    configure, tiny_model: TinyModels, folder: Path
) -> None:
    (folder / "empty.gguf").touch()
    configure(good=tiny_model().path, bad="empty.gguf", gone="/nowhere/x.gguf")
    result = run()
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[2].split() == ["local_llm/bad", *"------"]
    assert lines[3] == f"    problem: {folder}/empty.gguf is empty"
    assert lines[5] == "    problem: /nowhere/x.gguf does not exist"


def test_files_and_folders_can_be_named(tiny_model: TinyModels, folder: Path) -> None:
    path = tiny_model("echo", chat_template=None).path
    for name in ("b.gguf", "a.gguf", "big-00002-of-00002.gguf", "notes.txt"):
        (folder / name).write_bytes(path.read_bytes())
    result = run(str(folder), "notes.txt")
    assert result.exit_code == 0, result.output
    names = [line.split()[0] for line in result.stdout.splitlines()[1:]]
    assert names == ["a.gguf", "b.gguf", "notes.txt"]  # whatever it is called, it is one
    assert all(line.endswith("no") for line in result.stdout.splitlines()[1:])


def test_json_has_every_fact(configure, tiny_model: TinyModels) -> None:
    path = tiny_model("echo").path
    configure(echo=path, gone="/nowhere/x.gguf")
    result = run("--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["models"] == [
        {
            "model": "local_llm/echo",
            "path": str(path),
            "file": {
                "name": "tiny",
                "size_bytes": path.stat().st_size,
                "parameters": 706_496,
                "architecture": "llama",
                "context": 2048,
                "quantisation": "F16",
                "chat_template": True,
                "parts": [str(path)],
            },
            "problem": None,
        },
        {
            "model": "local_llm/gone",
            "path": "/nowhere/x.gguf",
            "file": None,
            "problem": "/nowhere/x.gguf does not exist",
        },
    ]


def test_without_a_model_the_way_to_name_one_is_shown() -> None:
    result = run()
    assert result.exit_code == 0
    assert "[backends.local_llm.models.NAME]\n    path = " in result.stdout


def test_wrong_options_are_told(folder: Path) -> None:
    (folder / "caesar-server.toml").write_text("[backends.local_llm.models.x]\npth = 'a'\n")
    result = run()
    assert result.exit_code == 2
    assert "backends.local_llm.models.x.pth: unknown; did you mean" in result.stderr


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (999, "999"),
        (1_000, "1.0K"),
        (134_515_008, "135M"),
        (999_600_000, "1.0B"),
        (7_241_732_096, "7.2B"),
        (70_553_706_496, "71B"),
    ],
)
def test_parameters_are_counted_as_models_are_called(count: int, said: str) -> None:
    from caesar_backend_local_llm.command import _millions

    assert _millions(count) == said
