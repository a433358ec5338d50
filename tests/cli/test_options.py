"""What ``backends NAME`` tells of options, nested ones too, and that no secret is ever printed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from caesar_server.registry import KNOWN_BACKENDS

NESTED = """
from dataclasses import dataclass
from caesar_server.contract import *

@dataclass(frozen=True)
class Login:
    user: str = option("me", help="Who.")
    password: str = option("default-hush", help="What only they know.", secret=True)

@dataclass(frozen=True)
class Mirror:
    url: str = option(help="Where.")
    token: str | None = option(None, help="Pass.", secret=True)

@dataclass(frozen=True)
class NestedOptions:
    login: Login = option(default_factory=Login, help="Who logs in.")
    spare: Login | None = option(None, help="Who else.")
    mirrors: tuple[Mirror, ...] = option((), help="Copies.")
    accounts: dict[str, Login] = option(default_factory=dict, help="By name.")
    keys: dict[str, str] = option(default_factory=lambda: {"a": "default-hush"}, help="Keys.",
                                  secret=True)
    pin: int = option(1234567, help="Number.", secret=True, minimum=1, maximum=9999999)

class NestedBackend(Backend):
    options_schema = NestedOptions

    def run(self, request, context):
        yield Completed()
"""
SECRETS = {
    "login.password": "hush",
    "mirrors": [{"url": "x", "token": "hush"}],
    "accounts": {"b": {"password": "hush"}},
    "keys": {"a": "hush"},
}


@pytest.fixture(autouse=True)
def nested(folder: Path) -> None:
    (folder / "nested.py").write_text(NESTED)
    (folder / "caesar-server.toml").write_text('extra_backends = ["nested.py"]\n')


def test_options_of_tables_are_told_with_their_names(run) -> None:
    options = json.loads(run("backends", "nested", "--json").stdout)["options"]
    assert {one["name"]: (one["type"], one["secret"]) for one in options} == {
        "login": ("table", False),
        "login.user": ("string", False),
        "login.password": ("string", True),
        "spare": ("table", False),
        "spare.user": ("string", False),
        "spare.password": ("string", True),
        "mirrors": ("list of tables", False),
        "mirrors.N.url": ("string", False),
        "mirrors.N.token": ("string", True),
        "accounts": ("table", False),
        "accounts.NAME.user": ("string", False),
        "accounts.NAME.password": ("string", True),
        "keys": ("table", True),
        "pin": ("integer", True),
    }
    assert all(one["help"] for one in options)


def test_defaults_are_told_and_secrets_marked(run) -> None:
    result = run("backends", "nested")
    for line in (
        "  login (table; optional)",
        "  login.user (string; default 'me')",
        "  login.password (string; secret)",
        "  mirrors.N.url (string; required)",
        "  mirrors.N.token (string; secret, unset by default)",
        "  pin (integer, 1 to 9999999; secret)",
    ):
        assert line in result.stdout.splitlines()
    everything = result.output + run("backends", "nested", "--json").output
    assert "default-hush" not in everything
    assert "1234567" not in everything


@pytest.mark.parametrize(
    "wrong",
    [
        '[backends.nested.login]\npassword = ["hush"]',
        '[backends.nested.login]\npassword = "hush"\nuzer = 1',
        '[backends.nested]\nmirrors = [{ url = "x", token = ["hush"] }]',
        '[backends.nested]\nmirrors = [{ token = "hush" }]',
        '[backends.nested.accounts.b]\npassword = { x = "hush" }',
        '[backends.nested.keys]\na = ["hush"]',
        '[backends.nested]\nkeys = "hush"',
        "[backends.nested]\npin = 77777777",
        '[backends.nested]\npin = "77777777x"',
        '[models.x]\nbackend = "nested"\noptions = { pin = 77777777, keys = "hush" }',
    ],
)
def test_problems_name_the_option_and_not_the_secret(run, folder: Path, wrong: str) -> None:
    (folder / "caesar-server.toml").write_text(f'extra_backends = ["nested.py"]\n{wrong}\n')
    outputs = [run("backends", "nested", "--verbose"), run("settings"), run("check", "nested")]
    outputs += [run("serve", "--port", "0", "--strict-plugins")]
    printed = "".join(result.output for result in outputs)
    if "models" not in wrong:
        assert "its options are wrong: backends.nested." in outputs[0].output
    assert "hush" not in printed
    assert "77777777" not in printed


def test_secrets_from_the_environment_are_not_printed(run, monkeypatch) -> None:
    monkeypatch.setenv("CAESAR_SERVER_BACKENDS__NESTED__PIN", "77777777")
    monkeypatch.setenv("CAESAR_SERVER_BACKENDS__NESTED__LOGIN__PASSWORD", "hush")
    monkeypatch.setenv("CAESAR_SERVER_BACKENDS__NESTED__KEYS__A", "hush")
    result = run("backends", "nested")
    assert "backends.nested.pin: expected 1 to 9999999, got another value" in result.stdout
    printed = result.output + run("settings").output + run("settings", "--json").output
    assert "CAESAR_SERVER_BACKENDS__NESTED__PIN" in printed
    assert "hush" not in printed
    assert "77777777" not in printed


def test_the_backend_itself_does_not_show_them(run, folder: Path) -> None:
    (folder / "caesar-server.toml").write_text(
        'extra_backends = ["nested.py"]\n'
        '[backends.nested]\nmirrors = [{ url = "x", token = "hush" }]\n'
        'keys = { a = "hush" }\npin = 7\nlogin = { password = "hush" }\n'
    )
    (folder / "nested.py").write_text(
        NESTED + "\n    def open(self):\n        raise RuntimeError(repr(self.options))\n"
    )
    result = run("backends", "nested", "--verbose")
    assert "NestedOptions(login=" in result.output
    assert "hush" not in result.output


# --- what is not installed ------------------------------------------------------------------------


def test_known_backends_are_those_of_this_repository(root_folder: Path) -> None:
    folders = {path.parent.name for path in root_folder.glob("backends/*/setup.cfg")}
    assert {known.name for known in KNOWN_BACKENDS} == folders
    for known in KNOWN_BACKENDS:
        text = (root_folder / "backends" / known.name / "setup.cfg").read_text()
        assert f"name = {known.distribution}\n" in text
        assert known.summary.endswith(".")


@pytest.fixture
def root_folder() -> Path:
    return Path(__file__).resolve().parents[2]


def test_hints_tell_what_could_be_installed(run, monkeypatch) -> None:
    assert "known, and not installed" not in run("backends").stdout
    here = run("backends", "--install-hints").stdout
    monkeypatch.setattr("caesar_server.registry.registry.discover", tuple)
    text = run("backends", "--install-hints").stdout
    (echo,) = (known for known in KNOWN_BACKENDS if known.name == "echo")
    assert f"  echo: {echo.summary}\n      pip install caesar-backend-echo" in text
    assert echo.summary not in here or "echo  loaded" not in here
    listed = json.loads(run("backends", "--install-hints", "--json").stdout)["not_installed"]
    assert [one["name"] for one in listed] == [known.name for known in KNOWN_BACKENDS]
    result = run("check", "echo")
    assert "the backend echo is not installed: pip install caesar-backend-echo" in result.stderr


def test_check_can_be_quiet(run) -> None:
    result = run("check", "hello.py:WrongBackend", "--quiet")
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[0] == "hello:WrongBackend"
    assert lines[-1].endswith(" failed")
    assert not [line for line in lines if line.startswith(("pass", "skip"))]
    good = run("check", "hello.py:HelloBackend", "-q").stdout.splitlines()
    assert len(good) == 2


def test_warnings_about_settings_defaults_are_told(run, folder: Path, monkeypatch) -> None:
    site = folder / "site"
    info = site / "a_plug-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: a-plug\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[caesar_server.settings_defaults]\nx = a_plug:x.toml\n")
    monkeypatch.syspath_prepend(site)
    warning = (
        "warning: the settings defaults of a-plug 1.0 are left out: there is no package a_plug"
    )
    assert warning in run("backends").stdout.splitlines()
    assert run("settings").exit_code == 0
