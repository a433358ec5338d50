"""Making a request fit what a backend accepts, or saying why it cannot be done.

A backend need not know every kind of request: the server turns a question into a prompt, a prompt
into a question and a follow-up into a chat.  What would silently give wrong data is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
    Source,
)
from caesar_server.jobs.files.named import collection_ids_of, file_ids_of
from caesar_server.jobs.media import check_media

#: Into what a request may be turned, the best first.
_ORDER: Mapping[str, tuple[RequestKind, ...]] = {
    "completion": ("chat", "research"),
    "chat": ("research", "completion"),
    "research": ("chat", "completion"),
    "follow_up": ("chat", "research", "completion"),
    "brainstorm": (),
}


#: Of all cited sources together, for a model that gets a follow-up as a text: few take more.
_EXCERPT_CHARACTERS = 6000

#: The parameters that a request of a kind can carry at all; see the checks below.
_SAMPLING = frozenset({"n", "best_of", "logprobs"})
#: The kinds of request that can carry files; collections go along with every kind.
_CARRIES_FILES = frozenset({"chat", "research"})
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
    _check_files(request, kind, capabilities, backend)
    check_media(request, capabilities, backend)
    carried = _CARRIES.get(kind, frozenset())

    def able(name: str) -> bool:
        return name in carried and getattr(capabilities, name)

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
        prompts=(_last_user_message(request).text,),
        model=request.model,
        sampling=request.sampling,
        parameters=request.parameters,
        user=request.user,
        extra=request.extra,
    )


def _chat_to_research(request: ChatRequest, backend: str) -> ResearchRequest:
    # of a conversation about files some were given with an earlier question
    return ResearchRequest(
        query=_last_user_message(request).text,
        model=request.model,
        parameters=request.parameters,
        file_ids=file_ids_of(request),
    )


def _research_to_chat(request: ResearchRequest, backend: str) -> ChatRequest:
    system = request.parameters.system_prompt
    messages = (Message(role="system", parts=(Part(text=system),)),) if system else ()
    files = (Part(file_id=file_id) for file_id in request.file_ids)
    return ChatRequest(
        model=request.model,
        messages=(*messages, Message(role="user", parts=(Part(text=request.query), *files))),
        parameters=request.parameters,
    )


def _research_to_completion(request: ResearchRequest, backend: str) -> CompletionRequest:
    return CompletionRequest(
        prompts=(request.query,), model=request.model, parameters=request.parameters
    )


def _background(request: FollowUpRequest, *, excerpts: bool = True) -> str:
    """Return what a follow-up stands on: the answer, its sources and the passages pointed at.

    :param excerpts: say how the cited sources begin.
    """
    cited = [source for source in request.sources if source.citation_index is not None]
    room = _EXCERPT_CHARACTERS // max(1, len(cited)) if excerpts else 0
    parts = [f"Question: {request.query}", f"Answer: {request.answer}"]
    if cited:
        parts.append("Sources:\n" + "\n".join(_source_text(source, room) for source in cited))
    if request.snippets:
        parts.append("Passages:\n" + "\n".join(request.snippets))
    return "\n\n".join(parts)


def _source_text(source: Source, room: int) -> str:
    """Return a source with its number, and so many characters of its text."""
    line = f"[{source.citation_index}] {source.title} <{source.url}>"
    excerpt = " ".join((source.markdown or "")[:room].split())
    return f"{line}: {excerpt}" if excerpt else line


def _task(request: FollowUpRequest) -> str:
    """Return what a model is to do that knows of no follow-ups, so that citations stay."""
    citable = any(source.citation_index is not None for source in request.sources)
    cite = " Cite its sources by their numbers, as in [1]." if citable else ""
    return f"Answer a follow-up question about this research.{cite}"


def _since_then(request: FollowUpRequest) -> Sequence[str]:
    """Return the questions and answers since as one text, or nothing."""
    turns = "\n".join(f"{message.role}: {message.text}" for message in request.history)
    return (f"Since then:\n{turns}",) if turns else ()


def _parameters(request: FollowUpRequest, *, auto: bool) -> ResearchParameters:
    return ResearchParameters(
        auto=auto,
        excluded_domains=request.excluded_domains,
        model=request.synthesis_model,
    )


def _follow_up_to_chat(request: FollowUpRequest, backend: str) -> ChatRequest:
    return ChatRequest(
        model=request.model,
        messages=(
            Message(
                role="system", parts=(Part(text=f"{_task(request)}\n\n{_background(request)}"),)
            ),
            *request.history,
            Message(role="user", parts=(Part(text=request.content),)),
        ),
        parameters=_parameters(request, auto=True),
    )


def _follow_up_to_research(request: FollowUpRequest, backend: str) -> ResearchRequest:
    # The question first: it is what is searched for.  Research finds sources of its own.
    parts = (
        request.content,
        "This question follows up on earlier research.",
        _background(request, excerpts=False),
        *_since_then(request),
    )
    return ResearchRequest(
        query="\n\n".join(parts),
        model=request.model,
        parameters=_parameters(request, auto=False),
    )


def _follow_up_to_completion(request: FollowUpRequest, backend: str) -> CompletionRequest:
    parts = (
        _task(request),
        _background(request),
        *_since_then(request),
        f"Follow-up question: {request.content}",
        "Answer:",
    )
    return CompletionRequest(
        prompts=("\n\n".join(parts),),
        model=request.model,
        parameters=_parameters(request, auto=True),
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


def _last_user_message(request: ChatRequest) -> Message:
    for message in reversed(request.messages):
        if message.role == "user":
            return message
    raise InvalidRequestError("messages: expected at least one user message", param="messages")


def _check_files(request: Request, kind: str, capabilities: Capabilities, backend: str) -> None:
    """Refuse files and collections that the backend would not look at."""
    if "files" in capabilities.ignores:
        return
    is_research = isinstance(request, ResearchRequest)
    able = capabilities.files
    if file_ids_of(request) and not (able and kind in _CARRIES_FILES):
        raise _unsupported("files" if is_research else "messages", "files", backend)
    if collection_ids_of(request) and not able:
        param = "collection_ids" if is_research else "metadata.collection_ids"
        raise _unsupported(param, "collections of files", backend)


def _check_sampling(
    request: CompletionRequest | ChatRequest,
    able: Callable[[str], bool],
    ignores: frozenset[str],
    backend: str,
) -> CompletionRequest | ChatRequest:
    """Refuse or drop the sampling parameters whose silent loss would give wrong data."""
    sampling = request.sampling
    if sampling.n == 1 and sampling.best_of is None and sampling.logprobs is None:
        return request  # as nearly all are
    dropped: dict[str, Any] = {}
    for name, asked, neutral in (
        ("n", sampling.n > 1, 1),
        # best_of = n asks for nothing that n does not
        ("best_of", (sampling.best_of or 1) > sampling.n, None),
        ("logprobs", sampling.logprobs is not None, None),
    ):
        if able(name):
            continue
        if asked and name not in ignores:
            raise _unsupported(name, f"'{name}'", backend)
        dropped[name] = neutral
    dropped = {name: value for name, value in dropped.items() if getattr(sampling, name) != value}
    return replace(request, sampling=replace(sampling, **dropped)) if dropped else request


def _check_completion(
    request: CompletionRequest,
    able: Callable[[str], bool],
    ignores: frozenset[str],
    backend: str,
) -> CompletionRequest:
    if len(request.prompts) > 1 and not able("prompts"):
        raise _unsupported("prompt", "more than one prompt", backend)
    if not able("token_prompts") and any(not isinstance(p, str) for p in request.prompts):
        raise _unsupported("prompt", "prompts of token ids; send text", backend)
    if request.echo and not able("echo"):
        if "echo" not in ignores:
            raise _unsupported("echo", "'echo'", backend)
        request = replace(request, echo=False)
    if request.suffix is not None and not able("suffix"):
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
