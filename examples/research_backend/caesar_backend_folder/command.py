"""``caesar-server folder-passages``: what the backend would find."""

from __future__ import annotations

import click

from caesar_backend_folder.search import Index, folder_passages
from caesar_server.contract import OptionsReader


@click.command()
@click.argument("question")
@click.pass_obj
def passages(options_of: OptionsReader, question: str) -> None:
    """List the passages of the folder that fit QUESTION, with their scores."""
    options = options_of("folder")
    index = Index.of(folder_passages(options.path, options.max_file_bytes))
    for hit in index.search(question, options.max_sources):
        click.echo(f"{hit.score:.2f}  {hit.passage.id}  {hit.passage.text[:60]}")
