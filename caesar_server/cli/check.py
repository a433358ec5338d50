"""``caesar-server check``: does a backend keep to the contract?"""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import click

from caesar_server.cli.plugins.apart import reset_signals
from caesar_server.cli.plugins.output import prints_aside
from caesar_server.cli.startup import (
    config_option,
    find_backends,
    import_from_here,
    json_option,
    print_json,
    read_settings,
    unknown_backend,
    verbose_option,
    write_log,
)
from caesar_server.errors import BackendLoadError
from caesar_server.registry import Registry, extra_candidates, names_file
from caesar_server.settings import LoadedSettings, Settings

if TYPE_CHECKING:
    from caesar_server.contract import Event, Request
    from caesar_server.jobs.calls import RegistryCaller
    from caesar_server.jobs.context import RunContext
    from caesar_server.testing.conformance import Report

#: What came of trying a backend: a report, or why it cannot be loaded.
_Told: TypeAlias = "Report | str"
#: How often it is looked whether the child is still there, in seconds.
_LOOK_S = 0.5


@click.command(short_help="Try a backend against the rules of the contract.")
@click.argument("name")
@click.option("-q", "--quiet", is_flag=True, help="Print only what fails, and the count.")
@config_option
@json_option
@verbose_option
def check(name: str, quiet: bool, config: Path | None, as_json: bool, verbose: bool) -> None:
    """Try the backend NAME against the rules of the contract.

    NAME may also be module:Class or a file, path/to/file.py or path/to/file.py:Class.

    The options are those of the settings.  Exit status 1 means that a rule is broken, or that the
    backend cannot be tried.
    """
    write_log("info" if verbose else None)
    loaded = read_settings(config)
    registry, name = _found(name, loaded)
    report = _tried_apart(registry, name, loaded)
    if as_json:
        print_json(report.to_json())
    else:
        click.echo(report.text(failures_only=quiet))
    if report.failed:
        raise click.exceptions.Exit(1)


def _found(name: str, loaded: LoadedSettings) -> tuple[Registry, str]:
    """Return a registry that has the backend that ``name`` means, and its name there."""
    if ":" in name or names_file(name):
        import_from_here()
        candidates = extra_candidates([name])
        name = candidates[0].name
        registry = Registry(candidates, Settings())
    else:
        registry = find_backends(loaded)
    if name not in registry.names:
        raise click.BadParameter(unknown_backend(name, registry), param_hint="NAME")
    return registry, name


def _tried_apart(registry: Registry, name: str, loaded: LoadedSettings) -> Report:
    """Try a backend in a process of its own, which it may end, and return what came of it.

    :raises click.ClickException: if it cannot be loaded, or has ended the process.
    """
    receiver, sender = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(
        target=_try, args=(registry, name, loaded, sender)
    )
    try:
        child.start()
        sender.close()
        told = _told_by(child, receiver)
        if told is None:
            child.join()
            raise click.ClickException(
                f"the backend {name} has ended the process in which it was tried "
                f"({_how_ended(child.exitcode)}): what it runs, or a library that it uses, calls "
                "os._exit() or exit(), or crashes; a server's worker would end with it"
            )
    finally:
        sender.close()
        if child.pid is not None:
            child.kill()
            child.join()
        receiver.close()
    if isinstance(told, str):
        raise click.ClickException(told)
    return told


def _told_by(child: multiprocessing.process.BaseProcess, receiver: Connection) -> _Told | None:
    """Return what a child sends, or None if it has ended before."""
    # not by the end of the pipe alone: processes that the backend has forked hold it open
    while child.is_alive() and not receiver.poll(_LOOK_S):
        pass
    try:
        told: _Told | None = receiver.recv() if receiver.poll() else None
    except EOFError:
        return None
    return told


def _how_ended(status: int | None) -> str:
    if status is None or status >= 0:
        return f"exit status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:  # of the real-time ones two have names
        return f"signal {-status}"


def _try(registry: Registry, name: str, loaded: LoadedSettings, sender: Connection) -> None:
    """In the child: try a backend, and send what came of it."""
    from caesar_server.testing.conformance import check_backend

    reset_signals()
    options = loaded.settings.backends.get(name, {})
    told: _Told
    with prints_aside():
        try:
            told = check_backend(
                registry.backend_class(name), options, caller=_InstalledCaller(loaded)
            )
        except BackendLoadError:
            told = registry.report(name).sentence
    sender.send(told)


class _InstalledCaller:
    """Calls the backends that a server would have; they are looked for at the first call."""

    def __init__(self, loaded: LoadedSettings) -> None:
        self._loaded = loaded
        self._lock = threading.Lock()
        self._found: RegistryCaller | None = None

    def __call__(self, model: str, request: Request, context: RunContext) -> Iterator[Event]:
        """Yield the events of the called backend."""
        return self._caller()(model, request, context)

    def _caller(self) -> RegistryCaller:
        from caesar_server.jobs.calls import RegistryCaller

        with self._lock:  # eight runs at once are to share one
            if self._found is None:
                self._found = RegistryCaller(find_backends(self._loaded))
            return self._found
