"""``caesar-server mock``: a mock server for test suites in any language, under gunicorn."""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from caesar_server.cli.flags import mock_setting_flags
from caesar_server.cli.serve import listen
from caesar_server.cli.startup import (
    announce,
    check_settings,
    config_option,
    read_settings,
    write_log,
)
from caesar_server.cli.workers.listening import url_of
from caesar_server.errors import SettingsError
from caesar_server.settings import LoadedSettings, Settings
from caesar_server.web.observing.logs import configure_logging

if TYPE_CHECKING:
    from caesar_server.mock.scopes import Scopes

#: Where nobody has said otherwise.  Tests hold many requests open at once, and wait for nobody when
#: the server is to end.
_USUAL: Mapping[str, Any] = {
    "threads": 256,
    "graceful_timeout_s": 1.0,
    "store": "memory",
    # the user's own file of keys is for servers that others can reach
    "keys_file": None,
}
#: What the help of a flag says of its default.
_DEFAULT = re.compile(r"(default|unset): (?:[^;\]]+(?=[;\]])|.+(?=\.$))")
#: What settings and fixture files may both say.
_MANNER = ("seed", "strict", "fallback")


def _with_usual_defaults(command: click.Command) -> click.Command:
    """Let the help of the flags tell what a mock has where nobody has said otherwise."""
    for flag in command.params:
        if isinstance(flag, click.Option) and flag.name in _USUAL and flag.help is not None:
            usual = _USUAL[flag.name]
            flag.help = _DEFAULT.sub(rf"\1: {'none' if usual is None else usual}", flag.help)
    return command


@_with_usual_defaults
@click.command(short_help="Run a mock server for tests.")
@config_option
@click.option(
    "--fixtures",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE|DIR",
    help="Rules to answer by; read again when they change.  May be given several times.",
)
@click.option("--print-port", is_flag=True, help="When ready, print nothing but the port.")
@click.option(
    "--until-stdin-ends",
    is_flag=True,
    help="Stop when the standard input ends, as it does when the program that started this ends.",
)
@mock_setting_flags
def mock(
    config: Path | None,
    fixtures: tuple[Path, ...],
    print_port: bool,
    until_stdin_ends: bool,
    **flags: object,
) -> None:
    """Answer API calls by rules, with failures on purpose, until SIGTERM or SIGINT.

    One line on the standard output tells that it is ready: "Ready on URL", or the port alone with
    --print-port; everything else goes to the standard error.  Rules come from --fixtures and from
    the control API below /_mock.  It is one process, and needs no API key unless the settings name
    some.
    """
    given = {name: value for name, value in flags.items() if value not in (None, ())}
    write_log(None)
    loaded = _read(config, given)
    settings, warnings = _checked(loaded, until_stdin_ends)
    scopes = _scopes(loaded, fixtures)
    listener = listen(settings)
    configure_logging(settings)
    for sentence in warnings:
        announce(settings, sentence, warning=True)
    line = str(listener.getsockname()[1]) if print_port else f"Ready on {url_of(listener)}"

    def read_again() -> Settings:
        return _checked(_read(config, given), until_stdin_ends)[0]

    _run(settings, listener, read_again, scopes, _Readiness(line, until_stdin_ends))


def _read(config: Path | None, given: Mapping[str, object]) -> LoadedSettings:
    """Return the settings, with what suits tests where nobody has said otherwise."""
    loaded = read_settings(config, given)
    changes = {name: _USUAL[name] for name in _USUAL if loaded.origins[name] == "default"}
    return replace(loaded, settings=replace(loaded.settings, **changes))


def _checked(loaded: LoadedSettings, until_stdin_ends: bool) -> tuple[Settings, list[str]]:
    """Return the settings and what is unwise about them.

    :raises SettingsError: if a mock cannot run with them.
    """
    settings = loaded.settings
    try:
        problems = list(_problems(settings, until_stdin_ends))
        if problems:
            raise SettingsError(problems)
        return settings, check_settings(settings)
    except SettingsError as error:
        raise SettingsError(map(loaded.locate, error.problems)) from error


def _problems(settings: Settings, until_stdin_ends: bool) -> Iterator[str]:
    if settings.workers != 1:
        yield (
            "workers: a mock is one process, which alone knows its rules and requests; expected "
            f"1, got {settings.workers} (--workers 1)"
        )
    if settings.max_requests:
        yield (
            "max_requests: a mock's process is not replaced, for its rules would be gone; "
            "expected 0 (--max-requests 0)"
        )
    if until_stdin_ends and settings.worker_class != "gthread":
        yield "worker_class: --until-stdin-ends needs gthread (--worker-class gthread)"


def _scopes(loaded: LoadedSettings, fixtures: tuple[Path, ...]) -> Scopes:
    """Return the scopes that the settings and the fixture files make; what was set wins.

    :raises click.ClickException: if the files cannot be used.
    """
    from caesar_server.mock.files import FixturesError, load_into
    from caesar_server.mock.scopes import Scopes

    scopes = Scopes.of(loaded.settings)
    was_set = [field for field in _MANNER if loaded.origins[f"mock_{field}"] != "default"]
    if fixtures:
        try:
            load_into(scopes, *fixtures, over={one: getattr(scopes.manner, one) for one in was_set})
        except FixturesError as error:
            raise _BadFixtures(str(error)) from error
    return scopes


class _BadFixtures(click.ClickException):
    """Fixture files that nothing can be done with: exit status 2, as for wrong flags."""

    exit_code = 2


class _Readiness:
    """Tells once that the server answers.

    :param line: what to print.
    :param until_stdin_ends: whether to stop the server when the standard input ends.
    """

    def __init__(self, line: str, until_stdin_ends: bool) -> None:
        from caesar_server.web.access.keyring import Latch

        self._line = line
        self._until_stdin_ends = until_stdin_ends
        # shared with a worker that takes the place of one that broke down
        self._told = Latch()

    def __call__(self, worker: Any) -> None:
        """Called in the worker once it answers."""
        if self._until_stdin_ends:
            threading.Thread(
                target=_stop_after_stdin, args=(os.getppid(),), name="caesar-stdin", daemon=True
            ).start()
        if not self._told.is_set():
            self._told.set()
            print(self._line, flush=True)  # noqa: T201 - for whoever waits for it


def _stop_after_stdin(master: int) -> None:
    """Stop the server when nothing can come from the standard input any more."""
    while os.read(sys.stdin.fileno(), 4096):
        continue
    os.kill(master, signal.SIGTERM)


def _run(
    settings: Settings,
    listener: socket.socket,
    read_again: Any,
    scopes: Scopes,
    ready: _Readiness,
) -> None:
    from caesar_server.cli.gunicorn_app import GunicornApp

    GunicornApp(settings, listener, read_again, mock=scopes, ready=ready).run()
