"""From pieces to OpenAI's objects: one chunk a piece, or all pieces folded into one body.  Pure.

The shapes are those of OpenAI's API description 2.3.0 (``CreateCompletionResponse``,
``CreateChatCompletionResponse``, ``CreateChatCompletionStreamResponse``), with ``caesar`` added.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, ClassVar

import msgspec

from caesar_server.blueprints.compat.rendering.answer import (
    FailurePiece,
    FinishPiece,
    Piece,
    ProgressPiece,
    TextPiece,
    TextsPiece,
    UsagePiece,
)
from caesar_server.contract.events import LogprobToken

Json = dict[str, Any]


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """What all objects of one answer have in common.

    :param created: Unix seconds, an integer.
    :param model: the name that the client asked for.
    :param include_usage: the stream ends with a usage chunk.
    :param show_progress: the stream has a chunk for each piece of progress.
    """

    id: str
    created: int
    model: str
    include_usage: bool = False
    show_progress: bool = True


class Wire(ABC):
    """One endpoint's objects.  Holds the state of one answer; not safe for threads."""

    chunk_object: ClassVar[str]
    body_object: ClassVar[str]

    def __init__(self, envelope: Envelope) -> None:
        self._envelope = envelope

    @cached_property
    def _chunk_base(self) -> Json:
        """What is copied for each chunk."""
        return self._base(self.chunk_object)

    def chunks(self, piece: Piece) -> Sequence[Json]:
        """Return the stream's chunks for ``piece``; a failure has none, its frame is no chunk."""
        match piece:
            case TextsPiece(index, texts):
                return [self._text_chunk(TextPiece(index, text))[0] for text in texts]
            case TextPiece():
                return self._text_chunk(piece)
            case FinishPiece():
                return (self._chunk([self._finish_choice(piece)]),)
            case ProgressPiece():
                return self._progress(piece)
            case UsagePiece():
                if not self._envelope.include_usage:
                    return ()
                return ({**self._chunk([]), "usage": usage_object(piece)},)
            case FailurePiece():
                return ()

    def fold(self, pieces: Iterable[Piece], choices: int) -> Json:
        """Return the one body that says what the chunks of ``pieces`` would have said.

        :param choices: how many choices the request has.
        :raises ValueError: if the pieces are not those of a complete answer.
        """
        texts: defaultdict[int, list[TextsPiece | TextPiece]] = defaultdict(list)
        reasons: dict[int, str] = {}
        usage: UsagePiece | None = None
        for piece in pieces:
            if isinstance(piece, (TextsPiece, TextPiece)):
                texts[piece.choice].append(piece)
            elif isinstance(piece, FinishPiece):
                reasons[piece.choice] = piece.reason
            elif isinstance(piece, UsagePiece):
                usage = piece
        if usage is None or len(reasons) != choices:
            raise ValueError("the answer is not complete")
        return {
            **self._base(self.body_object),
            "choices": [
                self._whole_choice(index, texts[index], reasons[index]) for index in range(choices)
            ],
            "usage": usage_object(usage),
        }

    @abstractmethod
    def plain_chunk(self, choice: int, text: str) -> Json:
        """Return the chunk of more text of a choice that has some already.  Changes nothing."""

    @abstractmethod
    def note_text(self, choice: int, characters: int) -> None:
        """Note that so much text was sent for which :meth:`chunks` was not called."""

    @abstractmethod
    def _text_choice(self, piece: TextPiece) -> Json | None:
        """Return the ``choices`` item that carries ``piece``; None if there is no place for it."""

    @abstractmethod
    def _finish_choice(self, piece: FinishPiece) -> Json:
        """Return the item that ends a choice."""

    @abstractmethod
    def _progress_choice(self, message: str) -> Json:
        """Return an item without content."""

    @abstractmethod
    def _whole_choice(
        self, index: int, pieces: Sequence[TextsPiece | TextPiece], reason: str
    ) -> Json:
        """Return the item of a complete choice."""

    def _text_chunk(self, piece: TextPiece) -> Sequence[Json]:
        choice = self._text_choice(piece)
        return () if choice is None else (self._chunk([choice]),)

    def _progress(self, piece: ProgressPiece) -> Sequence[Json]:
        if not self._envelope.show_progress:
            return ()
        extension = {
            "id": self._envelope.id,
            "status": piece.status,
            "message": piece.message,
        }
        chunk = self._chunk([self._progress_choice(piece.message or piece.status)])
        return ({**chunk, "caesar": extension},)

    def _chunk(self, choices: list[Json]) -> Json:
        chunk = {**self._chunk_base, "choices": choices}
        if self._envelope.include_usage:
            chunk["usage"] = None
        return chunk

    def _base(self, kind: str) -> Json:
        envelope = self._envelope
        return {
            "id": envelope.id,
            "object": kind,
            "created": envelope.created,
            "model": envelope.model,
        }


