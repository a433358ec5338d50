"""A chat's messages as the tokens of a prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from caesar_backend_local_llm.engine.vocabulary import Vocabulary
from caesar_backend_local_llm.generation.chat_templates import (
    ChatRefused,
    ChatTemplate,
    TemplateProblem,
)
from caesar_backend_local_llm.generation.extras import field_of
from caesar_backend_local_llm.loaded import LoadedModel
from caesar_server.contract import BackendError, ChatRequest, InvalidRequestError, Message

#: Around the number of a control token's name that stands in a caller's text: characters that are
#: free for private use, so that no template changes them.
_OPEN, _CLOSE = "\ue0f0", "\ue0f1"


def chat_tokens(request: ChatRequest, model: LoadedModel) -> list[int]:
    """Return the tokens of a chat, up to where the answer begins.

    Names of control tokens in the messages stay text: nobody can end his own turn with
    ``<|im_end|>`` and speak as somebody else.

    :raises InvalidRequestError: if the template does not take the messages, or there is none.
    :raises BackendError: if the template fails.
    """
    template = model.template
    if isinstance(template, str):
        raise InvalidRequestError(
            f"The model {model.name!r} cannot chat: {template}",
            param="model",
            code="no_chat_template",
        )
    names: list[str] = []
    messages = [
        {**_shielded(message, model.vocabulary, names), "role": message["role"]}
        for message in _messages(request)
    ]
    return _tokens(_rendered(template, messages, request, model), names, model.vocabulary)


def _messages(request: ChatRequest) -> list[dict[str, Any]]:
    """Return the messages as templates expect them."""
    messages = [_message(message) for message in request.messages]
    system = request.parameters.system_prompt
    if system is not None and all(message["role"] != "system" for message in messages):
        return [{"role": "system", "content": system}, *messages]
    return messages


def _message(message: Message) -> dict[str, Any]:
    if any(part.file_id is not None for part in message.parts):
        raise InvalidRequestError("messages: this backend reads no files", param="messages")
    named = {} if message.name is None else {"name": message.name}
    # Few templates know the role that OpenAI gave the system's words a new name with.
    role = "system" if message.role == "developer" else message.role
    return {**message.extra, **named, "role": role, "content": message.text}


def _rendered(
    template: ChatTemplate,
    messages: Sequence[Mapping[str, Any]],
    request: ChatRequest,
    model: LoadedModel,
) -> str:
    extra = request.extra
    prompted = field_of(extra, "add_generation_prompt", bool, "true or false")
    arguments = field_of(extra, "chat_template_kwargs", dict, "an object")
    try:
        return template.render(
            messages, generation_prompt=prompted is not False, arguments=arguments
        )
    except ChatRefused as refusal:
        raise InvalidRequestError(
            f"messages: the chat template of {model.name!r} refuses them: {refusal}",
            param="messages",
        ) from refusal
    except TemplateProblem as problem:
        raise BackendError(
            f"The model {model.name!r} cannot chat: {problem}", code="bad_chat_template"
        ) from problem


def _shielded(value: Any, vocabulary: Vocabulary, names: list[str]) -> Any:
    """Return ``value`` with the names of control tokens in its texts shielded."""
    if isinstance(value, str):
        return _shielded_text(value, vocabulary, names)
    if isinstance(value, Mapping):
        return {key: _shielded(item, vocabulary, names) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_shielded(item, vocabulary, names) for item in value]
    return value


def _shielded_text(text: str, vocabulary: Vocabulary, names: list[str]) -> str:
    """Replace the names of control tokens in ``text``, and add them to ``names``."""
    text = text.replace(_OPEN, "").replace(_CLOSE, "")
    found = {
        token
        for token in vocabulary.tokens(text, special=True, beginning=False)
        if vocabulary.is_control(token)
    }
    for name in sorted(map(vocabulary.name, found), key=len, reverse=True):
        if name in text:
            text = text.replace(name, f"{_OPEN}{len(names)}{_CLOSE}")
            names.append(name)
    return text


def _tokens(text: str, names: Sequence[str], vocabulary: Vocabulary) -> list[int]:
    """Return the tokens of a rendered chat, with the callers' ``names`` as plain text."""
    head, *rest = text.split(_OPEN)
    tokens = vocabulary.tokens(head, special=True)
    for part in rest:
        number, _, after = part.partition(_CLOSE)
        tokens += vocabulary.tokens(names[int(number)], special=False, beginning=False)
        tokens += vocabulary.tokens(after, special=True, beginning=False)
    return tokens
