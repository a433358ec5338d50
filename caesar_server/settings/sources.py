"""Where values come from: command line over environment over file over plugins over default."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import platformdirs

from caesar_server.contract.options import OptionsError, parse_options, unknown_name
from caesar_server.errors import SettingsError
from caesar_server.settings.definition import Settings
from caesar_server.settings.flags import setting_fields
from caesar_server.settings.plugin_defaults import plugin_defaults

ENVIRONMENT_PREFIX = "CAESAR_SERVER_"
#: Names the settings file, as ``--config`` does.
CONFIG_VARIABLE = "CAESAR_SERVER_CONFIG"
#: Read from the current directory where no other file is named.
DEFAULT_FILE = "caesar-server.toml"


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """Settings, and where each value came from.

    :param origins: ``default``, ``default of DISTRIBUTION``, ``file PATH``, ``environment NAME`` or
        ``command line``, by the setting's name; for what is set inside a table by its dotted path
        (``backends.echo.greeting``).
    :param warnings: what was left out, one sentence each.
    """

    settings: Settings
    origins: Mapping[str, str]
    warnings: tuple[str, ...] = ()

    def locate(self, problem: str) -> str:
        """Return ``problem``, which begins with a setting's name, behind its value's origin."""
        return _with_origin(problem, self.origins)


@dataclass(frozen=True, slots=True)
class _Source:
    """Values of one source as a tree, and the origin of each of its leaves by dotted path."""

    tree: Mapping[str, Any]
    origins: Mapping[str, str]


def environment_name(setting: str) -> str:
    """Return the environment variable of a setting.

    >>> environment_name("max_body_bytes")
    'CAESAR_SERVER_MAX_BODY_BYTES'
    """
    return ENVIRONMENT_PREFIX + setting.upper()


def load_settings(
    *,
    cli: Mapping[str, object] = MappingProxyType({}),
    environ: Mapping[str, str] | None = None,
    config: Path | None = None,
) -> LoadedSettings:
    """Read the settings; the command line wins over the environment, that over the file.

    An empty environment variable counts as not set.  ``__`` in its name steps into a table:
    ``CAESAR_SERVER_BACKENDS__ECHO__GREETING`` is ``greeting`` in ``[backends.echo]``.

    :param cli: values by setting name, only those that were given.
    :param environ: variables to read instead of the process's own.
    :param config: the settings file; otherwise the one that ``CAESAR_SERVER_CONFIG`` names, else
        ``caesar-server.toml`` in the current directory if it is there.
    :raises SettingsError: with every problem found, each with the place of the bad value; values of
        secrets are not quoted.
    """
    variables = _own_variables(os.environ if environ is None else environ)
    problems: list[str] = []
    sources = (
        _file_source(config, _at_home(variables.get(CONFIG_VARIABLE)), problems),
        _environment_source(variables, problems),
        _Source(cli, dict.fromkeys(cli, "command line")),
    )
    allowed = _combined(sources, problems)[0].allowed_backends
    # Known only now: what the operator allows decides which plugins have a say.
    found, warnings = plugin_defaults(allowed)
    plugins = [
        _Source(one.tree, dict.fromkeys(_leaves(one.tree), f"default of {one.origin}"))
        for one in reversed(found)
    ]
    settings, tree, origins = _combined((*plugins, *sources), problems)
    settings = replace(
        settings,
        keys_file=_at_home(settings.keys_file),
        store=_at_home(settings.store),
        files=_at_home(settings.files),
    )
    if settings.keys_file is None:
        settings = replace(settings, keys_file=_default_keys_file())
    if settings.store in (None, "sqlite"):
        settings = replace(settings, store=_default_store())
    unset = [name for name in setting_fields() if name not in tree]
    return LoadedSettings(settings, {**dict.fromkeys(unset, "default"), **origins}, warnings)


def _combined(
    sources: Iterable[_Source], problems: Iterable[str]
) -> tuple[Settings, Mapping[str, Any], Mapping[str, str]]:
    """Return the settings of all sources, each winning over those before it; tree and origins.

    :param problems: what was wrong with the sources themselves.
    :raises SettingsError: if there are problems, or the values do not fit.
    """
    tree: Mapping[str, Any] = {}
    origins: dict[str, str] = {}
    for source in sources:
        tree = _merge(tree, source.tree)
        origins.update(source.origins)
    try:
        settings = parse_options(Settings, tree)
    except OptionsError as error:
        wrong = [_with_origin(problem, origins) for problem in error.problems]
        raise SettingsError([*problems, *wrong]) from error
    if problems:
        raise SettingsError(problems)
    return settings, tree, origins


def _default_keys_file() -> str | None:
    """Return the file of keys of the user who runs this; None for a user without a home."""
    path = platformdirs.user_config_path("caesar-server") / "keys.json"
    return str(path) if path.is_absolute() else None


def _default_store() -> str:
    """Return the database file of the user who runs this; memory for a user without a home."""
    path = platformdirs.user_state_path("caesar-server") / "jobs.sqlite3"
    return f"sqlite:///{path}" if path.is_absolute() else "memory"


def _at_home(place: str | None) -> str | None:
    """Return a path or URL of a file with the user's home in place of ``~``, as shells write it."""
    if place is None:
        return None
    scheme, path = ("sqlite:///", place[10:]) if place.startswith("sqlite:///") else ("", place)
    return scheme + os.path.expanduser(path)  # noqa: PTH111  # which leaves URLs as they are


