"""What the model is given: the tokens of each prompt, and how many may follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from caesar_backend_local_llm.engine.vocabulary import Vocabulary
from caesar_backend_local_llm.generation.chats import chat_tokens
from caesar_backend_local_llm.loaded import LoadedModel
from caesar_server.contract import ChatRequest, CompletionRequest, InvalidRequestError


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt, ready to be evaluated.

    :param tokens: at least one.
    :param limit: how many tokens may follow, at least one.
    :param echo: the text to begin the choices with, or None.
    """

    tokens: Sequence[int]
    limit: int
    echo: str | None = None


def prompts_of(request: CompletionRequest | ChatRequest, model: LoadedModel) -> tuple[Prompt, ...]:
    """Return the prompts of a request.

    :raises InvalidRequestError: if one cannot be given to this model, or does not fit into its
        context together with the answer.
    """
    if isinstance(request, ChatRequest):
        tokens = chat_tokens(request, model)
        return (Prompt(tokens, _limit(request, tokens, model, "messages")),)
    return tuple(_completion_prompt(prompt, request, model) for prompt in request.prompts)


def _completion_prompt(
    prompt: str | Sequence[int], request: CompletionRequest, model: LoadedModel
) -> Prompt:
    vocabulary = model.vocabulary
    if isinstance(prompt, str):
        tokens, text = vocabulary.tokens(prompt, special=True), prompt
    else:
        tokens = list(prompt)
        _check_ids(tokens, vocabulary)
        text = vocabulary.text(tokens) if request.echo else ""
    if request.suffix is not None:
        tokens = _fill_in(tokens, request.suffix, model)
    tokens = tokens or [_start(vocabulary)]
    limit = _limit(request, tokens, model, "prompt")
    return Prompt(tokens, limit, text if request.echo else None)


def _check_ids(tokens: Sequence[int], vocabulary: Vocabulary) -> None:
    for token in tokens:
        if not 0 <= token < vocabulary.size:
            raise InvalidRequestError(
                f"prompt: expected token ids from 0 to {vocabulary.size - 1}, got {token}",
                param="prompt",
            )


def _start(vocabulary: Vocabulary) -> int:
    """Return what an empty prompt is for a model: something must be there to go on from."""
    for token in (vocabulary.beginning, vocabulary.end):
        if token is not None:
            return token
    raise InvalidRequestError(
        "prompt: this model needs at least one token; send some text", param="prompt"
    )


def _fill_in(tokens: Sequence[int], suffix: str, model: LoadedModel) -> list[int]:
    """Return the prompt that asks for what stands between ``tokens`` and ``suffix``."""
    vocabulary = model.vocabulary
    marks = vocabulary.fill_prefix, vocabulary.fill_suffix, vocabulary.fill_middle
    if marks[0] is None or marks[1] is None or marks[2] is None:
        raise InvalidRequestError(
            f"suffix: the model {model.name!r} cannot fill in text before a suffix; it has no "
            "tokens for that",
            param="suffix",
            code="unsupported_parameter",
        )
    start = list(tokens)
    begun = start[:1] if vocabulary.adds_beginning and start[:1] == [vocabulary.beginning] else []
    after = vocabulary.tokens(suffix, special=False, beginning=False)
    return [*begun, marks[0], *start[len(begun) :], marks[1], *after, marks[2]]


def _limit(
    request: CompletionRequest | ChatRequest, tokens: Sequence[int], model: LoadedModel, param: str
) -> int:
    """Return how many tokens may follow.

    :raises InvalidRequestError: naming ``param``, if the context is too small.
    """
    context, count = model.context_tokens, len(tokens)
    asked = request.sampling.max_tokens
    if asked is None:
        room = context - count
        if room > 0:
            return room if model.plan.max_tokens is None else min(room, model.plan.max_tokens)
        wanted = f"{param}: {count} tokens leave no room for an answer"
    elif count + asked <= context:
        return asked
    else:
        wanted = f"{param}: {count} tokens and max_tokens = {asked} make {count + asked}"
    raise InvalidRequestError(
        f"{wanted}; the context of the model {model.name!r} is {context} tokens",
        param=param,
        code="context_length_exceeded",
    )
