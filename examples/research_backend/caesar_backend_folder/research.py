"""One run of research: look for passages loop by loop, listen to the caller, then write."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator

from caesar_backend_folder.answers import answer_of, numbered, result_of, told
from caesar_backend_folder.options import FolderOptions
from caesar_backend_folder.reading import NoTextError, uploaded_document
from caesar_backend_folder.search import Document, Hit, Index
from caesar_server.contract import (
    Completed,
    Context,
    Event,
    InvalidRequestError,
    LoopFinished,
    ProgressNoted,
    ResearchRequest,
    SourceStored,
    Started,
    StatusChanged,
)
from caesar_server.contract.context import StoredFile, Update

#: Where the caller leaves it to the backend.
_AUTO_LOOPS = 3
_POLL_S = 0.1
#: What fits worse, next to the best, is not cited: most likely it is about something else.
_LEAST_SCORE = 0.25


class Research:
    """What a run knows so far; of one thread.

    :param index: the passages that are there without the caller's files.
    """

    def __init__(
        self, request: ResearchRequest, context: Context, index: Index, options: FolderOptions
    ) -> None:
        auto = request.parameters.auto
        self._loops = _AUTO_LOOPS if auto else request.parameters.reasoning_loops
        self._may_stop = auto or request.parameters.allow_early_exit
        self._question = request.query
        self._context = context
        self._index = index
        self._options = options
        self._read: set[str] = set()
        self._told: set[str] = set()

    def run(self) -> Iterator[Event]:
        """Yield statuses, sources and the answer."""
        yield from self._add_files()
        yield Started({"passages": len(self._index.passages)})
        loop = 0
        while loop < self._loops and not (self._may_stop and self._is_answered(loop)):
            yield from self._hear(self._options.listen_s if loop else 0)
            yield from self._look()
            # What was said meanwhile is taken up at once: this may be the last loop.
            while (yield from self._hear()):
                yield from self._look()
            loop += 1
            yield LoopFinished(loop)
        yield from self._write()
        reason = "answered" if self._read else "nothing_found"
        yield Completed({"stopped_because": reason, "loops_consumed": loop})

    def _add_files(self) -> Iterator[Event]:
        """Read the caller's files: all that are named, and of collections those that are text."""
        documents: dict[str, Document] = {}
        for file in self._context.files.values():
            documents[file.id] = self._document(file)
        for files in self._context.collections.values():
            for file in files:
                try:
                    documents[file.id] = self._document(file)
                except InvalidRequestError as error:
                    yield ProgressNoted(f"Leaving out {error.message}")
        self._index = self._index.plus(documents.values())

    def _document(self, file: StoredFile) -> Document:
        self._context.raise_if_cancelled()
        try:
            return uploaded_document(file, self._options.max_file_bytes)
        except NoTextError as error:
            raise InvalidRequestError(
                f"{file.name}: {error}; folder reads text, Markdown and HTML", param="files"
            ) from None

    def _hear(self, wait_s: float = 0) -> Generator[Event, None, bool]:
        """Take up what the caller said, after waiting so long for it; return whether it was any."""
        clock = self._context.clock
        until = clock.monotonic() + wait_s
        while not (said := self._context.updates()) and clock.monotonic() < until:
            self._context.sleep(_POLL_S)
        for update in said:
            yield ProgressNoted(f"Taking up: {update.content}")
            yield from self._take_up(update)
        return bool(said)

    def _take_up(self, update: Update) -> Iterator[Event]:
        """Look for the words of an update, too, and in its files."""
        self._question = f"{self._question} {update.content}"
        known = {passage.document.id for passage in self._index.passages}
        for file_id in update.file_ids:
            if file_id in known:
                continue
            try:
                document = self._document(self._context.files[file_id])
            except InvalidRequestError as error:
                # A job that has come so far does not fail for it.
                yield ProgressNoted(f"Leaving out {error.message}")
            else:
                self._index = self._index.plus([document])

    def _look(self) -> Iterator[Event]:
        """Read the best passages that were not read yet."""
        yield StatusChanged("searching", f"Searching {len(self._index.passages)} passages")
        found = [hit for hit in self._hits() if hit.passage.id not in self._read]
        if found:
            yield StatusChanged("analyzing", f"{len(found)} passages fit")
        for hit in found[: self._options.max_sources]:
            self._context.raise_if_cancelled()
            self._read.add(hit.passage.id)
            yield from self._source(hit)

    def _source(self, hit: Hit) -> Iterator[Event]:
        """Tell a document when the first of its passages is read."""
        document = hit.passage.document
        if document.id in self._told:
            return
        self._told.add(document.id)
        yield ProgressNoted(f"Reading {document.title}")
        yield result_of(document, hit.score)
        yield SourceStored(document.id, raw=document.raw, markdown=document.markdown)

    def _hits(self) -> list[Hit]:
        return self._index.search(self._question)

    def _is_answered(self, loop: int) -> bool:
        """Return whether another loop would find nothing that the question asks for."""
        return loop > 0 and not self._index.missing(self._question, self._read)

    def _write(self) -> Iterator[Event]:
        """Write the answer from what was read, in the light of all that was said."""
        read = [hit for hit in self._hits() if hit.passage.id in self._read]
        hits = [hit for hit in read if hit.score >= _LEAST_SCORE]
        if not hits:
            yield from told("Nothing in the files fits this question.", self._context)
            return
        yield StatusChanged("summarizing", f"Writing from {len(self._told)} sources")
        numbers = numbered(hits)
        for document, score in _best(hits):
            # Told again with its number, before the text that has [number] in it.
            yield result_of(document, score, numbers[document.id])
        yield from told(answer_of(hits, self._question, numbers), self._context)


def _best(hits: Iterable[Hit]) -> Iterator[tuple[Document, float]]:
    """Yield each document once, with the score of its best passage."""
    seen: set[str] = set()
    for hit in hits:
        document = hit.passage.document
        if document.id not in seen:
            seen.add(document.id)
            yield document, hit.score
