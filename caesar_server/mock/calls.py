"""From an HTTP request, or from a request without one, to the :class:`Call` that rules look at."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from caesar_server.contract import (
    BrainstormRequest,
    ChatRequest,
    CompletionRequest,
    FollowUpRequest,
    Message,
    Request,
    ResearchRequest,
)
from caesar_server.contract.request import Prompt
from caesar_server.mock import native
from caesar_server.mock.content import Content
from caesar_server.mock.model.call import Call

#: Tells the mock backend which call of which scope it answers; a client's own is dropped.
CALL_HEADER = "x-caesar-mock-call"
#: Number of the retry, 0 for the first try: openai-python and openai-node send the first of these
#: (and what is built on them, such as langchain-openai), others the second.
RETRY_HEADERS = ("x-stainless-retry-count", "x-retry-count")

_ALIASES = ("/compat/v1/", "/v1/")
_NO_HEADERS: Mapping[str, str] = {}


def call_from_http(
    *,
    method: str,
    path: str,
    headers: Mapping[str, str],
    body: bytes = b"",
    raw_path: str = "",
    scope: str = "",
    call_id: str = "",
    api_key: str | None = None,
    content: Content | None = None,
) -> Call:
    """Return the call that an HTTP request is.  Never fails: what cannot be read is absent.

    :param path: without query and without the scope's prefix.
    :param headers: names in lower case.
    :param body: as it came; anything but JSON is a call without a body.
    :param raw_path: as the client sent it; ``""`` takes ``path``.
    :param content: of a body that need not be in memory; in place of ``body``.
    """
    method, path, raw_path = method.upper(), documented_path(path), raw_path or path
    if content is not None:
        data = None if content.left_out_bytes else _parsed(content.head)
    else:
        data = _parsed(body)
        if data is None and body:
            content = Content.of(body, headers.get("content-type", ""))
    fields = _unwrapped(data)
    messages = _messages(fields.get("messages"))
    prompts = _prompts(fields.get("prompt"))
    query = _text(fields.get("query"))
    own = native.is_native(path)
    metadata = native.parameters(fields) if own else fields.get("metadata")
    return Call(
        id=call_id,
        scope=scope,
        method=method,
        path=path,
        raw_path=raw_path,
        headers=headers,
        api_key=api_key,
        body=data,
        raw_body=body if content is None else content.head,
        left_out_bytes=0 if content is None else content.left_out_bytes,
        digest=content.digest() if content is not None and content.size else b"",
        model=_text(fields.get("model")),
        prompt=_looked_up(prompts, messages, query, _text(fields.get("content"))),
        prompts=prompts,
        messages=messages,
        query=query,
        metadata=metadata if isinstance(metadata, dict) else {},
        stream=fields.get("stream") is True
        or (own and native.asks_stream(method, path, headers, raw_path.partition("?")[2])),
        attempt=attempt_of(headers),
        turn=turn_of(messages),
    )


def call_from_request(request: Request, *, scope: str = "", model: str | None = None) -> Call:
    """Return the call that a request is which did not come by HTTP.

    :param model: None takes the request's.
    """
    messages: tuple[Mapping[str, Any], ...] = ()
    prompts: tuple[str, ...] = ()
    query = content = None
    if isinstance(request, CompletionRequest):
        prompts = tuple(map(prompt_text, request.prompts))
    elif isinstance(request, ChatRequest):
        messages = tuple(map(_message_object, request.messages))
    elif isinstance(request, (ResearchRequest, BrainstormRequest)):
        query = request.query
    elif isinstance(request, FollowUpRequest):
        content = request.content
    return Call(
        scope=scope,
        model=request.model if model is None else model,
        prompt=_looked_up(prompts, messages, query, content),
        prompts=prompts,
        messages=messages,
        query=query,
        turn=turn_of(messages),
        request=request,
    )


@lru_cache(native.REMEMBERED)
def documented_path(path: str) -> str:
    """Return a path as documented: without the prefix of an alias and without slashes at its end.

    Routes take both, so rules do.

    >>> documented_path("/v1/chat/completions/")
    '/compat/chat/completions'
    """
    path = path.rstrip("/") or "/"
    for alias in _ALIASES:
        if path.startswith(alias):
            return "/compat/" + path.removeprefix(alias)
    return path


def attempt_of(headers: Mapping[str, str] = _NO_HEADERS) -> int:
    """Return the number of the try that a request is, from 1.

    :param headers: names in lower case.
    """
    for name in RETRY_HEADERS:
        value = headers.get(name)
        # a longer one is no count, and a number of thousands of digits takes long to read
        if value is not None and value.isascii() and value.isdigit() and len(value) <= 6:
            return int(value) + 1
    return 1


def turn_of(messages: Sequence[Mapping[str, Any]]) -> int:
    """Return 1 plus the number of assistant messages before the last user message."""
    roles = [message.get("role") for message in messages]
    if "user" not in roles or "assistant" not in roles:
        return 1
    last = len(roles) - 1 - roles[::-1].index("user")
    return 1 + roles[:last].count("assistant")


def content_text(message: Mapping[str, Any]) -> str:
    """Return the text of a message as a client sent it: its text parts, joined by line breaks."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = (part for part in content if isinstance(part, Mapping))
    texts = (part.get("text") for part in parts if part.get("type", "text") == "text")
    return "\n".join(text for text in texts if isinstance(text, str))


