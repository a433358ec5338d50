"""``caesar-server backends``: what is installed, and why something does not work."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from caesar_server.cli.startup import (
    config_option,
    find_backends,
    json_option,
    print_json,
    read_settings,
    unknown_backend,
    verbose_option,
    write_log,
)
from caesar_server.cli.tables import table
from caesar_server.contract.options import OptionField, option_fields
from caesar_server.errors import BackendLoadError
from caesar_server.registry import BackendReport, Registry


@click.command(short_help="Tell which backends work, and why others do not.")
@click.argument("name", required=False)
@config_option
@json_option
@verbose_option
def backends(name: str | None, config: Path | None, as_json: bool, verbose: bool) -> None:
    """Load each backend and tell how that went; with NAME, also list its options."""
    write_log("info" if verbose else None)
    registry = find_backends(read_settings(config))
    if name is not None and name not in {report.name for report in registry.reports()}:
        raise click.BadParameter(unknown_backend(name, registry), param_hint="NAME")
    try:
        tried = _try_all(registry, name)
        options = _options(registry, name) if name is not None else None
    finally:
        registry.close()
    if as_json:
        print_json(_as_json(registry, tried, options))
        return
    for line in _as_text(registry, tried, options):
        click.echo(line)


def _try_all(registry: Registry, name: str | None) -> list[BackendReport]:
    """Load and open the backends that may be, and return the reports on all."""
    for known in registry.names:
        if name in (None, known):
            try:
                registry.load(known)
            except BackendLoadError:
                continue  # its report tells why
    return [report for report in registry.reports() if name in (None, report.name)]


def _options(registry: Registry, name: str) -> tuple[OptionField, ...] | None:
    """Return the options of a backend, or None if its class cannot be had."""
    if name not in registry.names:
        return None
    try:
        return option_fields(registry.backend_class(name).options_schema)
    except BackendLoadError:
        return None


def _as_json(
    registry: Registry, reports: list[BackendReport], options: tuple[OptionField, ...] | None
) -> dict[str, Any]:
    body: dict[str, Any] = {
        "default_backend": registry.default,
        "warnings": registry.warnings,
        "backends": [report.to_json() for report in reports],
    }
    if options is not None:
        body["options"] = [
            {
                "name": field.name,
                "type": field.type_name,
                "range": field.range,
                "unit": field.info.unit,
                "required": field.required,
                "default": None if field.info.secret else field.default,
                "secret": field.info.secret,
                "help": field.info.help,
            }
            for field in options
        ]
    return body


def _as_text(
    registry: Registry, reports: list[BackendReport], options: tuple[OptionField, ...] | None
) -> Iterator[str]:
    rows = [(report.name, report.state, _package(report), report.entry_point) for report in reports]
    lines = table(("NAME", "STATE", "PACKAGE", "ENTRY POINT"), rows)
    yield next(lines)
    for report, line in zip(reports, lines, strict=True):
        yield line
        for word in ("reason", "detail", "hint"):
            if text := getattr(report, word):
                yield f"    {word}: {text}"
    yield ""
    yield f"default backend: {registry.default}"
    yield from (f"warning: {sentence}" for sentence in registry.warnings)
    if options is not None:
        yield ""
        yield from _option_lines(reports[0].name, options)


def _package(report: BackendReport) -> str:
    if report.distribution is None:
        return "(extra_backends)"
    return f"{report.distribution} {report.version}"


def _option_lines(name: str, options: tuple[OptionField, ...]) -> Iterator[str]:
    if not options:
        yield f"{name} has no options"
        return
    yield f"options, in [backends.{name}] of the settings file:"
    for field in options:
        kind = ", ".join(filter(None, (field.type_name, field.range, field.info.unit)))
        yield f"  {field.name} ({kind}; {_default(field)})"
        yield f"      {field.info.help}"


def _default(field: OptionField) -> str:
    if field.required:
        return "required"
    if field.default is None:
        return "unset by default"
    return "secret" if field.info.secret else f"default {field.default!r}"
