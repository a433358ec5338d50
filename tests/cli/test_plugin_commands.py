"""Commands that distributions bring along: lazy, isolated, never in the server's way."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from caesar_server import entry_points
from caesar_server.cli.plugins import commands

COUNT = """
import click

@click.command()
@click.option("--loud", is_flag=True)
@click.pass_obj
def count(options_of, loud):
    '''Say the greeting.'''
    text = options_of("hello").greeting
    click.echo(text.upper() if loud else text)

@click.group()
def group():
    '''Several.'''

@group.command()
def inner():
    click.echo("from within")

@click.command()
@click.pass_obj
def lost(options_of):
    options_of("helo")

not_a_command = 42
"""
#: Leaves a mark when it is imported.
NOISY = """
import pathlib
pathlib.Path("imported").touch()
raise RuntimeError("half of it\\nis missing")
"""

Install = Callable[..., None]


@pytest.fixture(autouse=True)
def nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the commands of what is installed here: it differs from machine to machine."""
    others = {one.distribution for one in entry_points.announced(entry_points.COMMANDS)}
    monkeypatch.setattr(
        commands,
        "announced",
        lambda group: [
            one for one in entry_points.announced(group) if one.distribution not in others
        ],
    )


@pytest.fixture
def install(folder: Path, monkeypatch) -> Install:
    """Install a distribution with these commands, and perhaps a module."""
    site = folder / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(site)
    known = set(sys.modules)

    def install(distribution: str, commands: dict[str, str], **modules: str) -> None:
        info = site / f"{distribution.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n"
        )
        lines = [f"{name} = {value}" for name, value in commands.items()]
        (info / "entry_points.txt").write_text("\n".join(["[caesar_server.commands]", *lines]))
        for name, source in modules.items():
            (site / f"{name}.py").write_text(source)

    yield install
    for name in set(sys.modules) - known:
        if name.startswith("plug_"):
            del sys.modules[name]


@pytest.fixture
def hello(folder: Path) -> None:
    (folder / "caesar-server.toml").write_text(
        'extra_backends = ["hello:HelloBackend"]\n[backends.hello]\ngreeting = "Hi"\n'
    )


@pytest.mark.usefixtures("hello")
def test_a_command_runs_with_its_options_and_those_of_its_backend(run, install) -> None:
    install("caesar-backend-plug", {"count": "plug_count:count"}, plug_count=COUNT)
    assert run("count").stdout == "Hi\n"
    assert run("count", "--loud").stdout == "HI\n"
    text = run("count", "--help").stdout
    assert text.startswith("Usage: main count [OPTIONS]")
    assert "Say the greeting." in text


def test_a_group_of_commands_works(run, install) -> None:
    install("caesar-backend-plug", {"plug": "plug_count:group"}, plug_count=COUNT)
    assert run("plug", "inner").stdout == "from within\n"


def test_help_lists_them_without_importing_any(run, install, folder: Path) -> None:
    install("caesar-backend-plug", {"noisy-one": "plug_noisy:x"}, plug_noisy=NOISY)
    text = run("--help").stdout
    assert "Commands of plugins:\n  noisy-one  From caesar-backend-plug 1.0." in text
    for command in ("settings", "routes", "serve --help"):
        assert run(*command.split()).exit_code == 0
    assert not (folder / "imported").exists()