def set_variable(name: str, value: str) -> None:
    """Set an environment variable of this process and of those that it starts from now on.

    For libraries that can be told in no other way.
    """
    os.environ[name] = value


def passed_sockets() -> range:
    """Return the descriptors of the listening sockets that systemd has passed to this process.

    That is socket activation: a ``.socket`` unit listens before there is a server.
    """
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        return range(0)
    return range(3, 3 + int(os.environ.get("LISTEN_FDS", "0")))


def _file_source(config: Path | None, named: str | None, problems: list[str]) -> _Source:
    """Read the settings file, if there is one."""
    chosen = config or (Path(named) if named else None)
    path = (chosen or Path(DEFAULT_FILE)).absolute()
    try:
        # a byte order mark, as some Windows editors write it, is no part of the text
        tree = tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except FileNotFoundError:
        if chosen:
            by = "--config" if config else CONFIG_VARIABLE
            problems.append(f"file {path}: does not exist ({by} names it)")
        tree = {}
    except OSError as error:
        problems.append(f"file {path}: cannot be read: {error.strerror}")
        tree = {}
    except UnicodeDecodeError as error:
        problems.append(f"file {path}: is not UTF-8 (at byte {error.start})")
        tree = {}
    except tomllib.TOMLDecodeError as error:
        problems.append(f"file {path}: is not valid TOML: {error}")
        tree = {}
    return _Source(tree, dict.fromkeys(_leaves(tree), f"file {path}"))


#: What Kubernetes tells every pod of services, here of those called ``caesar-server`` and more.
_OF_A_SERVICE = re.compile(
    rf"{ENVIRONMENT_PREFIX}(\w+_)?"
    r"(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_PROTO|_PORT|_ADDR)?)"
)
_PLACE_OF_A_SERVICE = re.compile(r"(tcp|udp|sctp)://.+")


def _own_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that are meant for us, without the line break of a file's last line."""
    return {
        name: value.rstrip("\r\n") or value
        for name, value in environ.items()
        if name.startswith(ENVIRONMENT_PREFIX) and not _is_of_a_service(name, value)
    }


def _is_of_a_service(name: str, value: str) -> bool:
    if "__" in name:  # into a table, perhaps to an option of such a name
        return False
    if name.endswith("_PORT") and _PLACE_OF_A_SERVICE.fullmatch(value):
        return True
    return _OF_A_SERVICE.fullmatch(name) is not None


def _environment_source(environ: Mapping[str, str], problems: list[str]) -> _Source:
    """Read the variables; those of unknown name are a problem each.

    :param environ: those that are meant for us.
    """
    known = {environment_name(name): name for name in setting_fields()}
    tree: Mapping[str, Any] = {}
    origins: dict[str, str] = {}
    for variable in sorted(environ):
        value = environ[variable]
        if not value or variable == CONFIG_VARIABLE:
            continue
        first, *parts = variable.split("__")
        if first not in known:
            # without what all begin with, or any two of them were near each other
            names = [name.removeprefix(ENVIRONMENT_PREFIX) for name in (*known, CONFIG_VARIABLE)]
            unknown = unknown_name(
                first.removeprefix(ENVIRONMENT_PREFIX), names, prefix=ENVIRONMENT_PREFIX
            )
            problems.append(f"environment: {unknown}")
            continue
        path = (known[first], *(part.lower() for part in parts))
        branch: Any = value
        for name in reversed(path):
            branch = {name: branch}
        tree = _merge(tree, branch)
        origins[".".join(path)] = f"environment {variable}"
    return _Source(tree, origins)


def _merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``base`` with the values of ``over``, table by table."""
    merged = dict(base)
    for name, value in over.items():
        old = merged.get(name)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            value = _merge(old, value)
        merged[name] = value
    return merged


def _leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the dotted path of each value that is no table, and of each empty table."""
    for name, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield prefix + name


def _with_origin(problem: str, origins: Mapping[str, str]) -> str:
    """Return ``problem`` behind the place that the value of the setting it begins with is from.

    A missing value has no place; then it is that of the nearest table around it.
    """
    path = problem.partition(": ")[0]
    if origins.get(path, "default") != "default":
        # before those below it, which a value in place of the whole table has overruled
        return f"{origins[path]}: {problem}"
    while path:
        for leaf, origin in origins.items():
            if origin != "default" and (leaf == path or leaf.startswith(f"{path}.")):
                return f"{origin}: {problem}"
        path = path.rpartition(".")[0]
    return problem
