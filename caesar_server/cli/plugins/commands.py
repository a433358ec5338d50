"""Sub-commands of ``caesar-server`` that installed distributions bring along.

A distribution names a click command under the entry point group ``caesar_server.commands``.  It is
imported when it is asked for and not before, so that what it needs, or that it is broken, does not
concern anybody else.  The built-in commands cannot be replaced.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

import click

from caesar_server.cli.startup import find_backends, read_settings, unknown_backend, write_log
from caesar_server.contract.options import OptionsError, parse_options
from caesar_server.entry_points import COMMANDS, Announcement, announced, normalised
from caesar_server.errors import BackendLoadError, SettingsError

_NAME = re.compile(r"[a-z0-9]+(?:[-_][a-z0-9]+)*")
_logger = logging.getLogger(__name__)

#: What importing somebody else's code may raise; SystemExit because scripts call ``sys.exit``.
_RAISED = (Exception, SystemExit)

#: ``available``: not imported yet; ``shadowed``: another command has its name.
CommandState: TypeAlias = Literal["available", "loaded", "failed", "shadowed"]


@dataclass(frozen=True, slots=True)
class CommandReport:
    """The state of one command of a plugin, for people.

    :param entry_point: ``module:attribute``.
    :param reason: why it is in this state, or None.
    """

    name: str
    state: CommandState
    entry_point: str
    distribution: str
    version: str
    reason: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the report as a JSON object."""
        return asdict(self)


class PluginCommand(click.Command):
    """Stands for a command that is not imported yet; becomes it when it is run."""

    def __init__(self, announcement: Announcement) -> None:
        super().__init__(announcement.name, short_help=f"From {announcement.origin}.")
        self.announcement = announcement

    def load(self) -> click.Command:
        """Return the command itself.

        :raises click.ClickException: if it cannot be imported or is no command.
        """
        one = self.announcement
        try:
            command = one.load()
        except _RAISED as error:
            _logger.error("command %s (%s)", one.name, one.origin, exc_info=error)
            said = " ".join(str(error).split())
            raise click.ClickException(
                f"the command {one.name} of {one.origin} cannot be used: importing {one.value} "
                f"raised {type(error).__name__}: {said}"
            ) from error
        if not isinstance(command, click.Command):
            raise click.ClickException(
                f"the command {one.name} of {one.origin} cannot be used: {one.value} is no click "
                "command"
            )
        return command

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Return the context of the command itself, which is then what runs."""
        return self.load().make_context(
            info_name, args, parent, **{"obj": backend_options, **extra}
        )


def backend_options(backend: str) -> Any:
    """Return the validated options of a backend: what ``click.pass_obj`` gives to commands.

    See :class:`caesar_server.contract.OptionsReader`.
    """
    # Whoever runs a plugin's command is not told what is unwise about the server's settings.
    write_log(None)
    loaded = read_settings(None)
    registry = find_backends(loaded)
    if backend not in registry.names:
        raise click.ClickException(unknown_backend(backend, registry))
    try:
        schema = registry.backend_class(backend).options_schema
    except BackendLoadError as error:
        raise click.ClickException(registry.report(backend).sentence) from error
    prefix = f"backends.{backend}."
    try:
        return parse_options(schema, loaded.settings.backends.get(backend, {}), prefix=prefix)
    except OptionsError as error:
        raise SettingsError(map(loaded.locate, error.problems)) from error


def plugin_commands(
    built_in: Collection[str],
) -> tuple[dict[str, PluginCommand], tuple[CommandReport, ...]]:
    """Return the commands of plugins by name, and reports on those that cannot be had.

    Of two with one name that of the distribution that comes first in the alphabet is used.

    :param built_in: names that no plugin can take.
    """
    commands: dict[str, PluginCommand] = {}
    owners = dict.fromkeys(built_in, "the server itself")
    unusable: list[CommandReport] = []
    for one in sorted(announced(COMMANDS), key=lambda one: normalised(one.distribution)):
        if _NAME.fullmatch(one.name) is None:
            reason = f"{one.name!r} cannot be a command; use a-z and 0-9, words joined by a dash"
            unusable.append(_report(one, "failed", reason))
        elif one.name in owners:
            reason = f"{owners[one.name]} has a command of this name"
            unusable.append(_report(one, "shadowed", reason))
        else:
            owners[one.name] = one.origin
            commands[one.name] = PluginCommand(one)
    return commands, tuple(unusable)


def command_reports(built_in: Collection[str]) -> tuple[CommandReport, ...]:
    """Import every command of a plugin and return how that went, by name."""
    commands, unusable = plugin_commands(built_in)
    return tuple(sorted([*map(_tried, commands.values()), *unusable], key=lambda one: one.name))


def _tried(command: PluginCommand) -> CommandReport:
    try:
        command.load()
    except click.ClickException as error:
        return _report(command.announcement, "failed", error.message)
    return _report(command.announcement, "loaded")


def _report(one: Announcement, state: CommandState, reason: str | None = None) -> CommandReport:
    return CommandReport(one.name, state, one.value, one.distribution, one.version, reason)
