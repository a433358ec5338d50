"""Who is asked, how often, and who next: until one server has begun to answer."""

from __future__ import annotations

import random
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import Any

from caesar_backend_upstream.catalog import Catalog
from caesar_backend_upstream.exchange import answer_events, calling
from caesar_backend_upstream.hedge import first_to_begin
from caesar_backend_upstream.native import native_events
from caesar_backend_upstream.options import UpstreamOptions
from caesar_backend_upstream.servers import RetryBudget, Server, in_order
from caesar_backend_upstream.wire.asks import asks_for
from caesar_backend_upstream.wire.failures import UpstreamFailure
from caesar_server.contract import (
    BackendUnavailableError,
    ChatRequest,
    Completed,
    CompletionRequest,
    Context,
    Event,
    InvalidRequestError,
    Request,
    ResearchRequest,
    count_words,
)

#: The first pause before asking again is up to so long; each further one up to twice as long.
_FIRST_PAUSE_S = 0.25
_LONGEST_PAUSE_S = 8.0


class Attempts:
    """Answers requests with the servers that there are.  Safe for threads."""

    def __init__(
        self, servers: Sequence[Server], catalog: Catalog, options: UpstreamOptions
    ) -> None:
        self._servers = servers
        self._catalog = catalog
        self._options = options
        self._budget = RetryBudget(options.retry_budget)
        # Not the run's: requests with one seed would all go to one server, at one time.
        self._chance = random.Random()
        self._record_folder = options.record_folder

    def events(self, request: Request, context: Context) -> Iterator[Event]:
        """Yield the events of a request's answer.

        :raises UpstreamFailure: if no server answers, or one leaves off in the middle.
        :raises InvalidRequestError: if there is no server for it, or it can be asked of none.
        """
        candidates = self._candidates(request)
        self._budget.add_request()
        for pause in range(self._options.retries + 1):
            again: list[Server] = []
            failure: UpstreamFailure | None = None
            for group in self._groups(candidates):
                try:
                    begun = self._begun(group, request, context)
                except UpstreamFailure as error:
                    if not error.elsewhere:
                        raise
                    failure = error
                    again += group if error.error.transient else ()
                    continue
                with closing(begun) as events:
                    yield from events
                return
            if failure is None:
                raise BackendUnavailableError("No upstream server was asked")
            self._pause(failure, pause, again, context)
            candidates = again

    def _candidates(self, request: Request) -> list[Server]:
        if not self._servers:
            raise BackendUnavailableError(
                "No upstream server is configured; set backends.upstream.servers.NAME.url"
            )
        found = [server for server in self._servers if server.answers_for(request.model)]
        if not found:
            raise InvalidRequestError(
                f"model: no upstream server answers for {request.model[:100]!r}",
                param="model",
                code="model_not_found",
            )
        if isinstance(request, ChatRequest) and (media := request.media):
            found = [server for server in found if server.options.passes_chats]
            if not found:
                place = media[0][0]
                raise InvalidRequestError(
                    f"{place}: the upstream servers of this model are asked for completions or "
                    "research, which have no images and no audio; leave this part out",
                    param=place,
                    code="unsupported_parameter",
                )
        return found

    def _groups(self, candidates: Sequence[Server]) -> Iterator[list[Server]]:
        """Yield the servers in order, one by one; in pairs where they race."""
        ordered = list(in_order(candidates, self._options.order, self._chance))
        size = 1 if self._options.hedge_after_s is None else 2
        for start in range(0, len(ordered), size):
            yield ordered[start : start + size]

    def _begun(
        self, group: Sequence[Server], request: Request, context: Context
    ) -> Generator[Event, None, None]:
        """Return the events of a server that has begun to answer."""
        if len(group) == 1 or self._options.hedge_after_s is None:
            return _after_first(self._attempt(group[0], request, context))
        return first_to_begin(
            [partial(self._attempt, server, request) for server in group],
            context,
            self._options.hedge_after_s,
        )

    def _pause(
        self, failure: UpstreamFailure, number: int, again: Sequence[Server], context: Context
    ) -> None:
        """Wait before the next round, or raise ``failure`` if there is to be none."""
        if number >= self._options.retries or not again:
            raise failure
        asked_s = failure.error.retry_after_s or 0.0
        longest_s = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2**number)
        pause_s = max(asked_s, self._chance.uniform(0, longest_s))
        remaining_s = context.remaining_s
        if (
            asked_s > self._options.max_retry_after_s
            or (remaining_s is not None and pause_s >= remaining_s)
            or not self._budget.take()
        ):
            raise failure
        context.metrics.count("retries")
        context.sleep(pause_s)

    def _attempt(
        self, server: Server, request: Request, context: Context
    ) -> Generator[Event, None, None]:
        """Yield the events of one server's answer, and note how it went."""
        began = time.monotonic()
        outcome = "left"
        try:
            events = self._answer(server, request, context)
            with closing(events):
                first = next(events)
                context.metrics.observe(
                    "first_byte_s", time.monotonic() - began, server=server.name
                )
                server.condition.succeeded()
                yield first
                for event in events:
                    if isinstance(event, Completed):
                        outcome = "completed"  # nobody comes back for more after that
                    yield event
        except UpstreamFailure as failure:
            outcome = str(failure.error.status)
            self._note(server, failure, context)
            raise
        finally:
            context.metrics.count("attempts", server=server.name, outcome=outcome)

    def _note(self, server: Server, failure: UpstreamFailure, context: Context) -> None:
        if failure.unwell:
            server.condition.failed()
        if failure.error.status in (429, 503) and failure.error.retry_after_s:
            server.condition.asked_for_a_break(failure.error.retry_after_s)
        if failure.elsewhere:
            context.logger.warning("%s", failure.message, extra={"upstream": server.name})

    def _answer(
        self, server: Server, request: Request, context: Context
    ) -> Generator[Event, None, None]:
        call = calling(server, context)
        if server.options.endpoint == "native":
            yield from native_events(call, request, context)
            return
        details: dict[str, Any] = {}
        asks = asks_for(request, self._model(server, request), server.options)
        for position, ask in enumerate(asks):
            details |= yield from answer_events(
                call,
                ask,
                context,
                prompt_words=_prompt_words(request, position if len(asks) > 1 else None),
                max_line_bytes=self._options.max_line_bytes,
                record_folder=self._record_folder,
                announce=position == 0,
            )
        yield Completed(details)

    def _model(self, server: Server, request: Request) -> str:
        named = server.options.model or request.model
        if named or server.options.kind == "caesar":
            return named or "caesar-research"
        return self._catalog.first_model(server)


def _after_first(events: Generator[Event, None, None]) -> Generator[Event, None, None]:
    """Return ``events`` once the first of them is there, so that what fails before fails here."""
    first = next(events)
    return _prepended(first, events)


def _prepended(first: Event, events: Generator[Event, None, None]) -> Generator[Event, None, None]:
    with closing(events):
        yield first
        yield from events


def _prompt_words(request: Request, position: int | None) -> int:
    """Return the words of a request, or of one of its prompts."""
    if isinstance(request, CompletionRequest):
        prompts = request.prompts if position is None else (request.prompts[position],)
        return sum(count_words(p) if isinstance(p, str) else len(p) for p in prompts)
    if isinstance(request, ChatRequest):
        return sum(count_words(message.text) for message in request.messages)
    return count_words(request.query) if isinstance(request, ResearchRequest) else 0
