"""From the records of a follow-up to the frames of ``chat.completion.chunk`` objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from caesar_server.blueprints.research.chat.citing import cited_results
from caesar_server.blueprints.research.chat.messages import Message
from caesar_server.blueprints.research.rendering.objects import sound
from caesar_server.contract import sse
from caesar_server.contract.errors import ErrorInfo
from caesar_server.contract.events import (
    ChoiceFinished,
    ContentDelta,
    Event,
    Failed,
    FinishReason,
    ResultFound,
)
from caesar_server.store.base import Record
from caesar_server.web.errors import error_object


class ChatFraming:
    """The text as it comes; at last why it ended, and what it cites.  Not safe for threads.

    :param message: the assistant's.
    """

    def __init__(self, message: Message) -> None:
        self._message = message
        self._results: dict[str, ResultFound] = {}
        self._texts: list[str] = []
        self._reason: FinishReason = "stop"
        self._introduced = False
        #: The first half of a character whose other half has still to come.
        self._half = ""

    def of(self, records: Sequence[Record]) -> Iterable[bytes]:
        """Yield the frames for more text."""
        for record in records:
            yield from self._of(record.event)

    def _of(self, event: Event) -> Iterable[bytes]:
        """Return the frame for an event's text, or none."""
        match event:
            case ContentDelta(choice=0, channel="content", text=text) if text:
                self._texts.append(text)
                return self._content(text)
            case ResultFound() as result:
                self._results[result.id] = result
            case ChoiceFinished(choice=0, reason=reason):
                self._reason = reason
        return ()

    def last(self, record: Record) -> Iterable[bytes]:
        """Return the end: the last chunk with ``results``, or an error; then ``[DONE]``."""
        if isinstance(record.event, Failed):
            return self.broken(record.event.error)
        rest: Sequence[bytes] = ()
        if self._half:
            self._half = ""
            rest = self._content("\ufffd")
        # an answer without any text still says who speaks, and that it says nothing
        chunk = self._chunk({} if self._introduced else {"content": ""}, self._reason)
        results = cited_results(
            "".join(self._texts), self._results.values(), self._message.follow_up.sources
        )
        if results:
            chunk["results"] = results
        return (*rest, sse.frame(chunk), sse.DONE)

    def broken(self, info: ErrorInfo) -> Sequence[bytes]:
        """Return the error and the end."""
        return (sse.frame(error_object(info)), sse.DONE)

    def _content(self, text: str) -> Sequence[bytes]:
        text = self._half + text
        self._half = text[-1] if "\ud800" <= text[-1] <= "\udbff" else ""
        text = text.removesuffix(self._half)
        return (sse.frame(self._chunk({"content": sound(text)}, None)),) if text else ()

    def _chunk(self, delta: Mapping[str, Any], reason: FinishReason | None) -> dict[str, Any]:
        if not self._introduced:
            self._introduced = True
            delta = {"role": "assistant", **delta}
        job = self._message.job
        return {
            "id": job.id,
            "object": "chat.completion.chunk",
            "created": int(job.created_at),
            "model": job.model,
            "choices": [{"index": 0, "delta": delta, "finish_reason": reason}],
        }
