"""What the commands print, in text and JSON, and how they refuse."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import caesar_server
from caesar_server.cli import main
from caesar_server.settings import flag_name, has_flag, is_of_mock, setting_fields

HELLO_FILE = """
default_backend = "hello"
extra_backends = ["hello:HelloBackend"]

[backends.hello]
greeting = "Hi"
api_key = "hush"
headers = { authorization = "hush" }

[backends.unknown]
whatever = "hush"

[models."gpt-*"]
backend = "hello"
options = { times = 2, api_key = "hush" }
"""


@pytest.fixture
def hello_file(folder):
    (folder / "caesar-server.toml").write_text(HELLO_FILE)


@pytest.mark.parametrize("command", [None, *sorted(main.commands)])
@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_of_every_command(run, command, flag) -> None:
    result = run(*filter(None, [command, flag]))
    assert result.exit_code == 0
    assert result.stdout.startswith("Usage: ")
    if command is None:
        for name in main.commands:
            assert re.search(rf"^  {name} +[A-Z][^.]+\.$", result.stdout, re.MULTILINE)


def test_version(run) -> None:
    assert caesar_server.__version__ in run("--version").stdout


def test_importing_the_command_imports_neither_flask_nor_gunicorn_nor_plugins() -> None:
    code = (
        "import caesar_server.cli, sys; "
        "print([n for n in sys.modules if n.split('.')[0] in "
        "('flask', 'werkzeug', 'marshmallow', 'gunicorn', 'caesar_backend_echo')])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize("field", setting_fields().values(), ids=lambda field: field.name)
def test_there_is_a_flag_for_each_setting_that_is_no_table_and_no_secret(run, field) -> None:
    command = "mock" if is_of_mock(field.name) else "serve"
    text = " ".join(run(command, "--help").stdout.split())
    flag = flag_name(field.name)
    assert (re.search(rf" {flag} ", text) is not None) == has_flag(field)
    if has_flag(field):
        described = text[text.index(f" {flag} ") :].replace("- ", "-")
        assert field.info.help.replace("- ", "-") in described
        assert field.range in described


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('prot = "1"', ["caesar-server.toml: prot: unknown", "did you mean port?"]),
        ("port = ", ["caesar-server.toml: is not valid TOML"]),
        ('default_backend = "helo"', ["default_backend: no backend is called 'helo'", "known: "]),
        ('extra_backends = ["hello"]', ["extra_backends: expected [NAME=]module:Class"]),
        ('host = "0.0.0.0"\nextra_backends = ["hello:HelloBackend"]', ["--insecure"]),
        ('host = "unix:/run/s.sock"', ["host: 'unix:/run/s.sock' is no address"]),
        (
            'extra_backends = ["hello:HelloBackend"]\n[backends.hello]\ntims = 2\n'
            '[models."gpt-*"]\nbackend = "hello"\noptions = {greting = "Hi"}',
            [
                "backends.hello.tims: unknown; did you mean backends.hello.times?",
                "models.gpt-*.options.greting: unknown; did you mean",
            ],
        ),
        ("workers = 0\nthreads = 1", ["workers: expected 1 to 1024", "threads: expected 8 to"]),
        (
            'strict_plugins = true\nextra_backends = ["hello:NoBackend"]',
            ["strict_plugins: backend no (hello:NoBackend) is failed: the module hello has no"],
        ),
    ],
)
def test_serve_refuses_bad_settings_before_it_listens(run, folder, content, words) -> None:
    (folder / "caesar-server.toml").write_text(content)
    result = run("serve", "--port", "0")
    assert result.exit_code == 2
    assert "Serving" not in result.stderr
    assert "Traceback" not in result.output
    for word in words:
        assert word in result.stderr
    if "extra_backends" in content and "0.0.0.0" not in content:
        return
    assert str(folder / "caesar-server.toml") in result.stderr


@pytest.mark.usefixtures("hello_file")
def test_tables_of_backends_that_are_not_there_are_warned_of(run, folder, monkeypatch) -> None:
    monkeypatch.setenv("CAESAR_SERVER_BACKENDS__HELO__TIMES", "2")
    text = run("backends").stdout
    file = folder / "caesar-server.toml"
    assert f"warning: file {file}: backends.unknown: no backend is called 'unknown'; known" in text
    assert (
        "warning: environment CAESAR_SERVER_BACKENDS__HELO__TIMES: backends.helo: no backend is "
        "called 'helo'; did you mean 'hello'?"
    ) in text


def test_backend_that_is_named_and_not_allowed_is_not_looked_at(run) -> None:
    flags = ("--backend", "hello:HelloBackend", "--allowed-backends", "mock", "--insecure")
    result = run("serve", *flags, "--host", "192.0.2.1")
    assert "cannot listen on port 8000 of 192.0.2.1" in result.stderr


def test_problem_on_the_command_line_is_said_to_be_there(run) -> None:
    result = run("serve", "--default-backend", "helo", "--backend", "hello:HelloBackend")
    assert result.exit_code == 2
    assert "command line: default_backend: no backend is called 'helo'; did you mean 'hello'?" in (
        result.stderr
    )


@pytest.mark.usefixtures("hello_file")
def test_settings_tells_values_and_origins_and_hides_secrets(run, folder, monkeypatch) -> None:
    monkeypatch.setenv("CAESAR_SERVER_PORT", "9000")
    file = f"file {folder / 'caesar-server.toml'}"
    values = json.loads(run("settings", "--json").stdout)
    assert values["port"] == {"value": 9000, "origin": "environment CAESAR_SERVER_PORT"}
    assert values["host"] == {"value": "127.0.0.1", "origin": "default"}
    assert values["default_backend"] == {"value": "hello", "origin": file}
    assert values["backends.hello.greeting"] == {"value": "Hi", "origin": file}
    assert values["models.gpt-*.backend"] == {"value": "hello", "origin": file}
    assert values["models.gpt-*.options.times"] == {"value": 2, "origin": file}
    for hidden in (
        "backends.hello.api_key",
        "backends.hello.headers",
        "backends.unknown.whatever",
        "models.gpt-*.options.api_key",
    ):
        assert values[hidden] == {"value": "(hidden)", "origin": file}

    text = run("settings")
    assert text.exit_code == 0
    assert "hush" not in text.output
    assert re.search(r"^port +9000 +environment CAESAR_SERVER_PORT$", text.stdout, re.MULTILINE)
    assert re.search(r"^backends\.hello\.greeting +Hi +file ", text.stdout, re.MULTILINE)


def test_settings_are_printed_even_if_they_name_no_backend(run, folder) -> None:
    (folder / "caesar-server.toml").write_text(
        'default_backend = "nobody"\n[backends.x]\na = "hush"'
    )
    result = run("settings")
    assert result.exit_code == 0
    assert "nobody" in result.stdout
    assert "hush" not in result.stdout


def test_settings_can_be_those_of_another_file(run, folder) -> None:
    (folder / "other.toml").write_text("port = 7")
    values = json.loads(run("settings", "--json", "--config", "other.toml").stdout)
    assert values["port"] == {"value": 7, "origin": f"file {folder / 'other.toml'}"}
    assert run("settings", "--config", "none.toml").exit_code == 2


def reports(result) -> dict[str, dict]:
    return {report["name"]: report for report in json.loads(result.stdout)["backends"]}


@pytest.mark.usefixtures("hello_file")
def test_backends_opens_each_and_closes_it_again(run, folder) -> None:
    report = reports(run("backends", "--json"))["hello"]
    assert (report["state"], report["entry_point"]) == ("loaded", "hello:HelloBackend")
    assert list(folder.glob("opened-*"))
    assert list(folder.glob("closed-*"))


def test_backends_explains_what_does_not_open(run, folder) -> None:
    (folder / "caesar-server.toml").write_text('extra_backends = ["hello:FragileBackend"]')
    result = run("backends")
    assert result.exit_code == 0
    assert re.search(
        r"^fragile +failed +\(extra_backends\) +hello:FragileBackend$", result.stdout, re.M
    )
    assert "reason: open() raised RuntimeError" in result.stdout
    assert "detail: broken glass" in result.stdout
    assert "hint: caesar-server backends hello:FragileBackend --verbose" in result.stdout
    assert "Traceback" not in result.output
    assert "Traceback" in run("backends", "fragile", "--verbose").stderr
    assert "Traceback" in run("backends", "hello:FragileBackend", "--verbose").stderr


def test_backends_tells_of_a_class_or_file_that_no_setting_names(run) -> None:
    assert "no backend is called 'hello'" in run("backends", "hello").stderr
    by_class = run("backends", "hello:HelloBackend")
    assert by_class.stdout.splitlines()[1].split() == (
        ["hello", "loaded", "(extra_backends)", "hello:HelloBackend"]
    )
    assert "backends.hello" in by_class.stdout
    assert "times (integer, 1 to 9, words; default 1)" in by_class.stdout
    by_file = run("backends", "hello.py:FragileBackend", "--verbose")
    assert "detail: broken glass" in by_file.stdout
    assert "Traceback" in by_file.stderr
    assert run("backends", "nope.py").exit_code == 0
    assert "nope.py does not exist" in run("backends", "nope.py").stdout


@pytest.mark.usefixtures("hello_file")
def test_options_of_a_backend(run) -> None:
    result = run("backends", "hello")
    assert "times (integer, 1 to 9, words; default 1)" in result.stdout
    assert "How often it is said." in result.stdout
    assert "api_key (string; secret, unset by default)" in result.stdout
    options = json.loads(run("backends", "hello", "--json").stdout)["options"]
    assert [option["name"] for option in options] == ["greeting", "times", "api_key", "headers"]
    assert options[1]["range"] == "1 to 9"
    assert options[2]["secret"] is True
    assert "hush" not in result.output


@pytest.mark.usefixtures("hello_file")
def test_unknown_backend_is_refused_with_the_nearest_name(run) -> None:
    for command in ("backends", "check"):
        result = run(command, "helo")
        assert result.exit_code == 2
        assert "no backend is called 'helo'; did you mean 'hello'?" in result.stderr


@pytest.mark.parametrize("name", ["weather", "./weather", "weather/"])
def test_a_package_that_is_not_installed_is_told_so(run, name) -> None:
    assert run("new-backend", "weather").exit_code == 0
    for command in ("backends", "check"):
        result = run(command, name)
        assert result.exit_code == 2
        assert "that folder is not installed" in result.stderr
        assert "pip install -e ./weather" in result.stderr


@pytest.mark.usefixtures("hello_file")
def test_routes_are_listed(run) -> None:
    result = run("routes")
    assert result.exit_code == 0, result.output
    assert re.search(r"^POST +/compat/completions +\S+$", result.stdout, re.MULTILINE)
    routes = {route["path"]: route for route in json.loads(run("routes", "--json").stdout)}
    assert routes["/healthz"]["methods"] == ["GET"]


@pytest.mark.parametrize("name", ["hello", "hello:HelloBackend", "hello=hello:HelloBackend"])
@pytest.mark.usefixtures("hello_file")
def test_check_passes_a_backend_that_keeps_the_contract(run, name) -> None:
    result = run("check", name, "--json")
    report = json.loads(result.stdout)
    assert report["failed"] is False, [r for r in report["results"] if r["outcome"] == "fail"]
    assert result.exit_code == 0
    assert {one["outcome"] for one in report["results"]} >= {"pass"}


def test_what_a_backend_prints_is_not_in_the_json(run, folder: Path) -> None:
    (folder / "talker.py").write_text(
        "import hello\nprint('imported')\nclass Talker(hello.HelloBackend):\n"
        "    def open(self): print('opened')\n    def close(self): print('closed')\n"
    )
    result = run("backends", "talker.py", "--json")
    assert json.loads(result.stdout)
    for word in ("imported", "opened", "closed"):
        assert word in result.stderr


def test_check_lets_a_backend_call_those_that_are_installed(run, folder) -> None:
    (folder / "caller.py").write_text(
        """
