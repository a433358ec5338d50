"""The fixtures file of the mock: which prompt gets which reply.

A JSON object from prompt to reply.  A reply is the text, or an object that says more::

    {
      "Say hello": "Hello, world!",
      "What is new?": {
        "statuses": ["searching", "summarizing"],
        "progress": ["Reading 2 sources"],
        "results": [{"title": "News", "url": "https://example.org/news", "citation_index": 1}],
        "text": ["Not much [1].", "A lot [1]."],
        "chunks": 3
      },
      "Fail": {"error": {"message": "Slow down", "status": 429, "retry_after_s": 2}}
    }
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from caesar_server.contract import ErrorInfo, OptionsError
from caesar_server.contract.events import RunningStatus

_LONGEST_WAIT_S = 24 * 60 * 60


class MockResult(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A source that the reply claims to have found.

    :param id: None makes a UUID from the URL, the same each time.
    :param score: 0 to 1.
    :param citation_index: from 1; None for a source that the text does not cite.
    :param raw: its content as fetched.
    :param markdown: its content as Markdown.
    """

    title: str
    url: str
    id: str | None = None
    score: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    citation_index: Annotated[int, msgspec.Meta(ge=1)] | None = None
    raw: str | None = None
    markdown: str | None = None

    @property
    def event_id(self) -> str:
        """The id to report."""
        return self.id or str(uuid.uuid5(uuid.NAMESPACE_URL, self.url))


class MockError(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the reply fails; the fields are those of :class:`caesar_server.contract.ErrorInfo`.

    :param type: None takes OpenAI's word for the status.
    :param retry_after_s: up to a day.
    """

    message: str
    code: str = "backend_error"
    type: str | None = None
    param: str | None = None
    status: Annotated[int, msgspec.Meta(ge=400, le=599)] = 500
    retry_after_s: Annotated[float, msgspec.Meta(ge=0, le=_LONGEST_WAIT_S)] | None = None
    transient: bool = False

    def info(self) -> ErrorInfo:
        """Return it as the contract's value."""
        return ErrorInfo(**{**msgspec.structs.asdict(self), "type": self.type or self._type()})

    def _type(self) -> str:
        special = {401: "authentication_error", 429: "rate_limit_error"}
        usual = "invalid_request_error" if self.status < 500 else "server_error"
        return special.get(self.status, usual)


class Reply(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the mock does for one prompt, in this order.

    :param statuses: phases to report.
    :param progress: lines of progress.
    :param results: sources to report.
    :param text: the answer; several are for the choices of one prompt, in turn.
    :param chunks: the number of deltas of a choice; None makes one a word.
    :param error: fail with it, after the text if there is one.
    """

    statuses: tuple[RunningStatus, ...] = ()
    progress: tuple[str, ...] = ()
    results: tuple[MockResult, ...] = ()
    text: str | Annotated[tuple[str, ...], msgspec.Meta(min_length=1)] = ""
    chunks: Annotated[int, msgspec.Meta(ge=1)] | None = None
    error: MockError | None = None

    def text_of(self, k: int) -> str:
        """Return the text of choice ``k`` of a prompt, from 0."""
        return self.text if isinstance(self.text, str) else self.text[k % len(self.text)]


class Fixtures:
    """Prompt -> reply; a prompt that is not among them is echoed.  Immutable."""

    def __init__(self, replies: Mapping[str, Reply] | None = None) -> None:
        self._replies = dict(replies or {})

    def reply_to(self, prompt: str) -> Reply:
        """Return the reply for exactly this prompt, or one that repeats it."""
        return self._replies.get(prompt) or Reply(text=prompt)


def load_fixtures(path: Path) -> Fixtures:
    """Read a fixtures file: UTF-8, a byte order mark is allowed.

    :raises OptionsError: if it cannot be read or does not hold what it should; says where.
    """
    where = f"fixtures: {path}"
    try:
        data = json.loads(path.read_text(encoding="utf-8-sig"), object_pairs_hook=_no_repeats)
    except OSError as error:
        raise OptionsError([f"{where}: {error.strerror or error}"]) from error
    except RecursionError as error:
        raise OptionsError([f"{where}: nested too deeply"]) from error
    except ValueError as error:  # no UTF-8, no JSON, or a key twice
        raise OptionsError([f"{where}: {error}"]) from error
    if not isinstance(data, dict):
        raise OptionsError([f"{where}: expected an object from prompt to reply, got {_kind(data)}"])
    replies, problems = {}, []
    for prompt, value in data.items():
        try:
            replies[prompt] = _reply(value)
        except msgspec.ValidationError as error:
            problems.append(f"{where}: {json.dumps(prompt, ensure_ascii=False)}: {error}")
    if problems:
        raise OptionsError(problems)
    return Fixtures(replies)


def _reply(value: object) -> Reply:
    if isinstance(value, str):
        return Reply(text=value)
    if not isinstance(value, dict):
        raise msgspec.ValidationError(f"Expected a string or an object, got {_kind(value)}")
    return msgspec.convert(value, Reply)


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse what JSON parsers let pass: of two equal keys only the last would count."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {json.dumps(key, ensure_ascii=False)} is there twice")
        found[key] = value
    return found


def _kind(value: object) -> str:
    """Return the JSON name of a value's type."""
    if value is None:
        return "null"
    if isinstance(value, (bool, int, float)):
        return "a boolean" if isinstance(value, bool) else "a number"
    return "a list" if isinstance(value, list) else "a string"
