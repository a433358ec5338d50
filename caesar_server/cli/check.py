"""``caesar-server check``: does a backend keep to the contract?"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

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
from caesar_server.contract import Backend
from caesar_server.errors import BackendLoadError
from caesar_server.registry import Registry, extra_candidates, names_file
from caesar_server.settings import LoadedSettings, Settings


@click.command(short_help="Try a backend against the rules of the contract.")
@click.argument("name")
@click.option("-q", "--quiet", is_flag=True, help="Print only what fails, and the count.")
@config_option
@json_option
@verbose_option
def check(name: str, quiet: bool, config: Path | None, as_json: bool, verbose: bool) -> None:
    """Try the backend NAME against the rules of the contract.

    NAME may also be module:Class or a file, path/to/file.py or path/to/file.py:Class.

    The options are those of the settings.  Exit status 1 means that a rule is broken.
    """
    from caesar_server.testing.conformance import check_backend

    write_log("info" if verbose else None)
    loaded = read_settings(config)
    with prints_aside():
        cls, options = _subject(name, loaded)
        report = check_backend(cls, options)
    if as_json:
        print_json(report.to_json())
    else:
        click.echo(report.text(failures_only=quiet))
    if report.failed:
        raise click.exceptions.Exit(1)


def _subject(name: str, loaded: LoadedSettings) -> tuple[type[Backend], Mapping[str, Any]]:
    """Return the class that ``name`` means, and its options."""
    if ":" in name or names_file(name):
        import_from_here()
        candidates = extra_candidates([name])
        name = candidates[0].name
        registry = Registry(candidates, Settings())
    else:
        registry = find_backends(loaded)
    if name not in registry.names:
        raise click.BadParameter(unknown_backend(name, registry), param_hint="NAME")
    try:
        return registry.backend_class(name), loaded.settings.backends.get(name, {})
    except BackendLoadError as error:
        raise click.ClickException(registry.report(name).sentence) from error
