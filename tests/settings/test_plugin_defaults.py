"""Defaults that distributions bring along: below all that an operator says."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from caesar_server.settings import ModelRoute, load_settings

Install = Callable[..., None]
GOOD = """
default_backend = "plug"
request_timeout_s = 1800

[backends.plug]
folder = "notes"
api = { key = "hush", tries = 3 }

[models."notes-*"]
backend = "plug"
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install a distribution with a package, backends and settings defaults."""
    monkeypatch.chdir(tmp_path)
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(site)

    def install(
        distribution: str,
        defaults: str,
        *,
        backends: tuple[str, ...] = ("plug",),
        value: str | None = None,
    ) -> None:
        package = distribution.replace("-", "_")
        info = site / f"{package}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n"
        )
        lines = ["[caesar_server.backends]", *(f"{name} = {package}:B" for name in backends)]
        value = value or f"{package}:defaults.toml"
        lines += ["[caesar_server.settings_defaults]", f"it = {value}"]
        (info / "entry_points.txt").write_text("\n".join(lines))
        (site / package).mkdir()
        (site / package / "__init__.py").write_text("raise RuntimeError('imported')")
        (site / package / "defaults.toml").write_text(defaults)

    yield install
    assert not [name for name in sys.modules if name.startswith(("plug_", "a_plug", "z_plug"))]


def test_defaults_are_used_and_say_where_they_come_from(install: Install) -> None:
    install("a-plug", GOOD)
    loaded = load_settings(environ={})
    settings = loaded.settings
    assert settings.default_backend == "plug"
    assert settings.request_timeout_s == 1800
    assert settings.backends["plug"]["folder"] == "notes"
    assert settings.models["notes-*"] == ModelRoute(backend="plug")
    for name in ("default_backend", "backends.plug.folder", "models.notes-*.backend"):
        assert loaded.origins[name] == "default of a-plug 1.0"
    assert loaded.origins["port"] == "default"
    assert loaded.warnings == ()


def test_whatever_the_operator_says_wins(install: Install, tmp_path: Path) -> None:
    install("a-plug", GOOD)
    (tmp_path / "caesar-server.toml").write_text(
        'request_timeout_s = 5\n[backends.plug]\napi = { key = "mine" }\n'
    )
    environ = {"CAESAR_SERVER_BACKENDS__PLUG__FOLDER": "other"}
    loaded = load_settings(environ=environ, cli={"default_backend": "mock"})
    assert loaded.settings.default_backend == "mock"
    assert loaded.settings.request_timeout_s == 5
    assert loaded.settings.backends["plug"] == {
        "folder": "other",
        "api": {"key": "mine", "tries": 3},
    }
    assert loaded.origins["backends.plug.folder"].startswith("environment")


@pytest.mark.parametrize(
    ("defaults", "why"),
    [
        ('host = "0.0.0.0"', "host is the operator's; it may set backends, default_backend"),
        ("insecure = true", "insecure is the operator's"),
        ("request_timeout_s = -1", "request_timeout_s: expected 0.1 to 86400"),
        ("requst_timeout_s = 1", "requst_timeout_s: unknown; did you mean request_timeout_s?"),
        ('default_backend = "mock"', "default_backend: 'mock' is no backend of this distribution"),
        ("[backends.mock]\nx = 1", "backends.mock: 'mock' is no backend of this distribution"),
        ('[models.x]\nbackend = "mock"', "models.x: 'mock' is no backend of this distribution"),
        ("port =", "defaults.toml is not valid TOML"),
    ],
)
def test_wrong_defaults_are_left_out_as_a_whole_with_a_warning(
    install: Install, defaults: str, why: str
) -> None:
    install("a-plug", f"heartbeat_s = 1\n{defaults}")
    install("z-plug", "heartbeat_s = 2", backends=("zed",))
    loaded = load_settings(environ={})
    (warning,) = loaded.warnings
    assert warning.startswith(f"the settings defaults of a-plug 1.0 are left out: {why}")
    assert loaded.settings.heartbeat_s == 2
    assert loaded.settings.host == "127.0.0.1"


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("a_plug:gone.toml", "gone.toml cannot be read: No such file or directory"),
        ("no_such_package:defaults.toml", "there is no package no_such_package"),
        ("a_plug", "expected package:file.toml, got 'a_plug'"),
        ("a_plug.sub:defaults.toml", "expected package:file.toml"),
        ("json.decoder:x.toml", "expected package:file.toml"),
    ],
)
def test_a_file_that_is_not_there_is_a_warning(install: Install, value: str, why: str) -> None:
    install("a-plug", GOOD, value=value)
    (warning,) = load_settings(environ={}).warnings
    assert why in warning


def test_of_two_distributions_the_first_by_alphabet_wins(install: Install) -> None:
    install("z-plug", "heartbeat_s = 2", backends=("zed",))
    install("a-plug", "heartbeat_s = 1", backends=("ay",))
    assert load_settings(environ={}).settings.heartbeat_s == 1


def test_defaults_of_a_backend_that_may_not_be_loaded_do_nothing(install: Install) -> None:
    install("a-plug", GOOD, backends=("plug", "other"))
    loaded = load_settings(environ={}, cli={"allowed_backends": "mock,other"})
    assert loaded.settings.default_backend is None
    assert (loaded.settings.backends, loaded.settings.models) == ({}, {})
    assert loaded.settings.request_timeout_s == 1800
    assert loaded.origins["default_backend"] == "default"


def test_a_name_that_two_distributions_bring_has_no_defaults(install: Install) -> None:
    # which of the two backends is used is not known here, nor what options it has
    install("a-plug", GOOD)
    install("z-plug", '[backends.plug]\nother = "x"')
    loaded = load_settings(environ={})
    assert loaded.settings.backends == {}
    assert loaded.settings.default_backend is None


def test_secrets_in_problems_are_not_quoted(install: Install) -> None:
    install("a-plug", '[backends]\nplug = "hush"')
    (warning,) = load_settings(environ={}).warnings
    assert "backends" in warning
    assert "hush" not in warning