from caesar_server.contract import *


class Caller(Backend):
    def run(self, request, context):
        if not isinstance(request, CompletionRequest) or not isinstance(request.prompts[0], str):
            raise InvalidRequestError("takes text only", param=None)
        for choice, prompt in enumerate(request.prompts):
            for event in context.call("echo", CompletionRequest(prompts=(prompt,))):
                if isinstance(event, ContentDelta):
                    yield ContentDelta(event.text, choice)
            yield ChoiceFinished(choice)
        yield Completed()
"""
    )
    result = run("check", "caller.py", "--quiet")
    assert (result.exit_code, "0 failed" in result.stdout) == (0, True), result.output


@pytest.mark.parametrize("command", ["check", "backends"])
def test_what_libraries_and_programs_print_is_not_in_the_json(folder: Path, command: str) -> None:
    (folder / "talker.py").write_text(
        "import ctypes, subprocess, sys\nimport hello\nclass Talker(hello.HelloBackend):\n"
        "    def open(self):\n        ctypes.CDLL(None).puts(b'from C'); print('from Python')\n"
        "        subprocess.run([sys.executable, '-c', 'print(\"from a child\")'], check=True)\n"
    )
    # in a process of its own: the runner's stdout is no file
    done = subprocess.run(
        [sys.executable, "-m", "caesar_server", command, "talker.py", "--json"],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert json.loads(done.stdout)
    for words in ("from C", "from Python", "from a child"):
        assert words in done.stderr


def test_check_fails_a_backend_that_breaks_a_rule(run) -> None:
    result = run("check", "hello:WrongBackend")
    assert result.exit_code == 1
    assert re.search(r"^fail ", result.stdout, re.MULTILINE)


@pytest.mark.parametrize(
    ("ending", "status"),
    [
        ("os._exit(0)", "exit status 0"),
        ("ctypes.CDLL(None).exit(3)", "exit status 3"),
        ("os.kill(os.getpid(), 9)", "SIGKILL"),
    ],
)
@pytest.mark.parametrize("place", ["import", "run"])
def test_check_of_a_backend_that_ends_the_process(
    run, folder: Path, ending: str, status: str, place: str
) -> None:
    body = f"\n    def run(self, request, context):\n        {ending}\n        yield"
    (folder / "ender.py").write_text(
        "import ctypes, os\nimport hello\n"
        f"{ending if place == 'import' else ''}\n"
        f"class Ender(hello.HelloBackend):{body}\n"
    )
    result = run("check", "ender.py")
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"the backend ender has ended the process in which it was tried ({status})" in (
        result.stderr
    )


def test_check_of_a_class_that_cannot_be_imported(run) -> None:
    result = run("check", "hello:NoSuchBackend")
    assert result.exit_code == 1
    assert "hello:NoSuchBackend" in result.stderr
    assert "has no NoSuchBackend" in result.stderr
