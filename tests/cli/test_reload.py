"""``serve --backend file.py --reload`` as a real process: every save counts, also a bad one."""

from __future__ import annotations

import json
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest

from caesar_server.cli.plugins.reload import SourceWatch
from caesar_server.errors import BackendLoadError
from caesar_server.registry import Registry, extra_candidates
from caesar_server.settings import Settings

BACKEND = """
from caesar_server.contract import *
import words

class GreetBackend(Backend):
    def run(self, request, context):
        for choice in range(request.choices):
            yield ContentDelta("{word} " + words.WORD, choice)
            yield ChoiceFinished(choice)
        yield Completed()
"""
WITHIN_S = 60


def ask(url: str) -> str:
    """Return the text of an answer, or the code of the error."""
    body = json.dumps({"model": "greet", "prompt": "x"}).encode()
    request = urllib.request.Request(
        f"{url}/compat/completions", body, {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=WITHIN_S) as response:
            return json.load(response)["choices"][0]["text"]
    except urllib.error.HTTPError as error:
        with error:
            return json.load(error)["error"]["code"]


def wait_until_answered(server, expected: str) -> None:
    """Ask until the answer is the expected one; there must be an answer each time."""
    until = time.monotonic() + WITHIN_S
    while (seen := ask(server.url)) != expected:
        assert time.monotonic() < until, f"still {seen!r}\n{server.log}"
        time.sleep(0.05)


@pytest.fixture
def project(folder: Path) -> Path:
    """``plugin/greet.py`` and a module that it imports."""
    project = folder / "plugin"
    project.mkdir()
    (project / "greet.py").write_text(BACKEND.format(word="Hello"))
    (project / "words.py").write_text("WORD = 'world'\n")
    return project


@pytest.fixture
def server(start, project: Path):
    server = start(
        "caesar_server", "serve", "--port", "0", "--backend", "plugin/greet.py", "--reload"
    )
    assert ask(server.url) == "Hello world"
    return server


@pytest.mark.slow
def test_every_save_of_the_file_and_of_what_it_imports_counts(server, project: Path) -> None:
    # as long as before, and within the same second: byte code would not tell them apart
    (project / "greet.py").write_text(BACKEND.format(word="Howdy"))
    wait_until_answered(server, "Howdy world")
    (project / "words.py").write_text("WORD = 'earth'\n")
    wait_until_answered(server, "Howdy earth")
    server.wait_for(r"changed: words\.py; starting a new worker")
    assert server.stop() == 0
    assert "Traceback" not in server.log


@pytest.mark.slow
def test_after_a_bad_save_the_next_good_one_is_served(server, project: Path) -> None:
    good = (project / "greet.py").read_text()
    (project / "greet.py").write_text(good.replace("class", "clas"))
    wait_until_answered(server, "backend_failed_to_load")
    server.wait_for(r"backend greet \(plugin/greet\.py\) is failed: the import raised SyntaxError")
    (project / "greet.py").write_text(good.replace("import words", "import wordz as words"))
    server.wait_for(r"is failed: the module wordz is missing")
    # a file that is new, wrong at first, and was never imported
    (project / "wordz.py").write_text("WORD = \n")
    server.wait_for(r"(?s)wordz is missing.*import raised SyntaxError")
    (project / "wordz.py").write_text("WORD = 'again'\n")
    wait_until_answered(server, "Hello again")
    (project / "greet.py").write_text("import sys\nsys.exit(3)\n")
    server.wait_for("the import raised SystemExit")
    (project / "greet.py").write_text(good)
    wait_until_answered(server, "Hello world")
    assert server.stop() == 0


@pytest.mark.slow
def test_an_installed_package_is_served_again_once_it_is_corrected(start, folder: Path) -> None:
    # as a link leaves it: an entry point, and a package that is a path and not in site-packages
    info = folder / "greet-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: greet\nVersion: 1.0\n")
    point = "greet = greeter:GreetBackend"
    (info / "entry_points.txt").write_text(f"[caesar_server.backends]\n{point}\n")
    package = folder / "greeter"
    package.mkdir()
    (package / "__init__.py").write_text("from greeter.backend import GreetBackend\n")
    (folder / "words.py").write_text("WORD = 'world'\n")
    broken = BACKEND.replace("class", "clas").format(word="Hello")
    (package / "backend.py").write_text(broken)
    flags = ("--default-backend", "greet", "--reload")
    server = start("caesar_server", "serve", "--port", "0", *flags)
    # broken from the start, and told without a request
    server.wait_for(r"backend greet \(greeter:GreetBackend\) is failed: the import raised Synt")
    assert ask(server.url) == "backend_failed_to_load"
    (package / "backend.py").write_text(BACKEND.format(word="Hello"))
    wait_until_answered(server, "Hello world")
    (package / "backend.py").write_text(broken)
    wait_until_answered(server, "backend_failed_to_load")
    (package / "backend.py").write_text(BACKEND.format(word="Howdy"))
    wait_until_answered(server, "Howdy world")
    assert server.stop() == 0


