"""Runs a program for each prompt and streams what it prints."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import IO

from caesar_server.contract import (
    Backend,
    BackendError,
    BackendUnavailableError,
    Capabilities,
    Completed,
    CompletionRequest,
    Context,
    Event,
    IncrementalUtf8,
    InvalidRequestError,
    Request,
    choice_events,
    option,
    split_words,
)


@dataclass(frozen=True)
class ProgramOptions:
    """What an operator may set."""

    command: tuple[str, ...] = option(
        ("tr", "a-z", "A-Z"), help="Program and arguments; the prompt is its standard input."
    )


class ProgramBackend(Backend):
    """A word of its output is a delta and a token."""

    capabilities = Capabilities(
        accepts=frozenset({"completion"}), n=True, max_tokens=True, stop=True
    )
    options_schema = ProgramOptions
    options: ProgramOptions

    def run(self, request: Request, context: Context) -> Iterator[Event]:
        """Run the program once for each choice."""
        if not isinstance(request, CompletionRequest):
            raise InvalidRequestError("takes completion requests only", param=None)
        for position, prompt in enumerate(request.prompts):
            if not isinstance(prompt, str):
                raise InvalidRequestError("takes text, not token ids", param="prompt")
            for k in range(request.sampling.n):
                choice = position * request.sampling.n + k
                # closing: with max_tokens or stop the program is ended before it has said all.
                with closing(self._words(prompt, context)) as words:
                    yield from choice_events(words, context, request.sampling, choice=choice)
        yield Completed()

    def _words(self, prompt: str, context: Context) -> Generator[str, None, None]:
        """Yield the words that the program prints, each with the space before it."""
        # Files, not pipes, for what goes in and for its complaints: a full pipe would hold up both.
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as complaints:
            given.write(prompt.encode("utf-8", errors="replace"))
            given.seek(0)
            with closing(_pieces(self._start(given, complaints), context, complaints)) as pieces:
                yield from _words_of(pieces)

    def _start(self, given: IO[bytes], complaints: IO[bytes]) -> subprocess.Popen[bytes]:
        try:
            # No shell, and the prompt is no argument: nothing in it can become a command.
            return subprocess.Popen(  # noqa: S603 - the command is the operator's own
                self.options.command,
                stdin=given,
                stdout=subprocess.PIPE,
                stderr=complaints,
                start_new_session=True,
            )
        except OSError as error:
            raise BackendUnavailableError("the program cannot be started") from error


def _pieces(
    process: subprocess.Popen[bytes], context: Context, complaints: IO[bytes]
) -> Generator[str, None, None]:
    """Yield what the program prints as it comes; whatever happens, the program is over then."""
    decoder = IncrementalUtf8()
    try:
        assert process.stdout is not None  # noqa: S101 - tells the type checker; it is a pipe
        # read1() cannot poll; a killed program's pipe ends at once.
        with context.on_cancel(lambda: _kill(process)):
            while data := os.read(process.stdout.fileno(), 65536):
                yield decoder.feed(data)
            status = process.wait()
        context.raise_if_cancelled()
        yield decoder.finish()
        if status != 0:
            complaints.seek(0)
            context.logger.error("the program failed: %r", complaints.read(2000))
            raise BackendError(f"the program ended with status {status}")
    finally:
        _kill(process)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End the program and what it has started, unless it is over."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)


def _words_of(pieces: Iterator[str]) -> Iterator[str]:
    """Cut pieces that end anywhere into words; one that may go on is held back."""
    rest = ""
    for piece in pieces:
        words = list(split_words(rest + piece))
        rest = words.pop() if words and not piece[-1:].isspace() else ""
        yield from words
    if rest:
        yield rest
