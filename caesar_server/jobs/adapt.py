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
    ResearchParameters,
    ResearchRequest,
)

#: Into what a request may be turned, the best first.
_ORDER: Mapping[str, tuple[RequestKind, ...]] = {
    "completion": ("chat", "research"),
    "chat": ("research", "completion"),
    "research": ("chat", "completion"),
    "follow_up": ("chat", "research", "completion"),
    "brainstorm": (),
}


#: The parameters that a request of a kind can carry at all; see the checks below.
_SAMPLING = frozenset({"n", "best_of", "logprobs"})
_CARRIES: Mapping[str, frozenset[str]] = {
    "completion": _SAMPLING | {"prompts", "token_prompts", "echo", "suffix"},
    "chat": _SAMPLING,
}


def fit(request: Request, capabilities: Capabilities, backend: str) -> Request:
    """Return ``request``, or what it becomes for a backend with these capabilities.

    :param backend: its name, for messages.
    :raises InvalidRequestError: if the backend cannot take the request, with ``param`` naming the
        field that is in the way.
    """
    kind = _target(request, capabilities, backend)
    able = frozenset(
        name for name in _CARRIES.get(kind, frozenset()) if getattr(capabilities, name)
    )
    if isinstance(request, (CompletionRequest, ChatRequest)):
        request = _check_sampling(request, able, capabilities.ignores, backend)
    if isinstance(request, CompletionRequest):
        request = _check_completion(request, able, capabilities.ignores, backend)
    return request if kind == request.type else _ADAPTERS[request.type, kind](request, backend)


def _target(request: Request, capabilities: Capabilities, backend: str) -> str:
    """Return the kind of request that the backend is given."""
    for kind in (request.type, *_ORDER[request.type]):
        if kind in capabilities.accepts:
            return kind
    raise InvalidRequestError(
        f"the backend {backend!r} does not take {request.type} requests; it takes: "
        + ", ".join(sorted(capabilities.accepts)),
        param="model",
        code="unsupported_request",
    )


def _only_prompt(request: CompletionRequest) -> str:
    """Return the one text prompt that the checks have left."""
    (prompt,) = request.prompts
    assert isinstance(prompt, str)  # noqa: S101 - tells the type checker what the checks ensured
    return prompt


def _completion_to_chat(request: CompletionRequest, backend: str) -> ChatRequest:
    text = _only_prompt(request)
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
    return ResearchRequest(
        query=_only_prompt(request), model=request.model, parameters=request.parameters
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


def _follow_up_prompt(request: FollowUpRequest) -> str:
    """Return the whole follow-up as one text, for a backend that takes no chat."""
    turns = [f"{message.role}: {message.text}" for message in request.history]
    parts = [
        _follow_up_text(request),
        *(["Since then:\n" + "\n".join(turns)] if turns else []),
        f"Follow-up question: {request.content}",
    ]
    return "\n\n".join(parts)


def _follow_up_to_chat(request: FollowUpRequest, backend: str) -> ChatRequest:
    return ChatRequest(
        model=request.model,
        messages=(
            Message(role="system", parts=(Part(text=_follow_up_text(request)),)),
            *request.history,
            Message(role="user", parts=(Part(text=request.content),)),
        ),
        parameters=ResearchParameters(auto=True, excluded_domains=request.excluded_domains),
    )


def _follow_up_to_research(request: FollowUpRequest, backend: str) -> ResearchRequest:
    return ResearchRequest(
        query=_follow_up_prompt(request),
        model=request.model,
        parameters=ResearchParameters(excluded_domains=request.excluded_domains),
    )


def _follow_up_to_completion(request: FollowUpRequest, backend: str) -> CompletionRequest:
    return CompletionRequest(
        prompts=(_follow_up_prompt(request),),
        model=request.model,
        parameters=ResearchParameters(auto=True, excluded_domains=request.excluded_domains),
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


def _refuse_files(request: ResearchRequest, backend: str) -> None:
    if request.file_ids:
        raise _unsupported("files", "files", backend)


def _check_sampling(
    request: CompletionRequest | ChatRequest,
    able: frozenset[str],
    ignores: frozenset[str],
    backend: str,
) -> CompletionRequest | ChatRequest:
    """Refuse or drop the sampling parameters whose silent loss would give wrong data."""
    sampling = request.sampling
    dropped: dict[str, Any] = {}
    for name, asked, neutral in (
        ("n", sampling.n > 1, 1),
        # best_of = n asks for nothing that n does not
        ("best_of", (sampling.best_of or 1) > sampling.n, None),
        ("logprobs", sampling.logprobs is not None, None),
    ):
        if name in able:
            continue
        if asked and name not in ignores:
            raise _unsupported(name, f"'{name}'", backend)
        dropped[name] = neutral
    dropped = {name: value for name, value in dropped.items() if getattr(sampling, name) != value}
    return replace(request, sampling=replace(sampling, **dropped)) if dropped else request


def _check_completion(
    request: CompletionRequest, able: frozenset[str], ignores: frozenset[str], backend: str
) -> CompletionRequest:
    if len(request.prompts) > 1 and "prompts" not in able:
        raise _unsupported("prompt", "more than one prompt", backend)
    if "token_prompts" not in able and any(not isinstance(p, str) for p in request.prompts):
        raise _unsupported("prompt", "prompts of token ids; send text", backend)
    if request.echo and "echo" not in able:
        if "echo" not in ignores:
            raise _unsupported("echo", "'echo'", backend)
        request = replace(request, echo=False)
    if request.suffix is not None and "suffix" not in able:
        if "suffix" not in ignores:
            raise _unsupported("suffix", "'suffix'", backend)
        request = replace(request, suffix=None)
    return request


def _unsupported(param: str, what: str, backend: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"{param}: the backend {backend!r} does not support {what}",
        param=param,
        code="unsupported_parameter",
    )
