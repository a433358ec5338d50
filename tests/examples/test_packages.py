"""The two example distributions, installed and asked."""

from __future__ import annotations

import ast
import json
import urllib.request
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def ask(port: int, body: dict) -> dict:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/compat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)


def test_hello_is_two_files(root: Path) -> None:
    folder = root / "examples" / "hello_backend"
    names = {path.name for path in folder.iterdir()}
    made = {name for name in names if name.endswith((".egg-info", "build", "__pycache__"))}
    assert names - made == {"pyproject.toml", "caesar_backend_hello.py"}


@pytest.mark.parametrize("name", ["hello", "folder"])
def test_both_pass_the_check(examples, tmp_path: Path, name: str) -> None:
    report = json.loads(examples.shell(f"caesar-server check {name} --json", tmp_path))
    assert not report["failed"]
    passed = {one["rule"] for one in report["results"] if one["outcome"] == "pass"}
    assert {"run.accepts", "life.leaves_nothing", "cancel.while_working"} <= passed
    if name == "folder":
        assert {"events.citations_resolve", "files.read", "files.any_bytes"} <= passed


def test_the_own_tests_of_the_research_example_pass(examples, root: Path, tmp_path: Path) -> None:
    tests = root / "examples" / "research_backend" / "tests"
    options = f"-q -p no:cacheprovider -c {tests.parent / 'setup.cfg'} --rootdir {tmp_path}"
    assert " passed" in examples.shell(f"python -m pytest {options} {tests}", tmp_path)


def test_hello_says_hello(examples, serve, tmp_path: Path) -> None:
    command = lambda port: ["caesar-server", "serve", "--port", str(port)]  # noqa: E731
    (tmp_path / "caesar-server.toml").write_text('default_backend = "hello"')
    with serve(command, tmp_path, examples.variables()) as port:
        answer = ask(port, {"model": "any", "prompt": ["world", "moon"]})
    assert [choice["text"] for choice in answer["choices"]] == ["Hello, world!", "Hello, moon!"]


def test_folder_answers_with_references_that_resolve(examples, serve, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "owls.txt").write_text(
        "Owls\n\nOwls hunt at night. They turn their heads by 270 degrees."
    )
    (notes / "bees.txt").write_text("Bees\n\nBees dance to tell each other where flowers are.")
    (tmp_path / "caesar-server.toml").write_text(
        '[backends.folder]\nfolder = "notes"\nbase_url = "https://notes.example/"\n'
    )
    command = lambda port: ["caesar-server", "serve", "--port", str(port)]  # noqa: E731
    with serve(command, tmp_path, examples.variables()) as port:
        # a name that only the defaults of the distribution send to it
        answer = ask(
            port, {"model": "folder-notes", "prompt": "How far can owls turn their heads?"}
        )
        nothing = ask(port, {"model": "folder", "prompt": "What do zeppelins eat?"})
    assert answer["choices"][0]["text"] == (
        "They turn their heads by 270 degrees. [1]\n\n"
        "## References\n\n[1] [Owls](https://notes.example/owls.txt)"
    )
    assert nothing["choices"][0]["text"] == "Nothing in the files fits this question."


def test_folder_brings_a_command_and_defaults_along(examples, tmp_path: Path) -> None:
    assert "folder-passages  From caesar-backend-folder 0.1.0." in examples.shell(
        "caesar-server --help", tmp_path
    )
    found = examples.shell("caesar-server folder-passages 'What is a cipher?'", tmp_path)
    assert found.startswith("1.00  cipher.txt#")
    listed = examples.shell("caesar-server settings", tmp_path)
    assert "default of caesar-backend-folder 0.1.0" in listed
    table = examples.shell("caesar-server backends", tmp_path)
    assert "folder-passages  loaded" in table


def test_examples_import_nothing_of_the_server_but_the_contract(root: Path) -> None:
    sources = [
        path
        for path in (root / "examples").rglob("*.py")
        if not {"tests", "build"} & set(path.relative_to(root).parts)
    ]
    assert len(sources) >= 9
    for path in sources:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                assert not node.module.startswith("caesar_server") or node.module.startswith(
                    "caesar_server.contract"
                ), path
