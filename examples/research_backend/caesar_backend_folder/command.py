"""``caesar-server folder-passages``: what the backend would find."""

from __future__ import annotations

import click

from caesar_backend_folder.reading import folder_documents
from caesar_backend_folder.search import Index
from caesar_server.contract import OptionsReader


@click.command()
@click.argument("question")
@click.pass_obj
def passages(options_of: OptionsReader, question: str) -> None:
    """List the passages of the folder that fit QUESTION, with their scores."""
    options = options_of("folder")
    documents = folder_documents(options.path, options.base_url, options.max_file_bytes)
    for hit in Index().plus(documents).search(question)[: options.max_sources]:
        click.echo(f"{hit.score:.2f}  {hit.passage.id}  {hit.passage.text[:60]}")
