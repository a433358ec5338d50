"""``caesar-server serve``: the server, under gunicorn."""

from __future__ import annotations

import errno
import logging
import os
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import click

from caesar_server.cli.flags import setting_flags
from caesar_server.cli.plugins.reload import check_reload
from caesar_server.cli.startup import (
    announce,
    check_settings,
    config_option,
    find_backends,
    read_settings,
    write_log,
)
from caesar_server.cli.workers import worker_base
from caesar_server.cli.workers.listening import listening, url_of
from caesar_server.errors import BackendLoadError, SettingsError
from caesar_server.registry import Registry, extra_candidates
from caesar_server.settings import LoadedSettings, Settings, passed_sockets
from caesar_server.store.opening import prepare_store
from caesar_server.web.observing.logs import configure_logging

logger = logging.getLogger(__name__)

_BACKLOG = 2048


@click.command(short_help="Run the server.")
@config_option
@click.option("--reload", is_flag=True, help="Start anew when the source of a backend changes.")
@setting_flags
def serve(config: Path | None, reload: bool, **flags: object) -> None:
    """Serve under gunicorn until SIGTERM or SIGINT.

    Each flag can also be set in the settings file or by an environment variable:
    --max-body-bytes is max_body_bytes there, and CAESAR_SERVER_MAX_BODY_BYTES.
    """
    given = {name: value for name, value in flags.items() if value not in (None, ())}
    loaded = read_settings(config, given)
    settings = loaded.settings
    # What is wrong with the settings is told here, by one process and before anything listens.
    write_log(None)
    registry, unwise = _check(loaded, reload)
    if not reload and settings.worker_class != "gevent":
        # Not on SIGHUP: what is imported here may be older than what new workers will import.
        _check_options(registry, loaded)
    _prepare_store(loaded)
    passed = passed_sockets()
    listener = None if passed else listen(settings)
    urls = _urls_of(passed) if listener is None else [url_of(listener)]
    configure_logging(settings)
    wrong = [] if reload else _wrong_options(loaded)
    for sentence in (*loaded.warnings, *unwise, *wrong):
        announce(settings, sentence, warning=True)
    places = " and ".join(urls)
    announce(settings, f"Serving on {places} (default backend: {registry.default})")

    def read_again() -> Settings:
        # multiprocessing is not for the start to wait for
        from caesar_server.cli.plugins.apart import wrong_options_apart

        again = read_settings(config, given)
        _check(again, reload)
        if not reload and (problems := wrong_options_apart(again)):
            raise SettingsError(map(again.locate, problems))
        # perhaps another one: without tables no new worker would begin, and the old ones go
        _prepare_store(again)
        return again.settings

    _run(settings, listener, read_again, reload)


def _prepare_store(loaded: LoadedSettings) -> None:
    """Bring the database up to date, once, before the workers are there.

    :raises SettingsError: if it cannot be used.
    """
    try:
        prepare_store(loaded.settings)
    except SettingsError as error:
        raise SettingsError(map(loaded.locate, error.problems)) from error


def _check(loaded: LoadedSettings, reload: bool) -> tuple[Registry, list[str]]:
    """Return what backends there are, and what is unwise about the limits.

    :raises SettingsError: if the server cannot run with these settings.
    """
    try:
        warnings = check_settings(loaded.settings)
        worker_base(loaded.settings)
        if reload:
            check_reload(loaded.settings)
    except SettingsError as error:
        raise SettingsError(map(loaded.locate, error.problems)) from error
    registry = find_backends(loaded)
    # Under gevent the workers do it: no plugin may be imported before gevent has patched Python.
    if loaded.settings.strict_plugins and loaded.settings.worker_class != "gevent":
        # Not opened: what a backend takes then, threads of a library say, does not survive a fork.
        registry.load_all(open_backends=False)
    elif not reload and loaded.settings.worker_class != "gevent":
        _check_extras(registry, loaded)
    return registry, [*_missing_keys(loaded), *warnings]


