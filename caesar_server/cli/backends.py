"""``caesar-server backends``: what is installed, and why something does not work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from caesar_server.cli.plugins.commands import CommandReport, command_reports
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
from caesar_server.cli.tables import table
from caesar_server.contract.options import OptionField, option_fields
from caesar_server.errors import BackendLoadError
from caesar_server.registry import (
    KNOWN_BACKENDS,
    BackendReport,
    KnownBackend,
    Registry,
    extra_candidates,
    names_file,
)
from caesar_server.settings import LoadedSettings


@dataclass(frozen=True, slots=True)
class _Found:
    """What the command tells.

    :param options: with the dotted name of each, or None unless one backend was asked for.
    """

    default_backend: str
    warnings: Sequence[str]
    backends: Sequence[BackendReport]
    commands: Sequence[CommandReport]
    options: Sequence[tuple[str, OptionField]] | None
    to_install: Sequence[KnownBackend] | None


@click.command(short_help="Tell which backends work, and why others do not.")
@click.argument("name", required=False)
@click.option(
    "--install-hints", is_flag=True, help="Also list known backends that are not installed."
)
@config_option
@json_option
@verbose_option
@click.pass_context
def backends(
    ctx: click.Context,
    name: str | None,
    install_hints: bool,
    config: Path | None,
    as_json: bool,
    verbose: bool,
) -> None:
    """Load each backend and tell how that went; with NAME, also list its options.

    NAME may also be module:Class or a file, path/to/file.py or path/to/file.py:Class.
    """
    write_log("info" if verbose else None)
    loaded = read_settings(config)
    if name is not None and (":" in name or names_file(name)):
        name, loaded = _with_extra(name, loaded)
    with prints_aside():
        found = _find(loaded, name, _built_in(ctx), install_hints=install_hints)
    if as_json:
        print_json(_as_json(found))
        return
    for line in _as_text(found):
        click.echo(line)


def _find(
    loaded: LoadedSettings, name: str | None, built_in: Sequence[str], *, install_hints: bool
) -> _Found:
    """Try the backend ``name``, or all of them and the commands, and return what there is to tell.

    :param built_in: the commands beside this one.
    """
    registry = find_backends(loaded)
    if name is not None and name not in {report.name for report in registry.reports()}:
        raise click.BadParameter(unknown_backend(name, registry), param_hint="NAME")
    try:
        tried = _try_all(registry, name)
        return _Found(
            default_backend=registry.default,
            warnings=(*loaded.warnings, *map(loaded.locate, registry.warnings)),
            backends=tried,
            commands=command_reports(built_in) if name is None else (),
            options=_options(registry, name) if name is not None else None,
            to_install=_missing(registry) if install_hints else None,
        )
    finally:
        registry.close()


def _built_in(ctx: click.Context) -> Sequence[str]:
    """Return the names of the commands beside this one."""
    group = ctx.find_root().command
    return tuple(group.commands) if isinstance(group, click.Group) else ()


def _missing(registry: Registry) -> list[KnownBackend]:
    here = {report.name for report in registry.reports()}
    return [known for known in KNOWN_BACKENDS if known.name not in here]


def _with_extra(spec: str, loaded: LoadedSettings) -> tuple[str, LoadedSettings]:
    """Return the name of the backend that ``spec`` means, and settings that have it."""
    import_from_here()
    (candidate,) = extra_candidates([spec])
    given = loaded.settings.extra_backends
    if candidate in extra_candidates(given):
        return candidate.name, loaded
    settings = replace(loaded.settings, extra_backends=(spec, *given))
    return candidate.name, replace(loaded, settings=settings)


def _try_all(registry: Registry, name: str | None) -> list[BackendReport]:
    """Load and open the backends that may be, and return the reports on all."""
    for known in registry.names:
        if name in (None, known):
            try:
                registry.load(known)
            except BackendLoadError:
                continue  # its report tells why
    return [report for report in registry.reports() if name in (None, report.name)]


def _options(registry: Registry, name: str) -> list[tuple[str, OptionField]] | None:
    """Return the options of a backend, or None if its class cannot be had."""
    if name not in registry.names:
        return None
    try:
        return list(_flat(registry.backend_class(name).options_schema))
    except BackendLoadError:
        return None


def _flat(schema: type[Any], prefix: str = "") -> Iterator[tuple[str, OptionField]]:
    """Yield each option with its dotted name; those of a table come after it."""
    for field in option_fields(schema):
        yield prefix + field.name, field
        if field.nested is not None and not field.info.secret:
            step, table_of = field.nested
            yield from _flat(table_of, f"{prefix}{field.name}{step}.")


def _as_json(found: _Found) -> dict[str, Any]:
    body: dict[str, Any] = {
        "default_backend": found.default_backend,
        "warnings": found.warnings,
        "backends": [report.to_json() for report in found.backends],
        "commands": [report.to_json() for report in found.commands],
    }
    if found.to_install is not None:
        body["not_installed"] = [
            {"name": known.name, "summary": known.summary, "install": known.install}
            for known in found.to_install
        ]
    if found.options is not None:
        body["options"] = [
            {
                "name": name,
                "type": field.type_name,
                "range": field.range,
                "unit": field.info.unit,
                "required": field.required,
                "default": _plain_default(field),
                "secret": field.info.secret,
                "help": field.info.help,
            }
            for name, field in found.options
        ]
    return body


def _plain_default(field: OptionField) -> Any:
    """Return the default where it may be shown and is not told field by field."""
    return None if field.info.secret or field.nested is not None else field.default


def _as_text(found: _Found) -> Iterator[str]:
    head = ("NAME", "STATE", "PACKAGE", "ENTRY POINT")
    rows = [(one.name, one.state, _package(one), one.entry_point) for one in found.backends]
    yield from _with_reasons(table(head, rows), found.backends)
    if found.commands:
        yield ""
        head = ("COMMAND", *head[1:])
        rows = [(one.name, one.state, _package(one), one.entry_point) for one in found.commands]
        yield from _with_reasons(table(head, rows), found.commands)
    yield ""
    yield f"default backend: {found.default_backend}"
    yield from (f"warning: {sentence}" for sentence in found.warnings)
    if found.to_install is not None:
        yield ""
        yield from _install_lines(found.to_install)
    if found.options is not None:
        yield ""
        yield from _option_lines(found.backends[0].name, found.options)


def _with_reasons(
    lines: Iterator[str], reports: Sequence[BackendReport | CommandReport]
) -> Iterator[str]:
    """Yield the lines of a table, each with what its report has to say."""
    yield next(lines)
    for report, line in zip(reports, lines, strict=True):
        yield line
        for word in ("reason", "detail", "hint"):
            if text := getattr(report, word, None):
                yield f"    {word}: {text}"


def _package(report: BackendReport | CommandReport) -> str:
    if report.distribution is None:
        return "(extra_backends)"
    return f"{report.distribution} {report.version}"


def _install_lines(known: Sequence[KnownBackend]) -> Iterator[str]:
    if not known:
        yield "every known backend is installed"
        return
    yield "known, and not installed:"
    for one in known:
        yield f"  {one.name}: {one.summary}"
        yield f"      {one.install}"


def _option_lines(name: str, options: Sequence[tuple[str, OptionField]]) -> Iterator[str]:
    if not options:
        yield f"{name} has no options"
        return
    yield f"options, in [backends.{name}] of the settings file:"
    for dotted, field in options:
        kind = ", ".join(filter(None, (field.type_name, field.range, field.info.unit)))
        yield f"  {dotted} ({kind}; {_default(field)})"
        yield f"      {field.info.help}"


def _default(field: OptionField) -> str:
    if field.required:
        return "required"
    if field.info.secret:
        return "secret" if field.default is not None else "secret, unset by default"
    if field.default is None:
        return "unset by default"
    if field.nested is not None:
        return "optional"
    shown = str(field.default) if isinstance(field.default, Path) else field.default
    return f"default {shown!r}"
