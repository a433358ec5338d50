"""What is sent upstream for a request: pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from caesar_backend_upstream.options import ServerOptions
from caesar_backend_upstream.wire.convert import as_chat, as_completion, transcript_stops
from caesar_server.contract import (
    ChatRequest,
    CompletionRequest,
    InvalidRequestError,
    Message,
    Part,
    Request,
    ResearchParameters,
    ResearchRequest,
    Sampling,
)

#: OpenAI's limit; what is beyond is cut here.
_MOST_STOPS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One HTTP request and which choices of the whole its answer has.

    :param path: below the base URL.
    :param chat: whether the answer is a chat's.
    :param stops: what is to be cut out of the text if the server does not do it.
    :param echo: text that goes before the answer of each choice, since this server cannot do it.
    """

    path: str
    body: Mapping[str, Any]
    chat: bool
    choices: int
    first_choice: int = 0
    stops: tuple[str, ...] = ()
    echo: str = ""

    @property
    def stream(self) -> bool:
        """Whether a stream is asked for."""
        return bool(self.body.get("stream"))

    @property
    def logprobs(self) -> bool:
        """Whether log probabilities are asked for; ``0`` of a completion asks for them too."""
        return self.body.get("logprobs") is not None


def asks_for(request: Request, model: str, server: ServerOptions) -> tuple[Ask, ...]:
    """Return what to ask a server, in order.

    :param model: the name that the server is given.
    :raises InvalidRequestError: if this server cannot be asked that.
    """
    prefix = "compat/" if server.kind == "caesar" else ""
    if isinstance(request, ResearchRequest):
        request = _research_as_chat(request)
    if isinstance(request, ChatRequest):
        if server.endpoint == "completions":
            stops = (*request.sampling.stop, *transcript_stops(request))
            return (_completion(as_completion(request), model, server, prefix, stops),)
        return (_chat(request, model, server, prefix),)
    if not isinstance(request, CompletionRequest):
        raise InvalidRequestError(f"upstream takes no {request.type} requests", param=None)
    if server.endpoint == "chat":
        return tuple(_prompts_as_chats(request, model, server, prefix))
    return (_completion(request, model, server, prefix, request.sampling.stop),)


def _prompts_as_chats(
    request: CompletionRequest, model: str, server: ServerOptions, prefix: str
) -> Iterator[Ask]:
    for position, chat in enumerate(as_chat(request)):
        prompt = request.prompts[position]
        ask = _chat(chat, model, server, prefix)
        echo = prompt if request.echo and isinstance(prompt, str) else ""
        yield replace(ask, first_choice=position * request.sampling.n, echo=echo)


def _research_as_chat(request: ResearchRequest) -> ChatRequest:
    if request.file_ids:
        raise InvalidRequestError("files: upstream cannot pass files on", param="files")
    return ChatRequest(
        messages=(Message(role="user", parts=(Part(text=request.query),)),),
        model=request.model,
        parameters=request.parameters,
    )


def _chat(request: ChatRequest, model: str, server: ServerOptions, prefix: str) -> Ask:
    sampling = request.sampling
    body: dict[str, Any] = {
        **_extra(request.extra, server),
        "model": model,
        "messages": [_message(message) for message in _with_system(request, server)],
        **_sampling(sampling, server.max_tokens_field, sampling.stop),
    }
    if sampling.best_of is not None and sampling.best_of > sampling.n:
        raise InvalidRequestError("best_of: chats upstream have no best_of", param="best_of")
    if sampling.logprobs is not None:
        body |= {"logprobs": True, "top_logprobs": sampling.logprobs}
    if request.tools:
        body["tools"] = [dict(tool) for tool in request.tools]
    if request.tool_choice is not None:
        body["tool_choice"] = request.tool_choice
    _finish(body, request, server)
    return Ask(
        path=f"{prefix}chat/completions",
        body=body,
        chat=True,
        choices=request.choices,
        stops=sampling.stop,
    )


