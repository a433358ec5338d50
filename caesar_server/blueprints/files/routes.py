"""The routes below ``/research/files`` and ``/research/collections``, and agents' uploads."""

from __future__ import annotations

from flask import Blueprint

from caesar_server.blueprints.files.collections import (
    create_research_collection,
    delete_research_collection,
    list_research_collections,
    retrieve_research_collection,
    update_research_collection,
)
from caesar_server.blueprints.files.content import retrieve_research_file_content
from caesar_server.blueprints.files.files import (
    create_agent_file,
    create_research_file,
    delete_research_file,
    list_research_files,
    retrieve_research_file,
)


def create_blueprint() -> Blueprint:
    """Return the surface."""
    blueprint = Blueprint("files", __name__)
    blueprint.post("/research/files")(create_research_file)
    blueprint.post("/agents/files")(create_agent_file)
    blueprint.get("/research/files")(list_research_files)
    blueprint.get("/research/files/<id:file_id>")(retrieve_research_file)
    blueprint.delete("/research/files/<id:file_id>")(delete_research_file)
    blueprint.get("/research/files/<id:file_id>/content")(retrieve_research_file_content)
    blueprint.post("/research/collections")(create_research_collection)
    blueprint.get("/research/collections")(list_research_collections)
    blueprint.get("/research/collections/<id:collection_id>")(retrieve_research_collection)
    blueprint.patch("/research/collections/<id:collection_id>")(update_research_collection)
    blueprint.delete("/research/collections/<id:collection_id>")(delete_research_collection)
    return blueprint
