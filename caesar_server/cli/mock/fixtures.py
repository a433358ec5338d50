"""``caesar-server fixtures``: what is wrong with fixture files, and what may stand in them."""

from __future__ import annotations

from pathlib import Path

import click

from caesar_server.cli.startup import json_option, print_json


@click.group()
def fixtures() -> None:
    """Check fixture files of the mock, and describe them.

    The manual has their whole format: "Fixture files".
    """


@fixtures.command()
@click.argument(
    "paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE|DIR..."
)
@json_option
def validate(paths: tuple[Path, ...], as_json: bool) -> None:
    """Read fixture files as the mock does, and tell every problem.

    A problem is a line FILE:LINE:COLUMN: FIELD: MESSAGE.  The exit status is 1 if there are any.
    Rules that can never be used, since another one is always tried first, are told on standard
    error: they are no problem to the mock.
    """
    # takes a while to import
    from caesar_server.mock.files import FixturesError, Problem, load_fixtures
    from caesar_server.mock.files.shadows import never_used

    problems: tuple[Problem, ...] = ()
    summary = ""
    try:
        loaded = load_fixtures(*paths)
        for rule, taker in never_used(loaded.rules):
            said = f"{taker.label} is tried first, and is for the same calls"
            click.echo(f"{rule.source}: never used: {said}", err=True)
        summary = f"{_count(len(loaded.rules), 'rule')} in {_count(len(loaded.files), 'file')}"
    except FixturesError as error:
        problems = tuple(error.problems)
        summary = _count(len(problems), "problem")
    if as_json:
        print_json([problem.as_json() for problem in problems])
    else:
        for problem in problems:
            click.echo(str(problem))
        click.echo(summary, err=True)
    if problems:
        raise click.exceptions.Exit(1)


@fixtures.command()
def schema() -> None:
    """Print the JSON Schema of fixture files, for editors."""
    from caesar_server.mock.files.schema import fixtures_schema

    print_json(fixtures_schema())


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
