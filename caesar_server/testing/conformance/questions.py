"""The requests that the suite sends: short, and only what the backend's capabilities allow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from caesar_server.contract import (
    BrainstormRequest,
    Capabilities,
    ChatRequest,
    CompletionRequest,
    FollowUpRequest,
    Message,
    Part,
    Request,
    ResearchRequest,
    Sampling,
    Source,
)
from caesar_server.contract.request import RequestKind

QUESTION = "Why is the sky blue in the day and red at night? Tell me in one short sentence."

#: A request in which the caller has a say about the text.
TextRequest = CompletionRequest | ChatRequest


def plain_requests(capabilities: Capabilities) -> list[Request]:
    """Return one short request of each kind that is accepted."""
    return [
        request_of(kind, capabilities)
        for kind in get_args(RequestKind)
        if kind in capabilities.accepts
    ]


def request_of(kind: str, capabilities: Capabilities) -> Request:
    """Return a short request of one kind."""
    if kind == "completion":
        return completion(capabilities, (QUESTION,))
    if kind == "chat":
        return chat(capabilities, QUESTION)
    if kind == "research":
        return ResearchRequest(query=QUESTION)
    if kind == "follow_up":
        return FollowUpRequest(
            content="And on the moon?",
            query=QUESTION,
            answer="Air scatters blue light more than red [1].",
            sources=(Source(id="a", title="Light", url="https://example.org/", citation_index=1),),
        )
    return BrainstormRequest(query="Tell me about Mercury")


def text_request(
    capabilities: Capabilities, text: str = QUESTION, **sampling: Any
) -> TextRequest | None:
    """Return a completion, else a chat, with these parameters; None if it takes neither."""
    if "completion" in capabilities.accepts:
        return completion(capabilities, (text,), **sampling)
    if "chat" in capabilities.accepts:
        return chat(capabilities, text, **sampling)
    return None


def completion(
    capabilities: Capabilities,
    prompts: Sequence[str | tuple[int, ...]],
    *,
    echo: bool = False,
    suffix: str | None = None,
    **sampling: Any,
) -> CompletionRequest:
    """Return a completion request."""
    return CompletionRequest(
        prompts=tuple(prompts),
        echo=echo,
        suffix=suffix,
        sampling=_sampling(capabilities, sampling),
    )


def chat(capabilities: Capabilities, text: str, **sampling: Any) -> ChatRequest:
    """Return a chat of one user message."""
    return ChatRequest(
        messages=(Message(role="user", parts=(Part(text=text),)),),
        sampling=_sampling(capabilities, sampling),
    )


def _sampling(capabilities: Capabilities, given: dict[str, Any]) -> Sampling:
    """Keep answers short and the same each time, as far as the backend can."""
    if capabilities.max_tokens:
        given = {"max_tokens": 48, **given}
    if capabilities.seed:
        given = {"seed": 7, **given}
    return Sampling(**given)
