"""Files for backends that read none: their text becomes a part of what is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from caesar_server.contract.backend import Capabilities
from caesar_server.contract.errors import InvalidRequestError
from caesar_server.contract.request import (
    ChatRequest,
    CompletionRequest,
    Message,
    Part,
    Prompt,
    Request,
    ResearchRequest,
)
from caesar_server.jobs.files.decoding import UndecodableError, decoded
from caesar_server.jobs.files.named import collection_ids_of, file_ids_of
from caesar_server.jobs.media import check_media


class _File(Protocol):
    """What is known of a file without reading it."""

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def content_type(self) -> str: ...
    @property
    def size(self) -> int: ...


F = TypeVar("F", bound=_File)

#: Of all files of a request together: few models take more, and it is stored with each job.
MAX_BYTES = 256 * 1024
#: Types besides ``text/...`` whose bytes are text.
_TEXT_TYPES = frozenset(
    {
        "application/javascript",
        "application/json",
        "application/rtf",
        "application/sql",
        "application/toml",
        "application/x-ndjson",
        "application/x-yaml",
        "application/xhtml+xml",
        "application/xml",
        "application/yaml",
        "image/svg+xml",
        "message/rfc822",
    }
)


def is_inlined(request: Request, capabilities: Capabilities) -> bool:
    """Return whether a request names files that a backend of these capabilities would not read."""
    if capabilities.files or "files" in capabilities.ignores:
        return False
    return bool(file_ids_of(request) or collection_ids_of(request))


def inlined(
    request: Request,
    capabilities: Capabilities,
    backend: str,
    files: Sequence[F],
    read: Callable[[F], bytes],
) -> Request:
    """Return the request with the text of its files in place of their ids.

    A chat gets it in its system message, a question or prompt behind or before its own text.  Where
    there are no files, as in an empty collection, nothing is added.

    :param files: all that the request names, those of collections too.
    :param backend: its name, for messages.
    :param read: returns all bytes of one.
    :raises InvalidRequestError: if one of them is no text, or they are larger than
        :data:`MAX_BYTES` together; or for images and audio that the backend does not take.
    """
    # afterwards the parts are in other places than those that the caller knows
    check_media(request, capabilities, backend)
    param = "files" if isinstance(request, ResearchRequest) else "messages"
    _check(files, backend, param)
    text = "\n\n".join(
        f"File {file.name!r}:\n{_text_of(file, read(file), backend, param)}" for file in files
    )
    match request:
        case ChatRequest():
            names = {file.id: file.name for file in files}
            return _chat(request, text, names, as_chat="chat" in capabilities.accepts)
        case ResearchRequest():
            return _research(request, text, capabilities)
        case CompletionRequest():
            prompts = tuple(_prompt(one, text, backend) for one in request.prompts)
            return replace(
                request,
                prompts=prompts,
                parameters=replace(request.parameters, collection_ids=()),
            )
        case _:
            return request


def _check(files: Iterable[_File], backend: str, param: str) -> None:
    size = 0
    for file in files:
        size += file.size
        if not (file.content_type.startswith("text/") or file.content_type in _TEXT_TYPES):
            raise _refused(
                f"the backend {backend!r} reads no files itself, so only text can be given to it; "
                f"{file.name!r} is {file.content_type}",
                param,
            )
    if size > MAX_BYTES:
        raise _refused(
            f"the backend {backend!r} reads no files itself, and their text is {size} bytes, more "
            f"than the {MAX_BYTES} that can be made a part of the question",
            param,
        )


def _text_of(file: _File, data: bytes, backend: str, param: str) -> str:
    try:
        # JSON and its like are UTF-8 by their own rules, text may be anything
        return decoded(data, older=file.content_type.startswith("text/")).strip()
    except UndecodableError as error:
        raise _refused(
            f"the backend {backend!r} reads no files itself, and {file.name!r} is {error}", param
        ) from None


def _chat(
    request: ChatRequest, text: str, names: Mapping[str, str], *, as_chat: bool
) -> ChatRequest:
    messages = [_named(message, names) for message in request.messages]
    if text:
        place = 0 if as_chat else _last_user(messages)
        if as_chat and messages[0].role != "system":
            messages.insert(0, Message(role="system"))
        spoken = messages[place]
        messages[place] = replace(spoken, parts=(*spoken.parts, Part(text=text)))
    return replace(
        request,
        messages=tuple(messages),
        parameters=replace(request.parameters, collection_ids=()),
    )


def _named(message: Message, names: Mapping[str, str]) -> Message:
    """Return a message without files; one of nothing else says which they are."""
    ids = [part.file_id for part in message.parts if part.file_id is not None]
    if not ids:
        return message
    parts = tuple(part for part in message.parts if part.file_id is None)
    if not any((part.text or "").strip() or part.image or part.audio for part in parts):
        parts = tuple(Part(text=f"File {names.get(file_id, file_id)!r}") for file_id in ids)
    return replace(message, parts=parts)


def _last_user(messages: Sequence[Message]) -> int:
    users = [place for place, message in enumerate(messages) if message.role == "user"]
    if not users:
        raise InvalidRequestError("messages: expected at least one user message", param="messages")
    return users[-1]


def _research(request: ResearchRequest, text: str, capabilities: Capabilities) -> Request:
    parameters = replace(request.parameters, collection_ids=())
    if "chat" in capabilities.accepts and "research" not in capabilities.accepts:
        system = tuple(_parts((parameters.system_prompt, text)))
        question = Message(role="user", parts=(Part(text=request.query),))
        return ChatRequest(
            model=request.model,
            messages=(Message(role="system", parts=system), question) if system else (question,),
            parameters=parameters,
        )
    query = "\n\n".join(filter(None, (request.query, text)))
    return replace(request, query=query, file_ids=(), parameters=parameters)


def _parts(texts: Iterable[str | None]) -> Iterator[Part]:
    return (Part(text=text) for text in texts if text)


def _prompt(prompt: Prompt, text: str, backend: str) -> Prompt:
    if not text:
        return prompt
    if not isinstance(prompt, str):
        raise _refused(
            f"the backend {backend!r} reads no files itself, and text cannot be put before token "
            "ids; send text",
            "prompt",
        )
    return f"{text}\n\n{prompt}"


def _refused(problem: str, param: str) -> InvalidRequestError:
    return InvalidRequestError(f"{param}: {problem}", param=param, code="unsupported_parameter")
