"""Calls a library that blocks and cannot be interrupted, and that is not safe for threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module

from caesar_server.contract import (
    Backend,
    BackendUnavailableError,
    Capabilities,
    Completed,
    CompletionRequest,
    Context,
    Event,
    InvalidRequestError,
    RateLimitedError,
    Request,
    choice_events,
    option,
    split_words,
)


@dataclass(frozen=True)
class LibraryOptions:
    """What an operator may set."""

    module: str = option("html", help="Module of the library.")
    function: str = option("escape", help="Function that turns a prompt into a text.")
    max_waiting: int = option(
        64, help="Most prompts that wait for the library.", minimum=1, maximum=10_000
    )


class LibraryBackend(Backend):
    """One thread of its own calls the library; the threads of runs only wait for it."""

    capabilities = Capabilities(
        accepts=frozenset({"completion"}), max_tokens=True, stop=True, cpu_bound=True
    )
    options_schema = LibraryOptions
    options: LibraryOptions

    def open(self) -> None:
        """Import the library, which may take long, and start the thread."""
        module = import_module(self.options.module)
        self._call: Callable[[str], str] = getattr(module, self.options.function)
        # A single worker: the library is never called twice at once.
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="library")
        self._room = threading.Semaphore(self.options.max_waiting)

    def run(self, request: Request, context: Context) -> Iterator[Event]:
        """Wait for the library, prompt by prompt."""
        if not isinstance(request, CompletionRequest):
            raise InvalidRequestError("takes completion requests only", param=None)
        for choice, prompt in enumerate(request.prompts):
            if not isinstance(prompt, str):
                raise InvalidRequestError("takes text, not token ids", param="prompt")
            text = self._ask(prompt, context)
            yield from choice_events(split_words(text), context, request.sampling, choice=choice)
        yield Completed()

    def _ask(self, prompt: str, context: Context) -> str:
        """Return what the library says.

        After a cancel nobody waits any more.  A call that has begun runs to its end, for the
        library has no way to stop it; one that still waits for its turn is taken back.
        """
        if not self._room.acquire(blocking=False):
            raise RateLimitedError("too many prompts are waiting for the library")
        future: Future[str] = self._pool.submit(self._call, prompt)
        future.add_done_callback(lambda _: self._room.release())
        ended = threading.Event()
        future.add_done_callback(lambda _: ended.set())
        # Woken by the result or by a cancel, whichever comes first; no polling.
        with context.on_cancel(ended.set):
            ended.wait()
        if context.cancelled:
            future.cancel()
        context.raise_if_cancelled()
        try:
            return future.result()
        except Exception as error:
            context.logger.exception("the library failed")
            raise BackendUnavailableError("the library failed") from error

    def close(self) -> None:
        """End the thread, after the call that it is at."""
        self._pool.shutdown(cancel_futures=True)