def test_without_any_help_has_no_such_section(run) -> None:
    assert "plugins" not in run("--help").stdout


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("plug_noisy:x", "importing plug_noisy:x raised RuntimeError: half of it is missing"),
        ("plug_gone:x", "importing plug_gone:x raised ModuleNotFoundError: No module named"),
        ("plug_count:nothing", "importing plug_count:nothing raised AttributeError"),
        ("plug_count:not_a_command", "plug_count:not_a_command is no click command"),
        ("plug_exit:x", "importing plug_exit:x raised SystemExit: 3"),
    ],
)
def test_a_broken_one_is_told_and_disturbs_nobody(run, install, value: str, reason: str) -> None:
    modules = {"plug_noisy": NOISY, "plug_count": COUNT, "plug_exit": "raise SystemExit(3)"}
    install("caesar-backend-plug", {"bad": value, "plug": "plug_count:group"}, **modules)
    result = run("bad")
    assert result.exit_code == 1
    assert "Traceback" not in result.output
    assert "Error: the command bad of caesar-backend-plug 1.0 cannot be used: " in result.stderr
    assert reason in result.stderr
    assert run("plug", "inner").exit_code == 0
    listed = run("backends")
    assert listed.exit_code == 0
    assert f"bad      failed  caesar-backend-plug 1.0  {value}" in listed.stdout
    assert reason in listed.stdout
    told = {one["name"]: one for one in json.loads(run("backends", "--json").stdout)["commands"]}
    assert (told["bad"]["state"], told["plug"]["state"]) == ("failed", "loaded")
    assert reason in told["bad"]["reason"]


def test_the_traceback_of_a_broken_one_can_be_had(run, install) -> None:
    install("caesar-backend-plug", {"bad": "plug_noisy:x"}, plug_noisy=NOISY)
    assert "Traceback" in run("backends", "--verbose").stderr


def test_built_in_names_win(run, install) -> None:
    install("a-plug", {"settings": "plug_count:group", "Bad Name": "plug_count:group"})
    assert "SETTING" in run("settings").stdout
    text = " ".join(run("--help").stdout.split())
    assert "settings (a-plug 1.0: shadowed, the server itself has a command of this name)" in text
    assert "Bad Name (a-plug 1.0: failed, 'Bad Name' cannot be a command" in text
    states = {
        one["name"]: one["state"]
        for one in json.loads(run("backends", "--json").stdout)["commands"]
    }
    assert states == {"settings": "shadowed", "Bad Name": "failed"}


def test_of_two_with_one_name_the_first_by_alphabet_is_used(run, install) -> None:
    install("z-plug", {"same": "plug_noisy:x"}, plug_noisy=NOISY)
    install("a-plug", {"same": "plug_count:group"}, plug_count=COUNT)
    assert run("same", "inner").exit_code == 0
    assert "a-plug 1.0 has a command of this name" in run("backends").stdout


@pytest.mark.usefixtures("hello")
def test_options_that_are_wrong_or_nobodys_end_the_command_with_a_sentence(
    run, install, folder: Path
) -> None:
    install("a-plug", {"count": "plug_count:count", "lost": "plug_count:lost"}, plug_count=COUNT)
    result = run("lost")
    assert result.exit_code == 1
    assert "no backend is called 'helo'; did you mean 'hello'?" in result.stderr
    (folder / "caesar-server.toml").write_text(
        'extra_backends = ["hello:HelloBackend"]\n[backends.hello]\ntimes = "many"\n'
    )
    result = run("count")
    assert result.exit_code == 2
    assert "caesar-server.toml: backends.hello.times: expected integer, got 'many'" in result.stderr
    (folder / "caesar-server.toml").write_text('extra_backends = ["hello=hello:NoBackend"]')
    result = run("count")
    assert result.exit_code == 1
    assert "backend hello (hello:NoBackend) is failed" in result.stderr


def test_importing_the_command_line_looks_for_no_plugin(install, folder: Path) -> None:
    install("a-plug", {"bad": "plug_noisy:x"}, plug_noisy=NOISY)
    code = (
        "import sys, importlib.metadata as m; m.distributions = None\n"
        "import caesar_server.cli; print('plug_noisy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_file_may_be_in_the_users_home(run, folder, monkeypatch) -> None:
    # no shell makes a path of the tilde behind NAME=
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.chdir("/")
    (folder / "caesar-server.toml").write_text('extra_backends = ["greet=~/hello.py:HelloBackend"]')
    result = run("backends", "greet", "--config", str(folder / "caesar-server.toml"))
    assert result.exit_code == 0, result.output
    assert "greeting" in result.stdout
