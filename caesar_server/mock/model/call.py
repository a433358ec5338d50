"""One call as the mock sees it: what rules look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from caesar_server.contract import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request to an API route, or a run without one (another backend called the mock).

    :param id: of the journal's entry; ``""`` outside of HTTP.
    :param scope: the scope's name.
    :param method: in upper case; ``""`` outside of HTTP, as are the others down to ``body``.
    :param path: without the scope's prefix, as the documentation writes it: ``/v1/...`` and
        ``/compat/v1/...`` are ``/compat/...`` here.
    :param raw_path: as the client sent it.
    :param headers: names in lower case; repeated ones joined by a comma.
    :param api_key: the caller's bearer token, or None; never shown.
    :param body: the parsed JSON body; None where there is none or it is no JSON.
    :param raw_body: as it came.
    :param model: the name that the client asked for, or None.
    :param prompt: the text that replies are looked up by: the (first) prompt, the last user
        message, the query; None if there is none.
    :param prompts: all prompts of a completion.
    :param messages: of a chat, as they came; empty otherwise.
    :param query: of a research request, or None.
    :param metadata: of the request; empty if it has none.
    :param stream: whether the client asked for a stream.
    :param attempt: 1 for the first try of a call, then one more with each retry that the client's
        SDK announces (``x-stainless-retry-count`` and its like).
    :param turn: of a chat: 1 plus the number of assistant messages before the last user message;
        otherwise 1.
    :param request: the validated request, where one is at hand.
    """

    id: str = ""
    scope: str = ""
    method: str = ""
    path: str = ""
    raw_path: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    api_key: str | None = field(default=None, repr=False)
    body: Any = None
    raw_body: bytes = field(default=b"", repr=False)
    model: str | None = None
    prompt: str | None = None
    prompts: tuple[str, ...] = ()
    messages: tuple[Mapping[str, Any], ...] = ()
    query: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    stream: bool = False
    attempt: int = 1
    turn: int = 1
    request: Request | None = None
