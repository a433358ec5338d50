"""Making a request fit what a backend accepts, or saying why it cannot be done.

A backend need not know every kind of request: the server turns a question into a prompt, a prompt
into a question and a follow-up into a chat.  What would silently give wrong data is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from caesar_server.contract.backend import Capabilities
from caesar_server.contract.errors import InvalidRequestError
from caesar_server.contract.request import (
    ChatRequest,
    CompletionRequest,
    FollowUpRequest,
    Message,
    Part,
    Request,
    RequestKind,
    ResearchRequest,
    Sampling,
)

#: Into what a request may be turned, the best first.
_ORDER: Mapping[str, tuple[RequestKind, ...]] = {
    "completion": ("chat", "research"),
    "chat": ("research", "completion"),
    "research": ("chat", "completion"),
    "follow_up": ("chat", "research", "completion"),
    "brainstorm": (),
}


def fit(request: Request, capabilities: Capabilities, backend: str) -> Request:
    """Return ``request``, or what it becomes for a backend with these capabilities.

    :param backend: its name, for messages.
    :raises InvalidRequestError: if the backend cannot take the request, with ``param`` naming the
        field that is in the way.
    """
    if request.type not in capabilities.accepts:
        request = _adapt(request, capabilities, backend)
    if isinstance(request, (CompletionRequest, ChatRequest)):
        request = _check_sampling(request, capabilities, backend)
    if isinstance(request, CompletionRequest):
        request = _check_completion(request, capabilities, backend)
    return request


def _adapt(request: Request, capabilities: Capabilities, backend: str) -> Request:
    for kind in _ORDER[request.type]:
        if kind in capabilities.accepts:
            return _ADAPTERS[request.type, kind](request, backend)
    raise InvalidRequestError(
        f"the backend {backend!r} does not take {request.type} requests; it takes: "
        + ", ".join(sorted(capabilities.accepts)),
        param="model",
        code="unsupported_request",
    )


def _only_prompt(request: CompletionRequest, backend: str) -> str:
    """Return the one text prompt of a request for a backend that takes one question at a time."""
    if len(request.prompts) > 1:
        raise _unsupported("prompt", "more than one prompt", backend)
    prompt = request.prompts[0]
    if not isinstance(prompt, str):
        raise _unsupported("prompt", "a prompt of token ids", backend)
    for name, asked in (
        ("echo", request.echo),
        ("suffix", request.suffix is not None),
    ):
        if asked:
            raise _unsupported(name, f"'{name}'", backend)
    return prompt


def _completion_to_chat(request: CompletionRequest, backend: str) -> ChatRequest:
    text = _only_prompt(request, backend)
    system = request.parameters.system_prompt
    messages = (Message(role="system", parts=(Part(text=system),)),) if system else ()
    return ChatRequest(
        model=request.model,
        messages=(*messages, Message(role="user", parts=(Part(text=text),))),
        sampling=request.sampling,
        parameters=request.parameters,
        user=request.user,
        extra=request.extra,
    )


def _completion_to_research(request: CompletionRequest, backend: str) -> ResearchRequest:
    _refuse_many(request.sampling, backend)
    return ResearchRequest(
        query=_only_prompt(request, backend), model=request.model, parameters=request.parameters
    )


def _chat_to_completion(request: ChatRequest, backend: str) -> CompletionRequest:
    # Caesar's rule for its chat endpoint: the last user message is the query.
    return CompletionRequest(
        prompts=(_last_user_message(request, backend).text,),
        model=request.model,
        sampling=request.sampling,
        parameters=request.parameters,
        user=request.user,
        extra=request.extra,
    )


def _chat_to_research(request: ChatRequest, backend: str) -> ResearchRequest:
    _refuse_many(request.sampling, backend)
    message = _last_user_message(request, backend, files=True)
    return ResearchRequest(
        query=message.text,
        model=request.model,
        parameters=request.parameters,
        file_ids=tuple(part.file_id for part in message.parts if part.file_id is not None),
    )


def _research_to_chat(request: ResearchRequest, backend: str) -> ChatRequest:
    _refuse_files(request, backend)
    system = request.parameters.system_prompt
    messages = (Message(role="system", parts=(Part(text=system),)),) if system else ()
    return ChatRequest(
        model=request.model,
        messages=(*messages, Message(role="user", parts=(Part(text=request.query),))),
        parameters=request.parameters,
    )


def _research_to_completion(request: ResearchRequest, backend: str) -> CompletionRequest:
    _refuse_files(request, backend)
    return CompletionRequest(
        prompts=(request.query,), model=request.model, parameters=request.parameters
    )


def _follow_up_text(request: FollowUpRequest) -> str:
    """Return what a follow-up stands on: the answer, its sources and the passages pointed at."""
    sources = "\n".join(
        f"[{source.citation_index}] {source.title} <{source.url}>"
        for source in request.sources
        if source.citation_index is not None
    )
    parts = [f"Question: {request.query}", f"Answer: {request.answer}"]
    if sources:
        parts.append(f"Sources:\n{sources}")
    if request.snippets:
        parts.append("Passages:\n" + "\n".join(request.snippets))
    return "\n\n".join(parts)


def _follow_up_to_chat(request: FollowUpRequest, backend: str) -> ChatRequest:
    return ChatRequest(
        model=request.model,
        messages=(
            Message(role="system", parts=(Part(text=_follow_up_text(request)),)),
            *request.history,
            Message(role="user", parts=(Part(text=request.content),)),
        ),
    )


def _follow_up_to_research(request: FollowUpRequest, backend: str) -> ResearchRequest:
    return ResearchRequest(
        query=f"{_follow_up_text(request)}\n\nFollow-up question: {request.content}",
        model=request.model,
    )


def _follow_up_to_completion(request: FollowUpRequest, backend: str) -> CompletionRequest:
    return CompletionRequest(
        prompts=(f"{_follow_up_text(request)}\n\nFollow-up question: {request.content}",),
        model=request.model,
    )


_ADAPTERS: Mapping[tuple[str, str], Callable[..., Request]] = {
    ("completion", "chat"): _completion_to_chat,
    ("completion", "research"): _completion_to_research,
    ("chat", "completion"): _chat_to_completion,
    ("chat", "research"): _chat_to_research,
    ("research", "chat"): _research_to_chat,
    ("research", "completion"): _research_to_completion,
    ("follow_up", "chat"): _follow_up_to_chat,
    ("follow_up", "research"): _follow_up_to_research,
    ("follow_up", "completion"): _follow_up_to_completion,
}


def _last_user_message(request: ChatRequest, backend: str, *, files: bool = False) -> Message:
    for message in reversed(request.messages):
        if message.role == "user":
            if not files and any(part.file_id is not None for part in message.parts):
                raise _unsupported("messages", "file parts", backend)
            return message
    raise InvalidRequestError("messages: expected at least one user message", param="messages")


def _refuse_many(sampling: Sampling, backend: str) -> None:
    if sampling.n > 1:
        raise _unsupported("n", f"'n' above 1 (got {sampling.n})", backend)


def _refuse_files(request: ResearchRequest, backend: str) -> None:
    if request.file_ids:
        raise _unsupported("files", "files", backend)


def _check_sampling(
    request: CompletionRequest | ChatRequest, capabilities: Capabilities, backend: str
) -> CompletionRequest | ChatRequest:
    """Refuse or drop the sampling parameters whose silent loss would give wrong data."""
    sampling = request.sampling
    checks: tuple[tuple[str, bool, bool, Any], ...] = (
        ("n", sampling.n > 1, capabilities.n, 1),
        # best_of = n asks for nothing that n does not
        ("best_of", (sampling.best_of or 1) > sampling.n, capabilities.best_of, None),
        ("logprobs", sampling.logprobs is not None, capabilities.logprobs, None),
    )
    for name, asked, able, neutral in checks:
        if not asked or able:
            continue
        if name not in capabilities.ignores:
            raise _unsupported(name, f"'{name}'", backend)
        sampling = replace(sampling, **{name: neutral})
    return request if sampling is request.sampling else replace(request, sampling=sampling)


def _check_completion(
    request: CompletionRequest, capabilities: Capabilities, backend: str
) -> CompletionRequest:
    if len(request.prompts) > 1 and not capabilities.prompts:
        raise _unsupported("prompt", "more than one prompt", backend)
    if not capabilities.token_prompts and any(not isinstance(p, str) for p in request.prompts):
        raise _unsupported("prompt", "prompts of token ids; send text", backend)
    if request.echo and not capabilities.echo:
        if "echo" not in capabilities.ignores:
            raise _unsupported("echo", "'echo'", backend)
        request = replace(request, echo=False)
    if request.suffix is not None and not capabilities.suffix:
        if "suffix" not in capabilities.ignores:
            raise _unsupported("suffix", "'suffix'", backend)
        request = replace(request, suffix=None)
    return request


def _unsupported(param: str, what: str, backend: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"{param}: the backend {backend!r} does not support {what}",
        param=param,
        code="unsupported_parameter",
    )
