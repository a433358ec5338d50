"""The domain facts that a backend yields, in the order in which they become true.

The rules of one run, checked by the runner and by the conformance suite:

* exactly one terminal event, :class:`Completed` or :class:`Failed`, and nothing after it;
* :class:`Started`, if any, before the first :class:`ContentDelta`, at most once;
* choices are numbered ``prompt position * n + k``; before ``Completed`` every choice has exactly
  one :class:`ChoiceFinished`, and no delta of a choice follows it;
* the deltas of one choice and channel, joined, are its text;
* each field holds what its type says: ``str`` and not ``bytes``, an ``int`` where a whole number
  stands (neither ``True`` nor ``2.0``) of at most 2**31 - 1, which every client can read; a number
  of another library, such as ``numpy.float64``, is to be made a ``float`` or ``int`` first.

An event that breaks a rule is not stored: it ends the run with a 500, and the log says why.

Events are immutable and may be shared between threads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, TypeAlias

import msgspec

from caesar_server.contract import codec
from caesar_server.contract.errors import ErrorInfo

#: The seven statuses of a Caesar research job (``GET /research/{id}``, version 2025-11-27).
Status: TypeAlias = Literal[
    "queued", "searching", "researching", "analyzing", "summarizing", "completed", "failed"
]
#: Statuses that a backend may report itself; the others follow from how the job is run.
RunningStatus: TypeAlias = Literal["searching", "researching", "analyzing", "summarizing"]
#: Which text a delta belongs to: the answer, the answer reshaped by a system prompt, or thinking.
Channel: TypeAlias = Literal["content", "transformed", "reasoning"]
#: Why a choice ended, in OpenAI's words.
FinishReason: TypeAlias = Literal["stop", "length", "content_filter"]


class Started(codec.Value, frozen=True):
    """The backend is at work; before the first delta.

    :param details: JSON values that a response header or a log may want, such as which upstream
        answered: ``{"upstream": "gpu-1"}``.
    """

    type: ClassVar[str] = "started"
    details: Mapping[str, Any] = msgspec.field(default_factory=dict)


class StatusChanged(codec.Value, frozen=True):
    """The job entered a new phase.  Statuses may repeat from loop to loop.

    ``queued``, ``completed`` and ``failed`` are the server's own to report.
    """

    type: ClassVar[str] = "status_changed"
    status: Status
    message: str = ""


class ProgressNoted(codec.Value, frozen=True):
    """One line for a person who waits, such as ``"Reading 12 sources"``."""

    type: ClassVar[str] = "progress_noted"
    message: str


class ResultFound(codec.Value, frozen=True):
    """A source.  A second event with the same ``id`` replaces the first.

    :param id: unique within the job.
    :param score: relevance from 0 to 1, or None.
    :param citation_index: the ``n`` of ``[n]`` in the text, from 1, or None while uncited.
    """

    type: ClassVar[str] = "result_found"
    id: str
    title: str
    url: str
    score: float | None = None
    citation_index: int | None = None


class SourceStored(codec.Value, frozen=True):
    """The content of the result ``result_id``: as fetched (``raw``) and as Markdown."""

    type: ClassVar[str] = "source_stored"
    result_id: str
    raw: str | None = None
    markdown: str | None = None


class RequestLogged(codec.Value, frozen=True):
    """One call to a third party (``GET /research/{id}/http_requests``).

    Headers and bodies are shown to the owner of the job: leave credentials out.

    :param response_status: 100 to 599, or None if no answer came.
    :param duration_ms: whole milliseconds, from 0.
    :param result_id: the result that the call became, or None.
    """

    type: ClassVar[str] = "request_logged"
    url: str
    method: str = "GET"
    response_status: int | None = None
    duration_ms: int = 0
    request_headers: str = ""
    request_body: str = ""
    response_headers: str = ""
    response_body: str = ""
    provider: str = ""
    provider_display_name: str = ""
    provider_icon: str = ""
    result_id: str | None = None


class LoopFinished(codec.Value, frozen=True):
    """Reasoning loop number ``loop``, from 1, is done."""

    type: ClassVar[str] = "loop_finished"
    loop: int


class TopLogprob(codec.Value, frozen=True):
    """An alternative token at one position, with its natural log probability."""

    token: str
    logprob: float


class LogprobToken(codec.Value, frozen=True):
    """One token of a delta.

    :param logprob: natural log probability, finite; None only for the first token of an echoed
        prompt.
    :param top: the most likely tokens at this position, best first.
    """

    token: str
    logprob: float | None
    top: tuple[TopLogprob, ...] = ()


class ContentDelta(codec.Value, frozen=True, gc=False):
    """More text of one choice.  Never half a character, never a part of a stop sequence.

    :param text: the increment; may be empty if it carries ``logprobs``.
    :param choice: ``prompt position * n + k``, from 0.
    :param logprobs: the tokens whose texts make up ``text``, or None.
    """

    type: ClassVar[str] = "content_delta"
    text: str
    choice: int = 0
    channel: Channel = "content"
    logprobs: tuple[LogprobToken, ...] | None = None


class UsageCounted(codec.Value, frozen=True):
    """Tokens used since the last such event: a run's usage is the sum over these events.

    Count the tokens of a prompt once, however many choices it has.
    """

    type: ClassVar[str] = "usage_counted"
    prompt_tokens: int = 0
    completion_tokens: int = 0


class ChoiceFinished(codec.Value, frozen=True):
    """Choice ``choice`` is complete.  ``length`` means cut by ``max_tokens`` or the context."""

    type: ClassVar[str] = "choice_finished"
    choice: int = 0
    reason: FinishReason = "stop"


class Completed(codec.Value, frozen=True):
    """Terminal: the answer is whole.

    :param details: JSON values about what the run decided, such as ``stopped_because``, chosen
        parameters and ``loops_consumed``.
    """

    type: ClassVar[str] = "completed"
    details: Mapping[str, Any] = msgspec.field(default_factory=dict)


class Failed(codec.Value, frozen=True):
    """Terminal: there will be no (more) answer.

    A backend may yield this or raise one of :mod:`caesar_server.contract.errors`: the same.
    """

    type: ClassVar[str] = "failed"
    error: ErrorInfo


Event: TypeAlias = (
    Started
    | StatusChanged
    | ProgressNoted
    | ResultFound
    | SourceStored
    | RequestLogged
    | LoopFinished
    | ContentDelta
    | UsageCounted
    | ChoiceFinished
    | Completed
    | Failed
)

#: What a backend yields: an event, or a list or tuple of those that are there at the same time.
Told: TypeAlias = Event | Sequence[Event]

EVENT_TYPES: Mapping[str, type[Event]] = {
    cls.type: cls
    for cls in (
        Started,
        StatusChanged,
        ProgressNoted,
        ResultFound,
        SourceStored,
        RequestLogged,
        LoopFinished,
        ContentDelta,
        UsageCounted,
        ChoiceFinished,
        Completed,
        Failed,
    )
}


def events_of(told: Told) -> Sequence[Event]:
    """Return the events of one item that a backend yielded."""
    return told if isinstance(told, (list, tuple)) else (told,)


def event_to_json(event: Event) -> dict[str, Any]:
    """Return ``event`` as a JSON object whose ``type`` is the event's name in snake case."""
    if type(event) is ContentDelta and event.logprobs is None:
        # nearly all are of this kind, and this takes a tenth of the time
        return {
            "type": "content_delta",
            "text": event.text,
            "choice": event.choice,
            "channel": event.channel,
            "logprobs": None,
        }
    return codec.to_json(event)


def event_from_json(data: object) -> Event:
    """Return the event that :func:`event_to_json` turned into ``data``.

    :raises ValueError: if ``data`` is no such object.
    """
    return codec.from_json(data, EVENT_TYPES, "event")