@pytest.mark.slow
def test_a_plugin_that_kills_its_worker_does_not_end_the_server(server, project: Path) -> None:
    good = (project / "greet.py").read_text()
    (project / "greet.py").write_text("import os\nos._exit(9)\n")
    server.wait_for(r"(?s)changed: greet\.py.*Worker \(pid:\d+\) (exited|was sent)")
    (project / "greet.py").write_text(good.replace("Hello", "Still here,"))
    until = time.monotonic() + WITHIN_S
    while True:
        try:
            if ask(server.url) == "Still here, world":
                break
        except OSError:
            pass  # the worker had just died
        assert time.monotonic() < until, server.log
    server.stop()


def test_reload_refuses_what_does_not_go_with_it(run) -> None:
    for flags, words in (
        (["--strict-plugins"], "strict_plugins:"),
        (["--workers=2", "--store=sqlite:///jobs.sqlite3"], "workers:"),
    ):
        result = run("serve", "--port", "0", "--backend", "hello.py", "--reload", *flags)
        assert result.exit_code == 2
        assert words in result.stderr
        assert "--reload" in result.stderr


# --- what is looked at ----------------------------------------------------------------------------


@pytest.fixture
def watch(project: Path):
    """Return a function that starts a watch and returns the list of what it reported."""
    watches = []

    def begin(*extra_backends: str, entry_points: tuple[str, ...] = ()):
        reports: list[list[str]] = []
        told = threading.Event()

        def changed(files: list[Path]) -> None:
            reports.append([path.name for path in files])
            told.set()

        one = SourceWatch(extra_backends, changed, entry_points)
        watches.append(one)
        one.start()
        return lambda: told.wait(WITHIN_S) and reports

    yield begin
    for one in watches:
        one.close()
        one.close()


@pytest.mark.parametrize("spec", ["plugin/greet.py", "g=plugin/greet.py:GreetBackend"])
def test_a_change_is_told_once_by_name(watch, project: Path, spec: str) -> None:
    reports = watch(spec)
    (project / "words.py").write_text("WORD = 'a longer one'\n")
    assert reports() == [["words.py"]]


def test_a_removed_file_is_a_change(watch, project: Path) -> None:
    reports = watch("plugin/greet.py")
    (project / "words.py").unlink()
    assert reports() == [["words.py"]]


def test_packages_below_are_looked_at_and_other_folders_are_not(watch, project: Path) -> None:
    for name in ("package", "data"):
        (project / name).mkdir()
    (project / "package" / "__init__.py").touch()
    (project / "package" / "deep.py").touch()
    (project / "data" / "sample.py").touch()
    reports = watch("plugin/greet.py")
    (project / "data" / "sample.py").write_text("1")
    (project / "notes.txt").write_text("1")
    (project / "package" / "deep.py").write_text("1")
    assert reports() == [["deep.py"]]


def test_the_folder_of_a_module_is_found_without_importing_it(watch, folder, monkeypatch) -> None:
    monkeypatch.syspath_prepend(folder)
    (folder / "broken.py").write_text("raise RuntimeError\n")
    reports = watch("broken:SomeBackend", "nowhere:GoneBackend", "json:NoBackend")
    (folder / "broken.py").write_text("fixed = True\n")
    assert reports() == [["broken.py"]]


