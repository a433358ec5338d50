"""``caesar-server settings``: every value, and where it came from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from caesar_server.cli.startup import (
    config_option,
    find_backends,
    json_option,
    print_json,
    read_settings,
    write_log,
)
from caesar_server.cli.tables import table
from caesar_server.contract.options import option_fields
from caesar_server.errors import BackendLoadError, SettingsError
from caesar_server.registry import Registry
from caesar_server.settings import LoadedSettings, is_table, setting_fields, without_password

HIDDEN = "(hidden)"


@dataclass(frozen=True, slots=True)
class _Value:
    """A line of the listing; ``name`` is a dotted path for what is set inside a table."""

    name: str
    value: Any
    origin: str


@click.command(short_help="Print every setting and where it came from.")
@config_option
@json_option
def settings(config: Path | None, as_json: bool) -> None:
    """Print every setting with its value and where that came from; secrets are hidden.

    Options of a backend are shown only if its class can be loaded and says that they are no secret.
    """
    write_log(None)
    loaded = read_settings(config)
    values = [*_scalars(loaded), *_options(loaded)]
    if as_json:
        print_json({one.name: {"value": one.value, "origin": one.origin} for one in values})
        return
    rows = [(one.name, _as_text(one.value), one.origin) for one in values]
    for line in table(("SETTING", "VALUE", "ORIGIN"), rows):
        click.echo(line)


def _scalars(loaded: LoadedSettings) -> Iterator[_Value]:
    for name, field in setting_fields().items():
        if not is_table(field):
            value = HIDDEN if field.info.secret else getattr(loaded.settings, name)
            if name == "store" and value is not None:
                value = without_password(value)
            yield _Value(name, value, loaded.origins[name])


def _options(loaded: LoadedSettings) -> Iterator[_Value]:
    """Yield what stands in tables."""
    visible = _Visible(loaded)
    for pattern, route in loaded.settings.models.items():
        base = f"models.{pattern}"
        for part in ("backend", "model"):
            if (value := getattr(route, part)) is not None:
                yield _Value(f"{base}.{part}", value, _origin(loaded, f"{base}.{part}"))
        for option, value in route.options.items():
            path = f"{base}.options.{option}"
            yield _Value(path, visible(route.backend, option, value), _origin(loaded, path))
    for backend, options in loaded.settings.backends.items():
        for option, value in options.items():
            path = f"backends.{backend}.{option}"
            yield _Value(path, visible(backend, option, value), _origin(loaded, path))


def _origin(loaded: LoadedSettings, path: str) -> str:
    """Return where a value in a table came from; of a table in it, where its first value did."""
    return next(
        (
            origin
            for leaf, origin in loaded.origins.items()
            if leaf == path or leaf.startswith(f"{path}.")
        ),
        "default",
    )


class _Visible:
    """Returns the values of options that may be shown."""

    def __init__(self, loaded: LoadedSettings) -> None:
        self._registry: Registry | None
        try:
            self._registry = find_backends(loaded)
        except SettingsError:
            self._registry = None
        self._open: dict[str, frozenset[str]] = {}

    def __call__(self, backend: str, option: str, value: object) -> object:
        """Return ``value``, or a word in its place unless it is known to be no secret."""
        if backend not in self._open:
            self._open[backend] = self._no_secrets(backend)
        # what is nested in an option may be a secret of its own
        plain = not isinstance(value, Mapping)
        return value if plain and option in self._open[backend] else HIDDEN

    def _no_secrets(self, backend: str) -> frozenset[str]:
        if self._registry is None or backend not in self._registry.names:
            return frozenset()
        try:
            schema = self._registry.backend_class(backend).options_schema
            # also not those that hold tables: a list of them may have secrets inside
            fields = (field for field in option_fields(schema) if field.nested is None)
            return frozenset(field.name for field in fields if not field.info.secret)
        except (BackendLoadError, TypeError):
            return frozenset()


def _as_text(value: object) -> str:
    if value is None:
        return "(unset)"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (tuple, list)):
        return ", ".join(map(str, value)) or "(empty)"
    return str(value)
