"""The command ``caesar-server``.

What takes long to import (Flask, gunicorn, plugins) is imported by the commands that need it, when
they run.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from caesar_server import __version__
from caesar_server.cli.backends import backends
from caesar_server.cli.check import check
from caesar_server.cli.jobs import jobs, worker
from caesar_server.cli.keys import keys
from caesar_server.cli.mock.command import mock
from caesar_server.cli.mock.fixtures import fixtures
from caesar_server.cli.plugins.commands import plugin_commands
from caesar_server.cli.plugins.new_backend import new_backend
from caesar_server.cli.routes import routes
from caesar_server.cli.serve import serve
from caesar_server.cli.settings import settings
from caesar_server.cli.store import store
from caesar_server.errors import SettingsError


class _BadSettings(click.ClickException):
    """Settings that nothing can be done with: exit status 2, as for wrong flags."""

    exit_code = 2

    def __init__(self, error: SettingsError) -> None:
        super().__init__("\n       ".join(error.problems))


class _Commands(click.Group):
    """Has the commands of plugins, too, and says what is wrong with the settings in words.

    ``commands`` are the built-in ones.
    """

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a built-in command, or else that of a plugin, which is not imported yet."""
        built_in = super().get_command(ctx, cmd_name)
        return built_in or plugin_commands(self.commands)[0].get(cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the built-in commands, then those of plugins."""
        super().format_commands(ctx, formatter)
        commands, unusable = plugin_commands(self.commands)
        rows = [(name, command.get_short_help_str()) for name, command in commands.items()]
        rows += [
            (one.name, f"({one.distribution} {one.version}: {one.state}, {one.reason})")
            for one in unusable
        ]
        if rows:
            with formatter.section("Commands of plugins"):
                formatter.write_dl(sorted(rows))

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except SettingsError as error:
            raise _BadSettings(error) from error


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="caesar-server")
def main() -> None:
    """Serve the Caesar research API, with the backends that are installed."""
    _open_closed_streams()


def _open_closed_streams() -> None:
    """Let standard streams that the caller has closed lead nowhere.

    The next file that is opened takes such a number: a client's connection would be written to.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # as long as the process lives
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115


_COMMANDS = (
    *(serve, mock, worker, backends, check, new_backend, settings, routes),
    *(keys, jobs, store, fixtures),
)
for _command in _COMMANDS:
    main.add_command(_command)