class CompletionWire(Wire):
    """``POST /compat/completions``: ``text_completion``, streamed or not."""

    chunk_object = "text_completion"
    body_object = "text_completion"

    def __init__(self, envelope: Envelope) -> None:
        super().__init__(envelope)
        # characters of each choice so far: text_offset counts from the choice's start
        self._offsets: defaultdict[int, int] = defaultdict(int)

    def plain_chunk(self, choice: int, text: str) -> Json:
        """Return the chunk of more text of a choice that has some already."""
        return self._chunk([_completion_choice(choice, text, None, None)])

    def note_text(self, choice: int, characters: int) -> None:
        """Note that so much text was sent for which :meth:`chunks` was not called."""
        self._offsets[choice] += characters

    def _text_choice(self, piece: TextPiece) -> Json | None:
        if piece.reasoning:
            return None
        logprobs = completion_logprobs(piece.logprobs, self._offsets[piece.choice])
        self._offsets[piece.choice] += len(piece.text)
        return _completion_choice(piece.choice, piece.text, logprobs, None)

    def _finish_choice(self, piece: FinishPiece) -> Json:
        return _completion_choice(piece.choice, "", None, piece.reason)

    def _progress_choice(self, message: str) -> Json:
        return _completion_choice(0, "", None, None)

    def _whole_choice(
        self, index: int, pieces: Sequence[TextsPiece | TextPiece], reason: str
    ) -> Json:
        logprobs: Json | None = None
        text = ""
        for piece in pieces:
            if isinstance(piece, TextPiece):
                if piece.reasoning:
                    continue
                more = completion_logprobs(piece.logprobs, len(text))
                if more is not None:
                    logprobs = more if logprobs is None else _joined(logprobs, more)
            text += _answer_text(piece)
        return _completion_choice(index, text, logprobs, reason)


class ChatWire(Wire):
    """``POST /compat/chat/completions``."""

    chunk_object = "chat.completion.chunk"
    body_object = "chat.completion"

    def __init__(self, envelope: Envelope) -> None:
        super().__init__(envelope)
        self._introduced: set[int] = set()

    def plain_chunk(self, choice: int, text: str) -> Json:
        """Return the chunk of more text of a choice that has some already."""
        return self._chunk([_chat_choice(choice, {"content": text}, None, None)])

    def note_text(self, choice: int, characters: int) -> None:
        """Note nothing: chat's log probabilities have no offsets."""

    def _text_choice(self, piece: TextPiece) -> Json | None:
        key = "reasoning_content" if piece.reasoning else "content"
        return self._choice(piece.choice, {key: piece.text}, chat_logprobs(piece.logprobs), None)

    def _finish_choice(self, piece: FinishPiece) -> Json:
        # A choice without any text still says who speaks, and that it says nothing.
        delta = {} if piece.choice in self._introduced else {"content": ""}
        return self._choice(piece.choice, delta, None, piece.reason)

    def _progress_choice(self, message: str) -> Json:
        return self._choice(0, {"reasoning_content": message + "\n"}, None, None)

    def _choice(self, index: int, delta: Json, logprobs: Json | None, reason: str | None) -> Json:
        if index not in self._introduced:
            self._introduced.add(index)
            delta = {"role": "assistant", **delta}
        return _chat_choice(index, delta, logprobs, reason)

    def _whole_choice(
        self, index: int, pieces: Sequence[TextsPiece | TextPiece], reason: str
    ) -> Json:
        message: Json = {
            "role": "assistant",
            "content": "".join(map(_answer_text, pieces)),
            "refusal": None,
        }
        # nearly always there are none
        richer = [piece for piece in pieces if isinstance(piece, TextPiece)]
        reasoning = "".join(piece.text for piece in richer if piece.reasoning)
        if reasoning:
            message["reasoning_content"] = reasoning
        tokens = [token for piece in richer for token in piece.logprobs or ()]
        asked = any(piece.logprobs is not None for piece in richer)
        logprobs = chat_logprobs(tokens) if asked else None
        return {"index": index, "message": message, "logprobs": logprobs, "finish_reason": reason}


