"""Which versions there are: each module of the package ``versions`` is one."""

from __future__ import annotations

import importlib
import pkgutil

from caesar_server.errors import SettingsError
from caesar_server.web.api_version import versions
from caesar_server.web.api_version.version import Version, Versions

#: What a module of ``versions`` calls its version.
_NAME = "VERSION"


def known_versions() -> Versions:
    """Return the ``VERSION`` of each module of the package ``versions``.

    :raises TypeError: if a module has none.
    :raises ValueError: if two modules have one of the same date.
    """
    names = sorted(module.name for module in pkgutil.iter_modules(versions.__path__))
    return Versions.of(_version_in(f"{versions.__name__}.{name}") for name in names)


def _version_in(module_name: str) -> Version:
    version = getattr(importlib.import_module(module_name), _NAME, None)
    if not isinstance(version, Version):
        raise TypeError(f"{module_name}: expected {_NAME} to be a Version, got {version!r}")
    return version


def default_version(versions: Versions, date: str | None) -> Version:
    """Return the version of requests for which nobody names one.

    :param date: the setting; None: the newest.
    :raises SettingsError: if that one is not known.
    """
    default = versions.newest if date is None else versions.find(date)
    if default is None:
        raise SettingsError(
            [f"api_version: {date!r} is not known; take {' or '.join(versions.dates)}"]
        )
    return default
