"""Defaults for the server's settings that installed distributions bring along.

A distribution names a TOML file in its package under the entry point group
``caesar_server.settings_defaults``, as ``package:file.toml``.  The file is read; none of the
package's code is run.  A distribution may only touch what concerns its own backends; one whose file
is wrong is left out with a warning.
"""

from __future__ import annotations

import importlib.util
import tomllib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from caesar_server.contract.options import OptionField, OptionsError, parse_value, unknown_name
from caesar_server.entry_points import (
    BACKENDS,
    SETTINGS_DEFAULTS,
    Announcement,
    announced,
    normalised,
)
from caesar_server.settings.flags import setting_fields

#: What a distribution may set.  Not who may connect, what is loaded, or how large the server is.
ALLOWED = (
    "backends",
    "default_backend",
    "first_event_wait_s",
    "heartbeat_s",
    "models",
    "request_timeout_s",
)


@dataclass(frozen=True, slots=True)
class PluginDefaults:
    """The defaults of one distribution, as a tree like that of the settings file.

    :param origin: the distribution and its version.
    """

    origin: str
    tree: Mapping[str, Any]


class _UnusableError(Exception):
    """The defaults of a distribution are wrong; the message is a clause that says why."""


def plugin_defaults(
    allowed_backends: Collection[str],
) -> tuple[tuple[PluginDefaults, ...], tuple[str, ...]]:
    """Return the defaults of the installed distributions, and a warning for each that is left out.

    In the order of the distributions' names; where two of them set the same, the first wins.

    :param allowed_backends: defaults for others are left out silently; empty allows all.
    """
    everything = announced(SETTINGS_DEFAULTS, BACKENDS)
    backends = [one for one in everything if one.group == BACKENDS]
    announcements = [one for one in everything if one.group == SETTINGS_DEFAULTS]
    if not announcements:
        return (), ()
    times = Counter(one.name for one in backends)
    fields = setting_fields()
    found: list[PluginDefaults] = []
    warnings: list[str] = []
    for one in sorted(announcements, key=lambda one: normalised(one.distribution)):
        own = {other.name for other in backends if other.distribution == one.distribution}
        try:
            tree = _read(one)
            _check(tree, own, fields)
        except _UnusableError as why:
            warnings.append(f"the settings defaults of {one.origin} are left out: {why}")
            continue
        # Of a name that is brought twice only one backend is used, perhaps the other one.
        usable = {
            name
            for name in own
            if times[name] == 1 and (not allowed_backends or name in allowed_backends)
        }
        found.append(PluginDefaults(one.origin, _only(tree, usable)))
    return tuple(found), tuple(warnings)


def _read(one: Announcement) -> Mapping[str, Any]:
    """Return the tree of a file.

    :raises _UnusableError: if it cannot be had.
    """
    package, _, file = one.value.partition(":")
    if "." in package or not file:
        # Finding a module inside of a package imports the package.
        raise _UnusableError(f"expected package:file.toml, got {one.value!r}")
    try:
        spec = importlib.util.find_spec(package)
        places = list(spec.submodule_search_locations or ()) if spec else []
        path = next(Path(place, file) for place in places)
        return tomllib.loads(path.read_text("utf-8"))
    except StopIteration:
        raise _UnusableError(f"there is no package {package}") from None
    except OSError as error:
        raise _UnusableError(f"{file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise _UnusableError(f"{file} is not valid TOML: {error}") from error


def _check(
    tree: Mapping[str, Any], own: Collection[str], fields: Mapping[str, OptionField]
) -> None:
    """Check that the defaults are good values of what a distribution may set.

    :raises _UnusableError: if not.
    """
    for name, value in tree.items():
        if name not in fields:
            raise _UnusableError(unknown_name(name, fields))
        if name not in ALLOWED:
            raise _UnusableError(f"{name} is the operator's; it may set {', '.join(ALLOWED)}")
        try:
            parse_value(fields[name], value)
        except OptionsError as error:
            raise _UnusableError(str(error)) from error
    for setting, backend in _backends_named(tree):
        if backend not in own:
            raise _UnusableError(f"{setting}: {backend!r} is no backend of this distribution")


def _backends_named(tree: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if "default_backend" in tree:
        yield "default_backend", tree["default_backend"]
    for name in tree.get("backends", {}):
        yield f"backends.{name}", name
    for pattern, route in tree.get("models", {}).items():
        yield f"models.{pattern}", route["backend"]


def _only(tree: Mapping[str, Any], usable: Collection[str]) -> Mapping[str, Any]:
    """Return what is left without the backends that are not usable."""
    unusable = {setting for setting, backend in _backends_named(tree) if backend not in usable}
    kept: dict[str, Any] = {}
    for name, value in tree.items():
        if name in ("backends", "models"):
            value = {key: item for key, item in value.items() if f"{name}.{key}" not in unusable}
        if name not in unusable and value != {}:
            kept[name] = value
    return kept