def usage_object(piece: UsagePiece) -> Json:
    """Return OpenAI's ``usage``."""
    return {
        "prompt_tokens": piece.prompt_tokens,
        "completion_tokens": piece.completion_tokens,
        "total_tokens": piece.prompt_tokens + piece.completion_tokens,
    }


def completion_logprobs(tokens: Sequence[LogprobToken] | None, offset: int) -> Json | None:
    """Return the four parallel arrays of the completions API.

    :param offset: characters of the choice before these tokens.
    """
    if tokens is None:
        return None
    offsets = []
    for token in tokens:
        offsets.append(offset)
        offset += len(token.token)
    return {
        "tokens": [token.token for token in tokens],
        "token_logprobs": [_finite(token.logprob) for token in tokens],
        "top_logprobs": [
            None if token.logprob is None else _alternatives(token) for token in tokens
        ],
        "text_offset": offsets,
    }


def _alternatives(token: LogprobToken) -> dict[str, float | None]:
    """Return the alternatives by their text; of two with the same, such as U+FFFD, the better."""
    found: dict[str, float | None] = {}
    for top in token.top:
        found.setdefault(top.token, _finite(top.logprob))
    return found


def chat_logprobs(tokens: Sequence[LogprobToken] | None) -> Json | None:
    """Return the ``logprobs`` object of the chat API."""
    if tokens is None:
        return None
    return {
        "content": [
            {
                **_chat_token(token.token, _finite(token.logprob) or 0.0),
                "top_logprobs": [_chat_token(top.token, _finite(top.logprob)) for top in token.top],
            }
            for token in tokens
        ],
        "refusal": None,
    }


def _finite(logprob: float | None) -> float | None:
    """Return what clients can read: OpenAI's API writes -9999 for what is out of the question.

    No probability is above 1, but rounding makes some backends say so of what is certain.
    """
    if logprob is None:
        return None
    return min(logprob, 0.0) if math.isfinite(logprob) else -9999.0


def _chat_token(token: str, logprob: float | None) -> Json:
    try:
        data: list[int] | None = list(token.encode())
    except UnicodeEncodeError:
        data = None  # a token that ends within a character: half a surrogate pair has no bytes
    return {"token": token, "logprob": logprob, "bytes": data}


def _answer_text(piece: TextsPiece | TextPiece) -> str:
    """Return what a piece adds to the text of the answer."""
    if isinstance(piece, TextsPiece):
        return "".join(piece.texts)
    return "" if piece.reasoning else piece.text


def _chat_choice(index: int, delta: Json, logprobs: Json | None, reason: str | None) -> Json:
    return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason}


def _completion_choice(index: int, text: str, logprobs: Json | None, reason: str | None) -> Json:
    return {"text": text, "index": index, "logprobs": logprobs, "finish_reason": reason}


def _joined(first: Json, second: Json) -> Json:
    return {key: first[key] + second[key] for key in first}
