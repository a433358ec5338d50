"""Streams from an asynchronous library; its event loop runs in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterator
from concurrent.futures import CancelledError
from contextlib import closing
from dataclasses import dataclass
from importlib import import_module
from typing import TypeVar

from caesar_server.contract import (
    Backend,
    BackendUnavailableError,
    Capabilities,
    Completed,
    CompletionRequest,
    Context,
    Event,
    InvalidRequestError,
    Request,
    choice_events,
    option,
)

T = TypeVar("T")


@dataclass(frozen=True)
class AsyncOptions:
    """What an operator may set."""

    module: str = option(help="Module of the library.")
    function: str = option(
        "stream", help="Its async generator, which takes a prompt and yields pieces of text."
    )


class AsyncBackend(Backend):
    """One loop for all runs: clients of such libraries keep their connections with a loop."""

    capabilities = Capabilities(accepts=frozenset({"completion"}), stop=True)
    options_schema = AsyncOptions
    options: AsyncOptions

    def open(self) -> None:
        """Import the library and start the loop."""
        module = import_module(self.options.module)
        self._stream: Callable[[str], AsyncGenerator[str, None]]
        self._stream = getattr(module, self.options.function)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="async library")
        self._thread.start()

    def run(self, request: Request, context: Context) -> Iterator[Event]:
        """Pass on what the library yields, prompt by prompt."""
        if not isinstance(request, CompletionRequest):
            raise InvalidRequestError("takes completion requests only", param=None)
        for choice, prompt in enumerate(request.prompts):
            if not isinstance(prompt, str):
                raise InvalidRequestError("takes text, not token ids", param="prompt")
            # closing: a stop sequence ends the choice before the library has said all.
            with closing(self._pieces(prompt, context)) as pieces:
                yield from choice_events(pieces, context, request.sampling, choice=choice)
        yield Completed()

    def _pieces(self, prompt: str, context: Context) -> Generator[str, None, None]:
        """Yield what the library yields, and let it clean up however the run ends."""
        pieces = self._stream(prompt)
        try:
            while (piece := self._wait_for(self._next(pieces, context), context)) is not None:
                yield piece
        finally:
            asyncio.run_coroutine_threadsafe(pieces.aclose(), self._loop).result()

    async def _next(self, pieces: AsyncGenerator[str, None], context: Context) -> str | None:
        """Return the next piece, or None after the last."""
        waiting = asyncio.ensure_future(anext(pieces, None))
        # The callback comes from another thread, which must not touch the task itself.
        with context.on_cancel(lambda: self._loop.call_soon_threadsafe(waiting.cancel)):
            return await waiting

    def _wait_for(self, coroutine: Coroutine[None, None, T], context: Context) -> T:
        """Return what a coroutine returns in the loop; this thread waits."""
        try:
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()
        except CancelledError:
            context.raise_if_cancelled()
            raise BackendUnavailableError("the library gave up") from None
        except Exception as error:
            context.logger.exception("the library failed")
            raise BackendUnavailableError("the library failed") from error

    def close(self) -> None:
        """End the loop; no run is under way."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