def _completion(
    request: CompletionRequest,
    model: str,
    server: ServerOptions,
    prefix: str,
    stops: tuple[str, ...],
) -> Ask:
    sampling = request.sampling
    prompts = [prompt if isinstance(prompt, str) else list(prompt) for prompt in request.prompts]
    body: dict[str, Any] = {
        **_extra(request.extra, server),
        "model": model,
        "prompt": prompts[0] if len(prompts) == 1 else prompts,
        **_sampling(sampling, "max_tokens", stops),
    }
    if request.echo:
        body["echo"] = True
    if request.suffix is not None:
        body["suffix"] = request.suffix
    if sampling.logprobs is not None:
        body["logprobs"] = sampling.logprobs
    if sampling.best_of is not None:
        body["best_of"] = sampling.best_of
    _finish(body, request, server)
    if (sampling.best_of or 1) > sampling.n:
        # The best is known at the end alone: OpenAI refuses it with a stream.
        body.pop("stream_options", None)
        body["stream"] = False
    return Ask(
        path=f"{prefix}completions",
        body=body,
        chat=False,
        choices=request.choices,
        # an echoed prompt may hold a stop sequence, which ends nothing
        stops=() if request.echo else stops,
    )


def _finish(
    body: dict[str, Any], request: ChatRequest | CompletionRequest, server: ServerOptions
) -> None:
    """Add what both endpoints have in common."""
    if request.user is not None:
        body["user"] = request.user
    if server.kind == "caesar" and (metadata := metadata_of(request.parameters)):
        body["metadata"] = metadata
    body["stream"] = server.stream
    if server.stream and server.include_usage:
        body["stream_options"] = {"include_usage": True}


def _sampling(sampling: Sampling, max_tokens: str, stops: tuple[str, ...]) -> dict[str, Any]:
    body: dict[str, Any] = {
        name: value
        for name, value in (
            (max_tokens, sampling.max_tokens),
            ("temperature", sampling.temperature),
            ("top_p", sampling.top_p),
            ("frequency_penalty", sampling.frequency_penalty),
            ("presence_penalty", sampling.presence_penalty),
            ("seed", sampling.seed),
        )
        if value is not None
    }
    if sampling.logit_bias:
        body["logit_bias"] = {
            str(token): _whole(bias) for token, bias in sampling.logit_bias.items()
        }
    if stops:
        body["stop"] = list(stops[:_MOST_STOPS])
    if sampling.n != 1:
        body["n"] = sampling.n
    return body


def _whole(bias: float) -> float:
    """Return a bias as a whole number if it is one: OpenAI's description has no others."""
    return int(bias) if bias == int(bias) else bias


def _extra(extra: Mapping[str, Any], server: ServerOptions) -> dict[str, Any]:
    allowed = server.extra_fields
    return {name: value for name, value in extra.items() if name in allowed or "*" in allowed}


def _with_system(request: ChatRequest, server: ServerOptions) -> tuple[Message, ...]:
    """Return the messages; a system prompt from the metadata is one, except for Caesar itself."""
    system = request.parameters.system_prompt
    told = any(message.role in ("system", "developer") for message in request.messages)
    if system is None or told or server.kind == "caesar":
        return request.messages
    return (Message(role="system", parts=(Part(text=system),)), *request.messages)


def _message(message: Message) -> dict[str, Any]:
    if any(part.file_id is not None for part in message.parts):
        raise InvalidRequestError("messages: upstream cannot pass files on", param="messages")
    content: Any = None
    if len(message.parts) == 1 and message.parts[0].text is not None:
        content = message.parts[0].text
    elif message.parts:
        content = [_part(part) for part in message.parts]
    body = {**message.extra, "role": message.role, "content": content}
    return body if message.name is None else {**body, "name": message.name}


def _part(part: Part) -> dict[str, Any]:
    if (image := part.image) is not None:
        detail = {} if image.detail is None else {"detail": image.detail}
        return {"type": "image_url", "image_url": {"url": image.url, **detail}}
    if (audio := part.audio) is not None:
        sound = {"data": audio.data, "format": audio.format}
        return {"type": "input_audio", "input_audio": sound}
    return {"type": "text", "text": part.text}


def metadata_of(parameters: ResearchParameters) -> dict[str, Any]:
    """Return Caesar's research parameters, without those that are the default; empty: auto mode."""
    body: dict[str, Any] = {}
    for name, value in (
        ("excluded_domains", list(parameters.excluded_domains)),
        ("collection_ids", list(parameters.collection_ids)),
        ("system_prompt", parameters.system_prompt),
        ("model", parameters.model),
    ):
        if value:
            body[name] = value
    if parameters.auto:
        return {"auto": True, **body} if body else {}
    return {
        "reasoning_loops": parameters.reasoning_loops,
        "source_timeout": parameters.source_timeout_s,
        "reasoning_mode": parameters.reasoning_mode,
        "allow_early_exit": parameters.allow_early_exit,
        "exclude_social": parameters.exclude_social,
        **body,
    }