def test_packages_of_entry_points_are_looked_at(watch, folder, monkeypatch) -> None:
    monkeypatch.syspath_prepend(folder)
    for package in ("linked", "space/inner"):
        (folder / package).mkdir(parents=True)
        (folder / package / "__init__.py").write_text("raise RuntimeError\n")
    points = ("linked.backend:ABackend", "space.inner:BBackend", "json:NoBackend", "gone:NoBackend")
    reports = watch(entry_points=points)
    # space is a namespace, without a file of its own
    (folder / "space" / "inner" / "__init__.py").write_text("fixed = True\n")
    assert reports() == [["__init__.py"]]
    reports = watch(entry_points=points)
    (folder / "linked" / "backend.py").write_text("new = True\n")
    assert reports() == [["backend.py"]]


# --- a backend that is a file ---------------------------------------------------------------------

ONE = (
    "from caesar_server.contract import *\n\nclass OneBackend(Backend):\n    def run(self, r, c):\n"
)
ONE += "        yield Completed()\n"


def load(spec: str):
    """Return the report on an extra backend after an attempt to load it."""
    registry = Registry(extra_candidates([spec]), Settings(extra_backends=(spec,)))
    with suppress(BackendLoadError):  # the report tells why
        registry.load(registry.default)
    report = registry.report(registry.default)
    registry.close()
    return report


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ("{}/file_one.py", "file_one"),
        ("{}/file_one.py:OneBackend", "one"),
        ("mine={}/file_one.py", "mine"),
        ("mine={}/file_one.py:OneBackend", "mine"),
    ],
)
def test_the_class_of_a_file_is_found(folder: Path, spec: str, name: str) -> None:
    (folder / "file_one.py").write_text(ONE)
    report = load(spec.format(folder))
    assert (report.name, report.state) == (name, "loaded")
    assert report.entry_point == spec.format(folder).removeprefix("mine=")


def test_a_file_called_like_its_class_loses_the_suffix() -> None:
    assert extra_candidates(["some/weather_backend.py"])[0].name == "weather"


@pytest.mark.parametrize(
    ("source", "suffix", "reason", "hint"),
    [
        (None, "", "the file {} does not exist", "correct the path"),
        ("x = 1\n", "", "case.py defines no class derived from", "imported from elsewhere"),
        ("from caesar_server.mock.backend import MockBackend\n", "", "defines no class", "define"),
        (
            ONE + ONE.replace("One", "Other"),
            "",
            "case.py defines 2 backends: OneBackend, OtherBackend",
            "say which one: case.py:OneBackend",
        ),
        (ONE, ":TwoBackend", "case.py defines no backend class TwoBackend", "OneBackend"),
        ("import no_such_module\n", "", "the module no_such_module is missing", "pip install"),
        ("def x(:\n", "", "the import raised SyntaxError", "--verbose"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(
    folder: Path, source: str | None, suffix: str, reason: str, hint: str
) -> None:
    path = folder / "case.py"
    if source is not None:
        path.write_text(source)
    report = load(f"case={path}{suffix}")
    assert report.state == "failed"
    assert reason.format(path) in report.reason
    assert hint in report.hint


def test_a_file_does_not_take_the_place_of_a_module(folder: Path) -> None:
    (folder / "json.py").write_text(ONE)
    report = load(f"{folder}/json.py")
    assert "another module is called json" in report.reason
    assert report.hint == "rename json.py"
    assert sys.modules["json"] is json


@pytest.mark.parametrize("name", ["hello-world.py", "a.b.py", "1.py"])
def test_a_file_that_no_module_can_be_called_by_is_refused(run, folder: Path, name: str) -> None:
    (folder / name).write_text(ONE)
    result = run("check", name)
    assert result.exit_code == 2
    assert f"{name!r} cannot be imported; name the file with letters" in result.stderr


def test_check_takes_a_file(run, folder: Path) -> None:
    for spec in ("hello.py:HelloBackend", "./hello.py:HelloBackend"):
        result = run("check", spec)
        assert result.exit_code == 0, result.output
    result = run("check", "hello.py")
    assert result.exit_code == 1
    assert "hello.py defines 3 backends: FragileBackend, HelloBackend, WrongBackend" in (
        result.stderr
    )


def test_the_path_starts_in_the_current_folder(run, folder: Path, monkeypatch) -> None:
    (folder / "below").mkdir()
    monkeypatch.chdir(folder / "below")
    assert run("check", "../hello.py:HelloBackend").exit_code == 0
