"""``caesar-server models``: what is in the model files, and which cannot be served."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from caesar_backend_local_llm.gguf_files import (
    ModelFile,
    UnusableFileError,
    format_size,
    is_later_part,
    read_model_file,
)
from caesar_server.contract import OptionsReader

_HEAD = ("MODEL", "SIZE", "PARAMETERS", "ARCHITECTURE", "CONTEXT", "QUANTISATION", "TEMPLATE")
_NONE = """\
no model is configured; name a file in caesar-server.toml:

    [backends.local_llm.models.NAME]
    path = "/path/to/model.gguf"
"""


@dataclass(frozen=True, slots=True)
class _Listed:
    """A model of the settings, or a file of the command line.

    :param name: as requests name it, or the file's name.
    :param file: None if it cannot be served.
    :param problem: why not; None if it can.
    """

    name: str
    path: str
    file: ModelFile | None = None
    problem: str | None = None

    def row(self) -> Sequence[str]:
        """Return what the table shows of it."""
        if self.file is None:
            return (self.name, *("-" for _ in _HEAD[1:]))
        return (
            self.name,
            format_size(self.file.size_bytes),
            _millions(self.file.parameters),
            self.file.architecture,
            str(self.file.context or "-"),
            self.file.quantisation,
            "yes" if self.file.chat_template else "no",
        )

    def to_json(self) -> dict[str, Any]:
        """Return all that is known of it; sizes in bytes, the context in tokens."""
        facts = None
        if self.file is not None:
            facts = {
                "name": self.file.name,
                "size_bytes": self.file.size_bytes,
                "parameters": self.file.parameters,
                "architecture": self.file.architecture,
                "context": self.file.context,
                "quantisation": self.file.quantisation,
                "chat_template": self.file.chat_template,
                "parts": [str(part) for part in self.file.parts],
            }
        return {"model": self.name, "path": self.path, "file": facts, "problem": self.problem}


@click.command(short_help="Tell what is in the files of local models.")
@click.argument("files", nargs=-1, metavar="[FILE|FOLDER]...")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def models(options_of: OptionsReader, files: tuple[str, ...], as_json: bool) -> None:
    """Tell what is in the files of the configured models, or in those that are named.

    Only the beginning of a file is read, and nothing is loaded.  Exit status 1 means that a file
    cannot be served.
    """
    listed = list(_named(files) if files else _configured(options_of))
    if as_json:
        click.echo(json.dumps({"models": [one.to_json() for one in listed]}, indent=2))
    elif listed:
        click.echo("\n".join(_lines(listed)))
    else:
        click.echo(_NONE, nl=False)
    if any(one.problem for one in listed):
        raise click.exceptions.Exit(1)


def _configured(options_of: OptionsReader) -> Iterator[_Listed]:
    for name, model in options_of("local_llm").models.items():
        yield _listed(f"local_llm/{name}", model.path)


def _named(files: Sequence[str]) -> Iterator[_Listed]:
    for text in files:
        folder = Path(text)
        if not folder.is_dir():
            yield _listed(folder.name, text)
            continue
        for path in sorted(folder.glob("*.gguf")):
            if not is_later_part(path):
                yield _listed(path.name, str(path))


def _listed(name: str, path: str) -> _Listed:
    try:
        return _Listed(name, path, read_model_file(path))
    except UnusableFileError as error:
        return _Listed(name, path, problem=str(error))


def _lines(listed: Sequence[_Listed]) -> Iterator[str]:
    """Yield a table, with the problem of a file below its row."""
    rows = [_HEAD, *(one.row() for one in listed)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row, problem in zip(rows, (None, *(one.problem for one in listed)), strict=True):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()
        if problem:
            yield f"    problem: {problem}"


def _millions(count: int) -> str:
    """Return a number of parameters as models are called: ``135M``, ``7.2B``."""
    for size, letter in ((10**9, "B"), (10**6, "M"), (10**3, "K")):
        if count >= 0.9995 * size:
            scaled = count / size
            return f"{scaled:.1f}{letter}" if scaled < 9.95 else f"{scaled:.0f}{letter}"
    return str(count)
