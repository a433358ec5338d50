"""Which files and collections a request names."""

from __future__ import annotations

from caesar_server.contract.request import (
    ChatRequest,
    CompletionRequest,
    Request,
    ResearchRequest,
)


def file_ids_of(request: Request) -> tuple[str, ...]:
    """Return the ids of the files that a request names, each once, in their order."""
    if isinstance(request, ResearchRequest):
        found = request.file_ids
    elif isinstance(request, ChatRequest):
        found = tuple(
            part.file_id
            for message in request.messages
            for part in message.parts
            if part.file_id is not None
        )
    else:
        return ()
    return tuple(dict.fromkeys(found)) if found else ()


def collection_ids_of(request: Request) -> tuple[str, ...]:
    """Return the ids of the collections that a request names, likewise."""
    if isinstance(request, (CompletionRequest, ChatRequest, ResearchRequest)):
        named = request.parameters.collection_ids
        return tuple(dict.fromkeys(named)) if named else ()
    return ()
