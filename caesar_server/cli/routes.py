"""``caesar-server routes``: the URLs that are answered."""

from __future__ import annotations

from pathlib import Path

import click

from caesar_server.cli.startup import (
    config_option,
    json_option,
    print_json,
    read_settings,
    write_log,
)
from caesar_server.cli.tables import table
from caesar_server.store.memory import MemoryStore

#: Answered by Flask for every route.
_IMPLIED = frozenset({"HEAD", "OPTIONS"})


@click.command(short_help="List the URLs that are answered.")
@config_option
@json_option
def routes(config: Path | None, as_json: bool) -> None:
    """List the URLs that are answered, with methods and the names of their views."""
    from caesar_server.app import create_app

    write_log(None)
    # whatever the settings name: no database is needed to see the routes
    app = create_app(read_settings(config).settings, store=MemoryStore())
    try:
        found = sorted(
            (
                rule.rule.rstrip("/") or "/",
                sorted((rule.methods or set()) - _IMPLIED),
                rule.endpoint,
            )
            for rule in app.url_map.iter_rules()
        )
    finally:
        app.extensions["caesar_server"].close()
    if as_json:
        print_json(
            [{"path": path, "methods": methods, "view": view} for path, methods, view in found]
        )
        return
    rows = [(",".join(methods), path, view) for path, methods, view in found]
    for line in table(("METHODS", "PATH", "VIEW"), rows):
        click.echo(line)
