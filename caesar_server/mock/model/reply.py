"""What the mock answers."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Annotated, TypeAlias

import msgspec

from caesar_server.contract import ErrorInfo, RequestLogged
from caesar_server.contract.events import FinishReason, RunningStatus
from caesar_server.mock.model.pacing import LONGEST_WAIT_S, Pacing, Seconds

Polls: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
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


class MockRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A call to a third party that the reply claims to have made.

    :param url: that was called.
    :param method: of HTTP.
    :param response_status: None: there was no answer.
    :param duration_ms: whole milliseconds.
    :param request_headers: as one text.
    :param request_body: as text.
    :param response_headers: as one text.
    :param response_body: as text.
    :param provider: of the third party, for programs.
    :param provider_display_name: for people.
    :param provider_icon: URL of an image.
    :param result: the place, from 0, of the reply's result that the call became; None: of none.
    """

    url: str
    method: str = "GET"
    response_status: Annotated[int, msgspec.Meta(ge=100, le=599)] | None = 200
    duration_ms: Annotated[int, msgspec.Meta(ge=0, le=LONGEST_WAIT_S * 1000)] = 0
    request_headers: str = ""
    request_body: str = ""
    response_headers: str = ""
    response_body: str = ""
    provider: str = ""
    provider_display_name: str = ""
    provider_icon: str = ""
    result: Annotated[int, msgspec.Meta(ge=0)] | None = None

    def event(self, results: Sequence[MockResult]) -> RequestLogged:
        """Return what is reported.

        :param results: of the reply; ``result`` must be within them.
        """
        fields = msgspec.structs.asdict(self)
        place = fields.pop("result")
        return RequestLogged(**fields, result_id=None if place is None else results[place].event_id)


class MockQuestion(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A clarifying question, for a brainstorm request.

    :param question: its text.
    :param options: answers to choose from.
    """

    question: str
    options: tuple[str, ...] = ()


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

    :param queued_polls: of a research job or a follow-up question: who polls it sees it waiting
        (``queued``, ``processing``) so many times before anything else is done.
    :param statuses: phases to report.
    :param polls_per_status: of such a job: each of ``statuses`` is what so many polls see.
    :param progress: lines of progress.
    :param results: sources to report.
    :param requests: calls to third parties to report.
    :param loops: reasoning loops to report as done; None reports none.
    :param questions: of a brainstorm request: what to ask.  Everything below, but ``pacing`` and
        ``error``, is nothing to such a request.
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

    queued_polls: Polls = 0
    statuses: tuple[RunningStatus, ...] = ()
    polls_per_status: Polls = 0
    progress: tuple[str, ...] = ()
    results: tuple[MockResult, ...] = ()
    requests: tuple[MockRequest, ...] = ()
    loops: Annotated[int, msgspec.Meta(ge=0, le=1000)] | None = None
    questions: tuple[MockQuestion, ...] = ()
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
