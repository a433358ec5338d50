"""Completions as chats and chats as completions, for servers that have only one: pure."""

from __future__ import annotations

from collections.abc import Iterator

from caesar_server.contract import (
    ChatRequest,
    CompletionRequest,
    InvalidRequestError,
    Message,
    Part,
)


def as_chat(request: CompletionRequest) -> Iterator[ChatRequest]:
    """Yield a chat for each prompt, whose last message is the prompt.

    :raises InvalidRequestError: for what a chat cannot say.
    """
    if request.suffix is not None:
        raise InvalidRequestError("suffix: the upstream server has chats only", param="suffix")
    sampling = request.sampling
    if (sampling.best_of or 1) > sampling.n:
        raise InvalidRequestError("best_of: the upstream server has chats only", param="best_of")
    if request.echo and sampling.logprobs is not None:
        raise InvalidRequestError(
            "echo: the upstream server has chats only, which have no logprobs of the prompt",
            param="echo",
        )
    for prompt in request.prompts:
        if not isinstance(prompt, str):
            raise InvalidRequestError(
                "prompt: the upstream server has chats only; send text", param="prompt"
            )
        yield ChatRequest(
            messages=(Message(role="user", parts=(Part(text=prompt),)),),
            model=request.model,
            sampling=sampling,
            parameters=request.parameters,
            user=request.user,
            extra=request.extra,
        )


def as_completion(request: ChatRequest) -> CompletionRequest:
    """Return the chat as a transcript that the model is to continue.

    :raises InvalidRequestError: for what a completion cannot say.
    """
    if (request.sampling.logprobs or 0) > 5:
        raise InvalidRequestError(
            "top_logprobs: the upstream server has completions only, with at most 5",
            param="top_logprobs",
        )
    system = request.parameters.system_prompt
    told = any(message.role in ("system", "developer") for message in request.messages)
    turns = [f"System: {system}"] if system is not None and not told else []
    turns += [f"{_speaker(message)}: {message.text}" for message in request.messages]
    return CompletionRequest(
        prompts=("\n\n".join([*turns, "Assistant:"]),),
        model=request.model,
        sampling=request.sampling,
        parameters=request.parameters,
        user=request.user,
        extra=request.extra,
    )


def transcript_stops(request: ChatRequest) -> tuple[str, ...]:
    """Return what ends the assistant's turn: a model without chats would write the user's too."""
    return ("\n\nUser:",)


def _speaker(message: Message) -> str:
    role = "system" if message.role == "developer" else message.role
    return role.capitalize()
