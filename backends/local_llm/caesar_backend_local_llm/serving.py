"""One request from its model's name to the last event."""

from __future__ import annotations

from collections.abc import Iterator

from caesar_backend_local_llm.generation.answers import Answer, Spent
from caesar_backend_local_llm.generation.asks import ask_of
from caesar_backend_local_llm.hosting.host import ModelHost
from caesar_server.contract import (
    ChatRequest,
    Completed,
    CompletionRequest,
    Context,
    Event,
    Started,
)


def answer_events(
    host: ModelHost, request: CompletionRequest | ChatRequest, context: Context
) -> Iterator[Event]:
    """Yield the events of an answer.  The instance is held until the iterator is closed.

    What is wrong with the request is found before it waits for an instance.

    :raises BackendError: see :class:`~caesar_backend_local_llm.backend.LocalLlmBackend`.
    """
    with host.in_use():
        ready = yield from host.ready(context)
        ask = ask_of(request, ready.model)
        with ready.turns.turn(ask.prompts[0].tokens, context) as instance:
            yield Started({"model": ready.model.name})
            spent = Spent()
            try:
                yield from Answer(ask, ready.model, instance, context, spent).events()
            finally:
                _count(spent, context, ready.model.name)
    yield Completed()


def _count(spent: Spent, context: Context, model: str) -> None:
    """Note what an answer took, also one that was cut short."""
    metrics = context.metrics
    metrics.count("prompt_tokens", spent.prompt_tokens, model=model)
    metrics.count("reused_prompt_tokens", spent.reused_tokens, model=model)
    metrics.count("completion_tokens", spent.completion_tokens, model=model)
    metrics.observe("prompt_s", spent.prompt_s, model=model)
    metrics.observe("generation_s", spent.generation_s, model=model)
    if spent.completion_tokens and spent.generation_s > 0:
        speed = spent.completion_tokens / spent.generation_s
        metrics.observe("tokens_per_second", speed, model=model)
