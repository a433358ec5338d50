"""What the mock answers."""

from __future__ import annotations

import uuid
from typing import Annotated, TypeAlias

import msgspec

from caesar_server.contract import ErrorInfo
from caesar_server.contract.events import FinishReason, RunningStatus
from caesar_server.mock.model.pacing import Pacing, Seconds

LogProb: TypeAlias = Annotated[float, msgspec.Meta(ge=-1_000_000_000, le=0)]


class MockResult(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A source that the reply claims to have found.

    :param title: of the page.
    :param url: of the page.
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

    :param message: what the client is told.
    :param code: for programs.
    :param type: None takes OpenAI's word for the status.
    :param param: the field of the request that is at fault.
    :param status: of the answer, where nothing was sent before.
    :param retry_after_s: up to a day.
    :param transient: whether the same request may succeed later.
    """

    message: str
    code: str = "backend_error"
    type: str | None = None
    param: str | None = None
    status: Annotated[int, msgspec.Meta(ge=400, le=599)] = 500
    retry_after_s: Seconds | None = None
    transient: bool = False

    def info(self) -> ErrorInfo:
        """Return it as the contract's value."""
        return ErrorInfo(**{**msgspec.structs.asdict(self), "type": self.type or self._type()})

    def _type(self) -> str:
        special = {401: "authentication_error", 429: "rate_limit_error"}
        usual = "invalid_request_error" if self.status < 500 else "server_error"
        return special.get(self.status, usual)


class MockToken(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One token of a text with its log probability and the best alternatives.

    :param token: its text.
    :param logprob: at most 0.
    :param top: token -> log probability.
    """

    token: str
    logprob: LogProb = 0.0
    top: dict[str, LogProb] = {}


class MockUsage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tokens to report instead of the counted words.

    :param prompt_tokens: None counts.
    :param completion_tokens: None counts.
    """

    prompt_tokens: Annotated[int, msgspec.Meta(ge=0)] | None = None
    completion_tokens: Annotated[int, msgspec.Meta(ge=0)] | None = None


class MockChoice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One choice of a reply.

    :param text: the answer.
    :param logprobs: tokens of the text, which they must join to; None makes up plausible ones where
        the request asks for them (seeded by the text).
    :param finish_reason: None: ``stop``, or ``length`` where ``max_tokens`` cuts the text.
    """

    text: str = ""
    logprobs: tuple[MockToken, ...] | None = None
    finish_reason: FinishReason | None = None


class Reply(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the mock does for one prompt, in this order.

    :param statuses: phases to report.
    :param progress: lines of progress.
    :param results: sources to report.
    :param text: the answer; several are for the choices of one prompt, in turn.
    :param template: instead of ``text``: a Jinja template over ``call`` (prompt, messages, model,
        metadata, headers, attempt, turn, ...), rendered in a sandbox.
    :param choices: instead of ``text``, with more to say about each.
    :param transformed: text of the channel ``transformed``, for requests with a system prompt.
    :param chunks: the number of deltas of a choice; None cuts as the pacing says.
    :param pacing: None: the scope's.
    :param usage: tokens to report.
    :param error: fail with it, after the text if there is one.
    """

    statuses: tuple[RunningStatus, ...] = ()
    progress: tuple[str, ...] = ()
    results: tuple[MockResult, ...] = ()
    text: str | Annotated[tuple[str, ...], msgspec.Meta(min_length=1)] = ""
    template: str | None = None
    choices: tuple[MockChoice, ...] = ()
    transformed: str | None = None
    chunks: Annotated[int, msgspec.Meta(ge=1)] | None = None
    pacing: Pacing | None = None
    usage: MockUsage | None = None
    error: MockError | None = None

    def text_of(self, k: int) -> str:
        """Return the text of choice ``k`` of a prompt, from 0."""
        return self.text if isinstance(self.text, str) else self.text[k % len(self.text)]