def _missing_keys(loaded: LoadedSettings) -> Iterator[str]:
    """Yield what is unwise about a file of keys that is named and not there: nobody is asked."""
    path = loaded.settings.keys_file
    named = loaded.origins["keys_file"] != "default"
    if named and path and not loaded.settings.api_keys and not Path(path).exists():
        yield loaded.locate(
            f"keys_file: {path} is not there; until it is, the server asks nobody for an API key"
        )


def _check_extras(registry: Registry, loaded: LoadedSettings) -> None:
    """Import what ``--backend`` names: whoever names a class means that one and no other.

    :raises SettingsError: if it is not there; with ``--reload`` it may still come.
    """
    problems = []
    for name in _extras(registry, loaded):
        try:
            registry.backend_class(name)
        except BackendLoadError:
            report = registry.report(name)
            reason = ": ".join(filter(None, (report.reason, report.detail)))
            where = report.entry_point or name
            problems.append(f"extra_backends: {where}: {reason} ({report.hint})")
    if problems:
        raise SettingsError(map(loaded.locate, problems))


def _extras(registry: Registry, loaded: LoadedSettings) -> list[str]:
    """Return the names of what ``--backend`` names, but for those that are not allowed."""
    extras = extra_candidates(loaded.settings.extra_backends)
    return [one.name for one in extras if one.name in registry.names]


def _check_options(registry: Registry, loaded: LoadedSettings) -> None:
    """Check the options of what ``--backend`` names, which is imported already.

    Those of installed backends, which are not imported here, end nothing: :func:`_wrong_options`.

    :raises SettingsError: naming each option that is wrong.
    """
    problems: list[str] = []
    for name in _extras(registry, loaded):
        # what has no proper schema is reported when it is asked, as installed backends are
        with suppress(BackendLoadError):
            problems += registry.wrong_options(name)
    if problems:
        raise SettingsError(map(loaded.locate, problems))


def _wrong_options(loaded: LoadedSettings) -> list[str]:
    """Return what is wrong with the options of installed backends, which are *failed* then.

    Their workers tell only once they are asked, and for the default backend that is too late.
    """
    settings = loaded.settings
    routed = any(route.options for route in settings.models.values())
    if not routed and not any(settings.backends.values()):
        return []
    # multiprocessing is not for every start to wait for
    from caesar_server.cli.plugins.apart import wrong_options_apart

    problems = wrong_options_apart(loaded)
    return [f"{loaded.locate(one)} (until then the backend is failed)" for one in problems]


def listen(settings: Settings) -> socket.socket:
    """Return a listening socket: gunicorn would try a taken port for five seconds.

    :raises click.ClickException: if the address cannot be listened on.
    """
    try:
        return listening(settings.host, settings.port, _BACKLOG)
    except OSError as error:
        raise click.ClickException(_why_not(settings, error)) from error


def _why_not(settings: Settings, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {settings.port} of {settings.host} is taken; stop what listens there, or take "
            "another one with --port (0 takes a free one)"
        )
    if error.errno == errno.EACCES:
        return f"port {settings.port} of {settings.host} is not allowed for this user; try --port"
    # socket.create_server appends the address that the sentence names already
    reason = (error.strerror or str(error)).partition(" (while")[0]
    return f"cannot listen on port {settings.port} of {settings.host}: {reason}"


def _urls_of(passed: Iterable[int]) -> list[str]:
    """Return the URLs of sockets that somebody else has made.

    :param passed: their descriptors, which stay as they are.
    """
    urls = []
    for descriptor in passed:
        with socket.socket(fileno=os.dup(descriptor)) as listener:
            urls.append(url_of(listener))
    return urls


def _run(
    settings: Settings,
    listener: socket.socket | None,
    read_again: Callable[[], Settings],
    reload: bool,
) -> None:
    from caesar_server.cli.gunicorn_app import GunicornApp

    GunicornApp(settings, listener, read_again, watch=reload).run()
