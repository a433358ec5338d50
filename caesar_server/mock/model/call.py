"""One call as the mock sees it: what rules look at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from caesar_server.contract import Request

#: Secret, or too long for one line.
_NOT_SHOWN = frozenset({"api_key", "raw_body", "digest"})


# a Struct and no dataclass: a frozen one of so many fields takes longer to make than to be matched
class Call(msgspec.Struct, frozen=True, kw_only=True):
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
    :param raw_body: as it came; of one that is no JSON, such as an upload, the first 64 KiB.
    :param left_out_bytes: so many bytes of the body are not in ``raw_body``.
    :param digest: of a body that is no JSON: what equal ones have in common, whatever boundary the
        client has drawn; else empty.
    :param model: the name that the client asked for, or None.
    :param prompt: the text that replies are looked up by: the (first) prompt, the last user
        message, the query, the ``content`` of a follow-up question; None if there is none, as of
        every GET.
    :param prompts: all prompts of a completion; one of token ids is their numbers, with spaces
        between.
    :param messages: of a chat completion, as they came; empty otherwise.
    :param query: of a research or brainstorm request, or None; also of a follow-up question, whose
        body does not repeat that of the job.
    :param metadata: of the request; empty if it has none.  Of Caesar's own API, which has none, the
        parameters in the body, such as ``reasoning_loops``, ``system_prompt`` and ``files``.
    :param stream: whether the client asked for a stream, by body, query, path or ``Accept``.
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
    headers: Mapping[str, str] = {}
    api_key: str | None = None
    body: Any = None
    raw_body: bytes = b""
    left_out_bytes: int = 0
    digest: bytes = b""
    model: str | None = None
    prompt: str | None = None
    prompts: tuple[str, ...] = ()
    messages: tuple[Mapping[str, Any], ...] = ()
    query: str | None = None
    metadata: Mapping[str, Any] = {}
    stream: bool = False
    attempt: int = 1
    turn: int = 1
    request: Request | None = None

    def __repr__(self) -> str:
        shown = (name for name in self.__struct_fields__ if name not in _NOT_SHOWN)
        return f"Call({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    @property
    def content(self) -> bytes:
        """What tells the body apart from others."""
        return self.digest or self.raw_body
