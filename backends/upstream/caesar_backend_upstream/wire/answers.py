"""Chunks and bodies of an OpenAI-compatible server as events: a pure state machine."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from caesar_backend_upstream.wire.asks import Ask
from caesar_backend_upstream.wire.tokens import TokensError, read_tokens
from caesar_server.contract import (
    ChoiceFinished,
    ContentDelta,
    Event,
    LogprobToken,
    ProgressNoted,
    StatusChanged,
    StopHoldback,
    UsageCounted,
    WholeCharacters,
    count_words,
)
from caesar_server.contract.events import FinishReason

#: What servers write for OpenAI's three reasons; tool calls end a turn like any other.
_REASONS: Mapping[str, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "content_filter": "content_filter",
    "max_tokens": "length",
    "model_length": "length",
}
#: The most that the contract can count.
_MOST_TOKENS = 2**31 - 1
_LONGEST_WORDS = 500
_STATUSES = ("searching", "researching", "analyzing", "summarizing")


class AnswerError(ValueError):
    """A chunk or body is not what the API says; the message is a clause about the server."""


class AnswerReader:
    """Turns the objects of one answer into events.  Not safe for threads.

    :param ask: what was asked.
    :param prompt_words: the words of the prompts, for servers that count no tokens.
    """

    def __init__(self, ask: Ask, prompt_words: int) -> None:
        self._ask = ask
        self._prompt_words = prompt_words
        self._choices = [_Choice(ask, ask.first_choice + k) for k in range(ask.choices)]
        self._usage: Mapping[str, Any] = {}
        self._status = ""
        self._words = 0
        #: Choices that the server never finished, though it said that the answer is whole.
        self.unfinished = 0
        self._tool_calls: list[Any] = []

    @property
    def complete(self) -> bool:
        """Whether every choice is finished."""
        return all(choice.finished for choice in self._choices)

    @property
    def cut_short(self) -> bool:
        """Whether nothing more is of interest, since this side ended every choice itself."""
        return self.complete and any(choice.stopped_here for choice in self._choices)

    def chunk(self, body: Mapping[str, Any]) -> Iterator[Event]:
        """Yield what a chunk of a stream adds.

        :raises AnswerError: if it is no chunk.
        """
        progress = body.get("caesar")
        if isinstance(progress, dict):
            yield from self._progress(progress)
        # What such a chunk has for thinking is the progress once more, for clients without a place
        # for it.
        yield from self._object(body, "delta", thinks=not isinstance(progress, dict))

    def whole(self, body: Mapping[str, Any]) -> Iterator[Event]:
        """Yield all that a body says that is no stream.

        :raises AnswerError: if it is no answer.
        """
        if not isinstance(body.get("choices"), list) or not body["choices"]:
            raise AnswerError("sent JSON that is no answer")
        yield from self._object(body, "message")

    def end(self) -> Iterator[Event]:
        """Yield what is still to be said once the server has said that this is all."""
        for choice in self._choices:
            if not choice.finished:
                self.unfinished += 1
                yield from self._noted(choice.finish("stop"))
        prompt, completion = self._count("prompt_tokens"), self._count("completion_tokens")
        yield UsageCounted(
            self._prompt_words if prompt is None else prompt,
            self._words if completion is None else completion,
        )

    def details(self) -> dict[str, Any]:
        """Return what the events have no place for."""
        found: dict[str, Any] = {}
        if self._usage:
            found["usage"] = _plain(self._usage)
        if self._count("prompt_tokens") is None or self._count("completion_tokens") is None:
            found["usage_estimated"] = True
        if self.unfinished:
            found["unfinished_choices"] = self.unfinished
        if self._tool_calls:
            found["tool_calls"] = self._tool_calls
        return found

    def _count(self, name: str) -> int | None:
        value = self._usage.get(name)
        return value if type(value) is int and 0 <= value <= _MOST_TOKENS else None

    def _progress(self, progress: Mapping[str, Any]) -> Iterator[Event]:
        status, message = progress.get("status"), progress.get("message")
        text = message if isinstance(message, str) else ""
        if status in _STATUSES and status != self._status:
            self._status = status
            yield StatusChanged(status, text)
        elif text:
            yield ProgressNoted(text)

    def _object(self, body: Mapping[str, Any], key: str, *, thinks: bool = True) -> Iterator[Event]:
        usage = body.get("usage")
        if isinstance(usage, dict):
            # Some servers send it along with every chunk: the last one counts.
            self._usage = usage
        choices = body.get("choices")
        if choices is None and usage is not None:
            return
        if not isinstance(choices, list):
            raise AnswerError("sent JSON that is neither a chunk nor an error")
        # LiteLLM numbers parts of Claude's answers like choices: thinking 0, text 1, calls 2.
        alone = len(choices) == len(self._choices) == 1
        for item in choices:
            if not isinstance(item, dict):
                raise AnswerError("sent a choice that is no object")
            number = self._number(item, alone=alone)
            yield from self._noted(self._choice(item, number, key, thinks))

    def _noted(self, events: Iterator[Event]) -> Iterator[Event]:
        for event in events:
            if isinstance(event, ContentDelta):
                self._words += count_words(event.text)
            yield event

    def _number(self, item: Mapping[str, Any], *, alone: bool) -> int:
        """Return which choice an item is of; ``alone`` where there can be no other."""
        index = item.get("index")
        number = 0 if index is None else index
        if type(number) is not int or number < 0 or not (alone or number < len(self._choices)):
            raise AnswerError(f"sent a choice {number!r:.20} of {len(self._choices)}")
        return 0 if alone else number

    def _choice(
        self, item: Mapping[str, Any], number: int, key: str, thinks: bool
    ) -> Iterator[Event]:
        choice = self._choices[number]
        message = self._message(item, key)
        self._note_tools(number, message)
        if thinks:
            yield from choice.think(_thinking(message))
        yield from choice.say(_content(message), self._tokens(item))
        _check_whole(item)
        reason = item.get("finish_reason")
        if isinstance(reason, str) and reason and not choice.finished:
            yield from choice.finish(_REASONS.get(reason, "stop"))

    def _message(self, item: Mapping[str, Any], key: str) -> Mapping[str, Any]:
        """Return what a choice says, in the form of the other endpoint if it has only that.

        Some answer a stream's request with whole messages, and some know one form of a choice.
        """
        said = next((item[name] for name in (key, "message", "delta") if item.get(name)), None)
        text = item.get("text")
        if text is not None and not (self._ask.chat and said):
            return {"content": _string(text)}
        if said is not None and not isinstance(said, dict):
            raise AnswerError("sent a message that is no object")
        return said or {}

    def _tokens(self, item: Mapping[str, Any]) -> tuple[LogprobToken, ...] | None:
        """Return the tokens of a choice; what was not asked for is not looked at."""
        if not self._ask.logprobs:
            return None
        try:
            return read_tokens(item.get("logprobs"))
        except TokensError as error:
            raise AnswerError(f"sent logprobs that are none: {error}") from error

    def _note_tools(self, number: int, message: Mapping[str, Any]) -> None:
        for name in ("tool_calls", "function_call"):
            if message.get(name):
                self._tool_calls.append({"choice": number, name: _finite(message[name])})


class _Choice:
    """One choice of an answer."""

    def __init__(self, ask: Ask, number: int) -> None:
        self._hold = StopHoldback(ask.stops)
        self._whole, self._whole_thought = WholeCharacters(), WholeCharacters()
        self._echo = ask.echo
        self._number = number
        self.finished = False
        self.stopped_here = False

    def think(self, text: str) -> Iterator[Event]:
        if not self.finished and (whole := self._whole_thought.feed(text)):
            yield ContentDelta(whole, self._number, "reasoning")

    def say(self, text: str, tokens: tuple[LogprobToken, ...] | None) -> Iterator[Event]:
        if self.finished:
            if text and not self.stopped_here:
                raise AnswerError("sent text of a choice that it had finished")
            return
        yield from self._begin()
        if tokens:
            # Text that is counted in tokens is not cut: the server's own stops have to do.
            yield ContentDelta(text, self._number, logprobs=tokens)
            return
        if ready := self._hold.feed(self._whole.feed(text)):
            yield ContentDelta(ready, self._number)
        if self._hold.stopped:
            self.stopped_here = True
            yield from self.finish("stop")

    def finish(self, reason: FinishReason) -> Iterator[Event]:
        yield from self._begin()
        if thought := self._whole_thought.finish():
            yield ContentDelta(thought, self._number, "reasoning")
        if rest := self._hold.feed(self._whole.finish()) + self._hold.finish():
            yield ContentDelta(rest, self._number)
        self.finished = True
        yield ChoiceFinished(self._number, reason)

    def _begin(self) -> Iterator[Event]:
        echo, self._echo = self._echo, ""
        if echo:
            yield ContentDelta(echo, self._number)


def _check_whole(choice: Mapping[str, Any]) -> None:
    """Refuse a choice that the server says is broken off, as OpenRouter does.

    :raises AnswerError: with the server's words.
    """
    error = choice.get("error")
    if choice.get("finish_reason") == "error" or isinstance(error, dict):
        words = error.get("message") if isinstance(error, dict) else None
        said = f": {words[:_LONGEST_WORDS]}" if isinstance(words, str) else ""
        raise AnswerError(f"ended a choice with an error{said}")


def _plain(usage: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of a usage object can be kept: numbers and words, and objects of such."""
    found: dict[str, Any] = {}
    for name, value in usage.items():
        if isinstance(value, dict):
            found[name] = {key: item for key, item in value.items() if _is_plain(item)}
        elif _is_plain(value):
            found[name] = value
    return found


