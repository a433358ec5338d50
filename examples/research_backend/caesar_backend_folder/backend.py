"""The run: search, choose, write, with progress and sources on the way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from urllib.parse import quote

from caesar_backend_folder.search import (
    Hit,
    Index,
    Passage,
    best_sentence,
    folder_passages,
    passages_of,
)
from caesar_server.contract import (
    Backend,
    BackendUnavailableError,
    Capabilities,
    ChoiceFinished,
    Completed,
    ContentDelta,
    Context,
    Event,
    Health,
    InvalidRequestError,
    LoopFinished,
    ProgressNoted,
    Request,
    ResearchRequest,
    ResultFound,
    SourceStored,
    Started,
    StatusChanged,
    option,
    split_words,
)

SAMPLE = Path(__file__).parent / "sample"
#: Begins the sources that are the caller's own files.
_UPLOADED = "upload:"


@dataclass(frozen=True)
class FolderOptions:
    """What an operator may set under ``[backends.folder]``."""

    folder: str | None = option(
        None, help="Folder whose .txt files are searched; unset: a small sample.", example="notes"
    )
    base_url: str = option(
        "file:", help="What the URL of a source begins with; its path in the folder follows."
    )
    max_sources: int = option(5, help="Most sources of an answer.", minimum=1, maximum=50)
    max_file_bytes: int = option(
        1_000_000, help="Longer files are left out.", unit="bytes", minimum=1, maximum=100_000_000
    )

    @property
    def path(self) -> Path:
        """The folder."""
        return SAMPLE if self.folder is None else Path(self.folder)


class FolderBackend(Backend):
    """Answers with sentences of the files, each with the number of its source."""

    capabilities = Capabilities(
        # The server turns prompts and chats into questions.
        accepts=frozenset({"research"}),
        prompts=False,
        files=True,
        citations=True,
    )
    options_schema = FolderOptions
    options: FolderOptions
    _index: Index | None = None

    def open(self) -> None:
        """Read the folder.  Files that change later are seen after the next start."""
        folder = self.options.path
        if not folder.is_dir():
            raise BackendUnavailableError(f"there is no folder {folder}")
        self._index = Index.of(folder_passages(folder, self.options.max_file_bytes))

    def run(self, request: Request, context: Context) -> Iterator[Event]:
        """Yield statuses, results and the answer."""
        if not isinstance(request, ResearchRequest):
            raise InvalidRequestError("folder takes research requests only", param=None)
        index = self._index_for(context)
        yield Started({"passages": len(index.passages)})

        yield StatusChanged("searching", f"Searching {len(index.passages)} passages")
        hits = index.search(request.query, self.options.max_sources)
        for hit in hits:
            context.raise_if_cancelled()
            yield self._result(hit)
            yield SourceStored(hit.passage.id, raw=hit.passage.text, markdown=hit.passage.text)
        yield LoopFinished(1)
        if not hits:
            yield from _told("Nothing in the files fits this question.", context)
            yield Completed({"stopped_because": "nothing_found", "loops_consumed": 1})
            return

        yield StatusChanged("analyzing", f"Reading {len(hits)} sources")
        sentences: list[str] = []
        for number, hit in enumerate(hits, 1):
            yield ProgressNoted(f"Reading {hit.passage.title}")
            sentences.append(f"{best_sentence(hit.passage, request.query)} [{number}]")
            # Told again with its number, before the text that has [number] in it.
            yield self._result(hit, citation_index=number)

        yield StatusChanged("summarizing")
        yield from _told(" ".join(sentences), context)
        yield Completed({"stopped_because": "answered", "loops_consumed": 1})

    def _index_for(self, context: Context) -> Index:
        """Return the index; where the caller uploaded files, of these beside the folder's."""
        if self._index is None:
            raise BackendUnavailableError("the folder has not been read")
        if not context.files:
            return self._index
        return Index.of(chain(self._index.passages, _uploaded(context)))

    def _result(self, hit: Hit, citation_index: int | None = None) -> ResultFound:
        passage = hit.passage
        uploaded = passage.source.startswith(_UPLOADED)
        url = passage.source if uploaded else f"{self.options.base_url}{quote(passage.source)}"
        return ResultFound(passage.id, passage.title, url, round(hit.score, 4), citation_index)

    def health(self) -> Health:
        """Tell whether there is anything to find."""
        if self._index is not None and not self._index.passages:
            return Health("degraded", f"there is no text in {self.options.path}")
        return Health()

    def close(self) -> None:
        """Forget the index."""
        self._index = None


def _uploaded(context: Context) -> Iterator[Passage]:
    """Yield the passages of the caller's own files."""
    for file in context.files.values():
        try:
            text = file.path.read_text("utf-8")
        except UnicodeDecodeError:
            raise InvalidRequestError(
                f"{file.name} is no UTF-8 text; folder reads text files only", param="files"
            ) from None
        yield from passages_of(f"{_UPLOADED}{file.id}", file.name, text)


def _told(text: str, context: Context) -> Iterator[Event]:
    """Yield a text word by word, and its end."""
    for word in split_words(text):
        context.raise_if_cancelled()
        yield ContentDelta(word)
    yield ChoiceFinished()
