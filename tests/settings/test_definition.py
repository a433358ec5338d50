"""Each setting is defined once, whole and safe by default."""

from __future__ import annotations

import dataclasses
import re

import pytest

from caesar_server.contract.options import option_fields
from caesar_server.errors import SettingsError
from caesar_server.settings import (
    ModelRoute,
    Settings,
    check_exposure,
    check_host,
    environment_name,
    flag_name,
    is_loopback,
    setting_fields,
)

FIELDS = setting_fields()


@pytest.mark.parametrize(
    "field", [*FIELDS.values(), *option_fields(ModelRoute)], ids=lambda field: field.name
)
def test_help_is_one_sentence(field) -> None:
    assert re.fullmatch(r"[A-Z][^.]*(?:\.[^. ]+)*\.", field.info.help), field.info.help


@pytest.mark.parametrize("name", [n for n, f in FIELDS.items() if f.type in (int, float)])
def test_number_is_bounded_and_its_default_within(name) -> None:
    field = FIELDS[name]
    assert field.info.minimum is not None
    assert field.info.maximum is not None
    assert field.info.minimum <= field.default <= field.info.maximum


@pytest.mark.parametrize("name", [n for n in FIELDS if re.search(r"_(s|bytes)$", n)])
def test_unit_in_the_name_is_the_unit(name) -> None:
    assert name.endswith(f"_{FIELDS[name].info.unit}")


def test_names_of_variables_and_flags_are_unique() -> None:
    assert len({environment_name(name) for name in FIELDS}) == len(FIELDS)
    assert len({flag_name(name) for name in FIELDS}) == len(FIELDS)


def test_settings_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Settings().port = 1


def test_repr_shows_no_option_of_a_backend() -> None:
    settings = Settings(
        backends={"upstream": {"api_key": "hush"}},
        models={"gpt": ModelRoute(backend="upstream", options={"api_key": "hush"})},
    )
    assert "hush" not in repr(settings)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.8.9.1", "::1", "[::1]", "localhost", "LOCALHOST."]
)
def test_loopback_needs_no_permission(host) -> None:
    assert is_loopback(host)
    check_exposure(Settings(host=host), has_keys=False)


@pytest.mark.parametrize(
    "host", ["unix:/run/s.sock", "/run/s.sock", "http://127.0.0.1", "127.0.0.1:80", "[::1]:80"]
)
def test_what_is_more_than_a_host_is_refused_as_such(host) -> None:
    with pytest.raises(SettingsError, match=r"is no address; .*Your own gunicorn"):
        check_host(Settings(host=host))


@pytest.mark.parametrize("host", ["", "::", "[::1]", "fe80::1%eth0", "10.0.0.1", "example.com"])
def test_addresses_and_names_are_hosts(host) -> None:
    check_host(Settings(host=host))


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "", "::", "10.0.0.1", "example.com", "localhost.evil.com"]
)
def test_other_hosts_need_permission(host) -> None:
    assert not is_loopback(host)
    with pytest.raises(SettingsError, match="--insecure"):
        check_exposure(Settings(host=host), has_keys=False)
    check_exposure(Settings(host=host, insecure=True), has_keys=False)
    check_exposure(Settings(host=host), has_keys=True)
