"""What commands begin with: settings, registry, log; and the flags that all of them have."""

from __future__ import annotations

import json
import logging
import shlex
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import click

from caesar_server.errors import SettingsError
from caesar_server.registry import KNOWN_BACKENDS, Registry, nearest
from caesar_server.settings import (
    LoadedSettings,
    Settings,
    check_allowed_hosts,
    check_exposure,
    check_host,
    check_origins,
    environment_name,
    has_password,
    load_settings,
)
from caesar_server.store.blobs.opening import check_files
from caesar_server.web.access.keyring import configured_keys
from caesar_server.web.api_version.known import default_version, known_versions
from caesar_server.web.limiting.rates import check_limits
from caesar_server.web.observing.logs import TextFormatter, is_json

logger = logging.getLogger(__name__)

#: Files of which a package has at least one, in its folder.
_OF_PACKAGES = ("pyproject.toml", "setup.cfg", "setup.py")

config_option = click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Settings file.  [default: caesar-server.toml, if it is there]",
)
store_option = click.option(
    "--store", metavar="TEXT", help="Where the jobs are kept.  [default: the setting store]"
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
verbose_option = click.option(
    "-v", "--verbose", is_flag=True, help="Also print the log, with tracebacks, to stderr."
)


def read_settings(
    config: Path | None, cli: Mapping[str, object] = MappingProxyType({})
) -> LoadedSettings:
    """Return the settings, and make the classes in ``extra_backends`` importable.

    :param cli: values from flags, by setting name.
    :raises SettingsError: if they cannot be used.
    """
    loaded = load_settings(cli=cli, config=config)
    _refuse_passwords(cli)
    if loaded.settings.extra_backends:
        import_from_here()
    return loaded


def _refuse_passwords(cli: Mapping[str, object]) -> None:
    """Refuse a password in a flag: every user of a machine sees the command lines of its programs.

    :raises SettingsError: naming the setting.
    """
    if has_password(str(cli.get("store", ""))):
        variable = environment_name("store")
        raise SettingsError(
            [
                f"command line: store: a password does not belong there; set {variable}, or put "
                "the password into ~/.pgpass"
            ]
        )


def check_settings(settings: Settings) -> list[str]:
    """Refuse what cannot be served, or not safely; return what is only unwise.

    :raises SettingsError: naming the settings.
    """
    _check_temporary_folder()
    check_host(settings)
    keys = configured_keys(settings)
    check_exposure(settings, has_keys=keys is not None)
    check_origins(settings)
    check_allowed_hosts(settings)
    _check_sharing(settings)
    check_app(settings)
    return [*check_limits(settings, keys or ()), *_missing_files(settings)]


def check_app(settings: Settings) -> None:
    """Refuse what an app is refused for: a worker that cannot make one ends the whole server.

    :raises SettingsError: naming the setting.
    """
    default_version(known_versions(), settings.api_version)
    check_files(settings)


def _check_temporary_folder() -> None:
    """Refuse to begin where nothing can be written: gunicorn's sign of life needs a file, too.

    :raises SettingsError: with what to mount.
    """
    try:
        tempfile.gettempdir()
    except FileNotFoundError as error:
        raise SettingsError(
            [
                f"there is no folder for temporary files ({error.strerror}); where the file system "
                "is read-only mount one (docker run --tmpfs /tmp; emptyDir), or name one in TMPDIR"
            ]
        ) from error


def _check_sharing(settings: Settings) -> None:
    """Refuse workers that would not know of each other's jobs.

    :raises SettingsError: for several of them with jobs in memory.
    """
    if settings.workers > 1 and settings.store in (None, "memory"):
        raise SettingsError(
            [
                f"store: each of the {settings.workers} workers would have jobs of its own in "
                "memory, and be asked for those of the others; keep jobs in a database "
                "(--store sqlite), or run one worker (--workers 1)"
            ]
        )


def _missing_files(settings: Settings) -> list[str]:
    """Return a warning if uploads have no place."""
    url = settings.store or ""
    if settings.files is not None or not url.startswith(("postgresql", "postgres:")):
        return []
    return [
        "files: with PostgreSQL it must be told where uploads are kept: name a directory that all "
        "servers and workers see, or s3://BUCKET; until then they are refused"
    ]


def import_from_here() -> None:
    """Make modules in the current directory importable, as ``python -m`` does."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)


def find_backends(loaded: LoadedSettings) -> Registry:
    """Return the registry for these settings.

    :raises SettingsError: if they name a backend that is not there, with where they do.
    """
    try:
        return Registry.from_entry_points(loaded.settings)
    except SettingsError as error:
        raise SettingsError(map(loaded.locate, error.problems)) from error


def unknown_backend(name: str, registry: Registry) -> str:
    """Return the sentence that refuses a backend's name."""
    known = dict.fromkeys(report.name for report in registry.reports())
    for backend in KNOWN_BACKENDS:
        if backend.name == name:
            return f"the backend {name} is not installed: {backend.install}"
    folder = Path(name)
    if name and any((folder / file).is_file() for file in _OF_PACKAGES):
        # pip takes a bare name for that of a package of the index
        place = str(folder) if folder.is_absolute() else f"./{folder}"
        return (
            f"no backend is called {name!r}; the package in that folder is not installed, or has "
            f"another name: pip install -e {shlex.quote(place)}"
        )
    return f"no backend is called {name!r}; {nearest(name, known)}"


def write_log(level: str | None) -> None:
    """Send the server's log records to stderr, for the person who typed the command.

    :param level: the least severity to show, or None to show nothing.
    """
    ours = logging.getLogger("caesar_server")
    for old in list(ours.handlers):
        ours.removeHandler(old)
    handler: logging.Handler = logging.NullHandler()
    if level is not None:
        handler = logging.StreamHandler()
        handler.setFormatter(TextFormatter())
        ours.setLevel(level.upper())
    ours.addHandler(handler)


def announce(settings: Settings, sentence: str, *, warning: bool = False) -> None:
    """Say something of the start, in the form that whoever reads the log expects."""
    if is_json(settings.log_format, sys.stderr):
        logger.log(logging.WARNING if warning else logging.INFO, "%s", sentence)
    else:
        prefix = "warning: " if warning else ""
        click.echo(prefix + sentence, err=True)


def print_json(value: Any) -> None:
    """Print ``value`` as JSON for people and programs."""
    click.echo(json.dumps(value, indent=2, default=str))
