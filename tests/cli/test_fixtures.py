"""``caesar-server fixtures``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from jsonschema import Draft202012Validator

from caesar_server.cli import main


def run(*args: str | Path) -> Result:
    return CliRunner().invoke(main, ["fixtures", *map(str, args)])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rules = ("{name: hi, when: {prompt: Hi}, reply: Hi}", "{when: {prompt: Ho}, reply: Ho}")
    (tmp_path / "a.yaml").write_text("rules:\n  - " + "\n  - ".join(rules))
    (tmp_path / "b.json").write_text('{"Hello": "Hi"}')
    return tmp_path


def test_good_files(folder: Path) -> None:
    result = run("validate", folder)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "3 rules in 2 files\n")
    assert run("validate", folder / "b.json").stderr == "1 rule in 1 file\n"
    assert run("validate", "--json", folder).stdout == "[]\n"


def test_a_file_counts_once_and_equal_names_are_told_apart(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "b.json").write_text('{"Hallo": "Ho"}')
    result = run("validate", folder / "b.json", folder, folder / "sub")
    assert (result.exit_code, result.stderr) == (0, "4 rules in 3 files\n")


def test_problems_with_their_places(folder: Path) -> None:
    (folder / "a.yaml").write_text("rules:\n  - {reply: 5, tims: 1}\n")
    (folder / "b.json").write_text('{"Hello":\n {"text": 1}}')
    result = run("validate", folder)
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        "a.yaml:2:6: rules[0].reply: expected a string or an object, got 5",
        "a.yaml:2:16: rules[0].tims: unknown field; did you mean 'times'?",
        "b.json:2:3: Hello.text: expected a string or a list, got 1",
    ]
    assert result.stderr == "3 problems\n"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("reply: a", "when: {prompt: Hi}, reply: b"),
        ("when: {prompt: Hi}, replies: [a, b]", "when: {stream: true, prompt: Hi}, reply: c"),
        ("fault: {kind: reset}", "when: {model: m}, fault: {kind: status, status: 500}"),
    ],
)
def test_a_rule_that_is_never_used(folder: Path, first: str, second: str) -> None:
    (folder / "a.yaml").write_text(f"rules:\n  - {{{first}}}\n  - {{{second}}}\n")
    result = run("validate", folder / "a.yaml")
    assert (result.exit_code, result.stdout) == (0, "")
    told, summary = result.stderr.splitlines()
    assert told.startswith("a.yaml:3: never used: 'a.yaml:1' (a.yaml:2) is tried first")
    assert summary == "2 rules in 1 file"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("times: 2, reply: a", "reply: b"),
        ("skip: 1, reply: a", "reply: b"),
        ("reply: a", "priority: 1, when: {prompt: Hi}, reply: b"),
        ("reply: a", "times: 0, reply: b"),
        ("reply: a", "fault: {kind: reset}"),
        ("when: {prompt: Hi}, reply: a", "when: {prompt: Ho}, reply: b"),
        ("when: {prompt: Hi, stream: true}, reply: a", "when: {prompt: Hi}, reply: b"),
        ("fault: {kind: reset, probability: 0.5}", "fault: {kind: reset}"),
    ],
)
def test_rules_that_leave_something_to_each_other(folder: Path, first: str, second: str) -> None:
    (folder / "a.yaml").write_text(f"rules:\n  - {{{first}}}\n  - {{{second}}}\n")
    assert run("validate", folder / "a.yaml").stderr == "2 rules in 1 file\n"


def test_problems_as_json(folder: Path) -> None:
    (folder / "b.json").write_text('{"Hello": 5}')
    result = run("validate", "--json", folder)
    assert result.exit_code == 1
    assert json.loads(result.stdout) == [
        {
            "file": "b.json",
            "line": 1,
            "column": 2,
            "field": "Hello",
            "message": "expected a string or an object, got 5",
        }
    ]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    result = run("validate", tmp_path / "none.json")
    assert result.exit_code == 1
    assert result.stdout.endswith("none.json: cannot be read: No such file or directory\n")


def test_paths_are_needed() -> None:
    assert run("validate").exit_code == 2


def test_the_schema() -> None:
    result = run("schema")
    assert result.exit_code == 0
    Draft202012Validator(json.loads(result.stdout)).validate({"rules": [{"reply": "Hi"}]})