def _finite(value: object) -> object:
    """Return a value that was JSON to Python as JSON: what is no number is None."""
    return json.loads(json.dumps(value), parse_constant=lambda _: None)


def _is_plain(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, (int, str))


def _content(message: Mapping[str, Any]) -> str:
    """Return a message's text: a string, or parts as some servers send them; a refusal is text."""
    content = message.get("content")
    if isinstance(content, list):
        return _joined(content, "text")
    return _string(content) or _string(message.get("refusal"))


def _thinking(message: Mapping[str, Any]) -> str:
    """Return a message's thinking: a field of its own, or parts of the content as of Mistral."""
    for name in ("reasoning_content", "reasoning"):
        if isinstance(thinking := message.get(name), str) and thinking:
            return thinking
    content = message.get("content")
    return _joined(content, "thinking") if isinstance(content, list) else ""


def _joined(parts: Sequence[object], name: str) -> str:
    """Return the texts that parts have under ``name``; but for ``text`` these may be parts, too."""
    found = (part.get(name) for part in parts if isinstance(part, dict))
    if name != "text":
        found = (_joined(item, "text") if isinstance(item, list) else item for item in found)
    return "".join(text for text in found if isinstance(text, str))


def _string(value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise AnswerError("sent text that is no string")
    return value
