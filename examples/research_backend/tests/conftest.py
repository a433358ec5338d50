from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from caesar_backend_folder import FolderBackend, FolderOptions
from caesar_server.contract import Event, FollowUpRequest, ResearchParameters, ResearchRequest
from caesar_server.contract.context import StoredFile, Update
from caesar_server.testing import collect_events, make_context

Ask = Callable[..., list[Event]]
Store = Callable[..., StoredFile]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Return an uploaded file; its name is its id, too."""

    def store(name: str, content: str | bytes, content_type: str = "text/plain") -> StoredFile:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return StoredFile(name, name, content_type, path.stat().st_size, path)

    return store


@pytest.fixture
def ask() -> Ask:
    """Return the events for a question or a follow-up.

    ``updates`` are what each look for them finds; other keywords are parameters of the request.
    """

    def ask(
        question: str | FollowUpRequest,
        *files: StoredFile,
        all_files: Mapping[str, StoredFile] | None = None,
        options: Mapping[str, object] | None = None,
        collections: Mapping[str, Sequence[StoredFile]] | None = None,
        updates: Sequence[Sequence[Update]] = (),
        **parameters: object,
    ) -> list[Event]:
        backend = FolderBackend(FolderOptions(**options or {}))
        backend.open()
        left = iter(updates)
        context = make_context(
            files={file.id: file for file in files} if all_files is None else all_files,
            collections=collections,
            updates=lambda: next(left, ()),
        )
        request = question
        if isinstance(question, str):
            request = ResearchRequest(query=question, parameters=ResearchParameters(**parameters))
        try:
            return collect_events(backend, request, context)
        finally:
            backend.close()

    return ask
