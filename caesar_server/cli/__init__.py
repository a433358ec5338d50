"""The command ``caesar-server``.

What takes long to import (Flask, gunicorn, plugins) is imported by the commands that need it, when
they run.
"""

from __future__ import annotations

from typing import Any

import click

from caesar_server import __version__
from caesar_server.cli.backends import backends
from caesar_server.cli.check import check
from caesar_server.cli.routes import routes
from caesar_server.cli.serve import serve
from caesar_server.cli.settings import settings
from caesar_server.errors import SettingsError


class _BadSettings(click.ClickException):
    """Settings that nothing can be done with: exit status 2, as for wrong flags."""

    exit_code = 2

    def __init__(self, error: SettingsError) -> None:
        super().__init__("\n       ".join(error.problems))


class _Commands(click.Group):
    """Shows what is wrong with the settings without a traceback."""

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


for _command in (serve, backends, check, settings, routes):
    main.add_command(_command)
