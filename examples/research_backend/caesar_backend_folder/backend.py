"""The backend: what it can do, and who answers which request."""

from __future__ import annotations

from collections.abc import Iterator

from caesar_backend_folder.follow_up import follow_up
from caesar_backend_folder.options import FolderOptions
from caesar_backend_folder.reading import folder_documents, is_excluded
from caesar_backend_folder.research import Research
from caesar_backend_folder.search import Index
from caesar_server.contract import (
    Backend,
    BackendUnavailableError,
    Capabilities,
    Context,
    Event,
    FollowUpRequest,
    Health,
    InvalidRequestError,
    Request,
    ResearchRequest,
)


class FolderBackend(Backend):
    """Answers with sentences of the files, each with the number of its source."""

    capabilities = Capabilities(
        # The server turns prompts and chats into questions.
        accepts=frozenset({"research", "follow_up"}),
        prompts=False,
        files=True,
        citations=True,
    )
    options_schema = FolderOptions
    options: FolderOptions
    _index: Index | None = None

    def open(self) -> None:
        """Read the folder.  Files that change later are seen after the next start."""
        folder, options = self.options.path, self.options
        if not folder.is_dir():
            raise BackendUnavailableError(f"there is no folder {folder}")
        documents = folder_documents(folder, options.base_url, options.max_file_bytes)
        self._index = Index().plus(documents)

    def run(self, request: Request, context: Context) -> Iterator[Event]:
        """Answer a question, or a further one about an earlier answer."""
        if isinstance(request, FollowUpRequest):
            return follow_up(request, context, self.options.max_sources)
        if not isinstance(request, ResearchRequest):
            raise InvalidRequestError("folder takes research and follow-ups only", param=None)
        if self._index is None:
            raise BackendUnavailableError("the folder has not been read")
        excluded = is_excluded(self.options.base_url, request.parameters.excluded_domains)
        index = Index() if excluded else self._index
        return Research(request, context, index, self.options).run()

    def health(self) -> Health:
        """Tell whether there is anything to find."""
        if self._index is not None and not self._index.passages:
            return Health("degraded", f"there is no text in {self.options.path}")
        return Health()

    def close(self) -> None:
        """Forget the index."""
        self._index = None