def prompt_text(prompt: Prompt) -> str:
    """Return a prompt as rules see it: of token ids their numbers, with spaces between.

    >>> prompt_text((15496, 995))
    '15496 995'
    """
    return prompt if isinstance(prompt, str) else " ".join(map(str, prompt))


def one_prompt_each(call: Call) -> tuple[Call, ...]:
    """Return a call for each of its prompts, as rules see them; itself if it has but one."""
    if len(call.prompts) < 2:
        return (call,)
    return tuple(msgspec.structs.replace(call, prompt=prompt) for prompt in call.prompts)


def asks_for_answer(call: Call) -> bool:
    """Return whether a backend is to answer the call, so that reply rules apply to it."""
    if call.request is not None:
        return True
    if native.is_native(call.path) and not native.is_question(call.path):
        return False
    # a dict, as nearly always, is found sooner than any other mapping
    return call.method == "POST" and isinstance(call.body, (dict, Mapping))


def _parsed(body: bytes) -> Any:
    if not body:
        return None
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass  # Python's parser also takes NaN, a byte order mark and UTF-16
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _unwrapped(data: Any) -> Mapping[str, Any]:
    """Return the fields of a body; the sample in Caesar's API reference wraps them."""
    if not isinstance(data, dict):
        return {}
    inner = data.get("body")
    return inner if len(data) == 1 and isinstance(inner, dict) else data


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _prompts(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list) or not value:
        return ()
    if _are_ids(value):
        return (prompt_text(tuple(value)),)
    if all(isinstance(prompt, str) or _are_ids(prompt) for prompt in value):
        return tuple(prompt_text(one if isinstance(one, str) else tuple(one)) for one in value)
    return ()


def _are_ids(value: Any) -> bool:
    """Return whether a value is a prompt of token ids."""
    return isinstance(value, list) and all(type(item) is int for item in value) and bool(value)


def _messages(value: Any) -> tuple[Mapping[str, Any], ...]:
    if not isinstance(value, list):
        return ()
    return tuple([message for message in value if isinstance(message, dict)])


def _message_object(message: Message) -> Mapping[str, Any]:
    return {"role": message.role, "content": message.text, **message.extra}


def _looked_up(
    prompts: tuple[str, ...],
    messages: tuple[Mapping[str, Any], ...],
    query: str | None,
    content: str | None,
) -> str | None:
    if prompts:
        return prompts[0]
    for message in reversed(messages):
        if message.get("role") == "user":
            return content_text(message)
    return query if query is not None else content
