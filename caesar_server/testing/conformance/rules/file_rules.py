"""Rules about the files of a request."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from caesar_server.contract import ChatRequest, Message, Part, Request, ResearchRequest
from caesar_server.contract.context import StoredFile
from caesar_server.testing.conformance.answer import Run
from caesar_server.testing.conformance.driver import Given
from caesar_server.testing.conformance.questions import QUESTION
from caesar_server.testing.conformance.resources import Resources, left_since
from caesar_server.testing.conformance.rule import Fail, Inapplicable, Outcome, Pass, rule
from caesar_server.testing.conformance.subject import Subject

_ID = "conformance-file"
_TEXT = b"The sky is blue because air scatters blue light more than red.\n"
#: No text in any common encoding, and no beginning of a known file format.
_NOISE = bytes(range(256)) * 16


class _Files(Mapping[str, StoredFile]):
    """The files of a request; knows whether anybody looked at one."""

    def __init__(self, file: StoredFile) -> None:
        self._file = file
        self.looked_at = False

    def __getitem__(self, id: str) -> StoredFile:
        if id != self._file.id:
            raise KeyError(id)
        self.looked_at = True
        return self._file

    def __iter__(self) -> Iterator[str]:
        return iter((self._file.id,))

    def __len__(self) -> int:
        return 1


@dataclass(frozen=True, slots=True)
class _FileRun:
    """A run of a request with a file.

    :param looked_at: whether the backend took the file out of ``context.files``.
    :param left: what is still open afterwards, in words, or nothing.
    """

    run: Run
    looked_at: bool
    left: str


def _requests(subject: Subject) -> list[Request]:
    """Return a request with a file of each kind that may have one."""
    able = subject.capabilities
    if not able.files:
        raise Inapplicable("it does not declare files")
    found: list[Request] = []
    if "chat" in able.accepts:
        parts = (Part(text=QUESTION), Part(file_id=_ID, filename="sky.txt"))
        found.append(ChatRequest(messages=(Message(role="user", parts=parts),)))
    if "research" in able.accepts:
        found.append(ResearchRequest(query=QUESTION, file_ids=(_ID,)))
    if not found:
        raise Inapplicable("it takes neither chats nor research, which files belong to")
    return found


def _ask(subject: Subject, request: Request, content: bytes) -> tuple[_FileRun, bytes | None]:
    """Run a request with a file of this content; also return what it holds afterwards."""
    with _stored(content) as file:
        before = Resources.now()
        files = _Files(file)
        run = subject.ask(request, given=Given(files=files))
        left = left_since(before)
        after = file.path.read_bytes() if file.path.is_file() else None
    return _FileRun(run, files.looked_at, left), after


@contextmanager
def _stored(content: bytes) -> Iterator[StoredFile]:
    with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
        path = Path(folder, "stored")
        path.write_bytes(content)
        yield StoredFile(_ID, "sky.txt", "text/plain", len(content), path)


@rule(
    "files.read",
    "The caller uploaded it to be read; an answer without it looks like one with it.",
    needs=("run.accepts",),
)
def read(subject: Subject) -> Outcome:
    """A request with a text file is answered, and the file is looked at."""
    for request in _requests(subject):
        seen, _ = _ask(subject, request, _TEXT)
        if not seen.run.completed:
            return Fail(f"in a {request.type} run with a file: {seen.run.end}", "an answer")
        if not seen.looked_at:
            return Fail(
                f"in a {request.type} run: nobody looked at the file", "a look into context.files"
            )
    return Pass()


@rule(
    "files.untouched",
    "The file belongs to the caller and to other jobs; what stays open cannot be deleted.",
    needs=("files.read",),
)
def untouched(subject: Subject) -> Outcome:
    """After the run the file is as it was, and closed."""
    for request in _requests(subject):
        seen, after = _ask(subject, request, _TEXT)
        if after != _TEXT:
            what = "is gone" if after is None else "was changed"
            return Fail(f"in a {request.type} run: the file {what}", "the file as it was")
        if seen.left:
            return Fail(f"a {request.type} run left {seen.left}", "nothing")
    return Pass()


@rule(
    "files.any_bytes",
    "Callers upload anything; the name and the content type are only what they say.",
    needs=("files.read",),
)
def any_bytes(subject: Subject) -> Outcome:
    """A file that is no text is answered, or refused with a typed error."""
    for request in _requests(subject):
        seen, _ = _ask(subject, request, _NOISE)
        if seen.run.untyped is not None:
            return Fail(
                f"in a {request.type} run with bytes that are no text: {seen.run.end}",
                "a BackendError or an answer",
            )
    return Pass()
