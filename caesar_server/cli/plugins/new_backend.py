"""``caesar-server new-backend``: a distribution to start from."""

from __future__ import annotations

from pathlib import Path

import click

from caesar_server.cli.plugins import scaffold


@click.command("new-backend", short_help="Write the files of a new backend.")
@click.argument("name")
@click.option(
    "--dir",
    "parent",
    type=click.Path(path_type=Path),
    default=Path(),
    metavar="DIR",
    help="Where to make the folder NAME.  [default: the current folder]",
)
def new_backend(name: str, parent: Path) -> None:
    """Write a complete distribution for a backend called NAME into a new folder of that name.

    It can be installed, checked and tested as it stands; what it says is yours to change.
    """
    try:
        scaffold.check_name(name)
    except scaffold.NameRefusedError as error:
        raise click.BadParameter(str(error), param_hint="NAME") from error
    if not parent.is_dir():
        raise click.BadParameter(f"there is no folder {parent}", param_hint="--dir")
    folder, files = parent / name, scaffold.files_of(name)
    try:
        scaffold.write(folder, files)
    except FileExistsError as error:
        raise click.ClickException(
            f"{folder} exists already; take another name, or another place with --dir"
        ) from error
    except OSError as error:
        raise click.ClickException(f"{folder} cannot be written: {error.strerror}") from error
    for path in sorted(files):
        click.echo(f"wrote {folder / path}")
    click.echo("")
    click.echo("Next:")
    install = folder if folder.is_absolute() or str(folder).startswith(".") else f"./{folder}"
    click.echo(f"  pip install -e {install}")
    click.echo(f"  caesar-server check {name}")
    click.echo(f"  caesar-server serve --default-backend {name} --reload")
