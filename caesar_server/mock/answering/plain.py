"""Replies that are a text and nothing else, as most are: told without what the others need."""

from __future__ import annotations

from collections.abc import Sequence

from caesar_server.contract import (
    ChatRequest,
    ChoiceFinished,
    Completed,
    CompletionRequest,
    ContentDelta,
    Event,
    Request,
    Sampling,
    UsageCounted,
)
from caesar_server.mock.answering.answer import Question
from caesar_server.mock.answering.choices import choice_of, said
from caesar_server.mock.answering.deltas import Deltas
from caesar_server.mock.answering.pieces import is_paced
from caesar_server.mock.model.pacing import Pacing
from caesar_server.mock.model.reply import Reply
from caesar_server.mock.model.rule import Decision

_ASKS_NOTHING = Sampling()


def plain_reply(request: Request, decision: Decision) -> Reply | None:
    """Return the reply if one choice of its text, cut nowhere and told at once, is all of it.

    :class:`~caesar_server.mock.answering.answer.Answer` would tell the same.
    """
    reply = decision.reply
    if not (isinstance(reply, Reply) and _asks_no_more(request)):
        return None
    if is_paced(reply.pacing or decision.pacing):
        return None
    alone = Reply(text=reply.text, chunks=reply.chunks, pacing=reply.pacing)
    return reply if reply == alone else None


def plain_events(
    reply: Reply, question: Question, pacing: Pacing, cut: Deltas, *, whole: bool
) -> tuple[Event, ...]:
    """Return the events of such a reply; all at once, since nothing has to wait.

    :param pacing: how its text is cut.
    :param whole: nobody sees the chunks: tell the text in one.
    """
    answer = said(choice_of(reply, 0), _ASKS_NOTHING)
    deltas: Sequence[ContentDelta]
    if whole and answer.text:
        deltas = (ContentDelta(answer.text, 0, "content"),)
    else:
        deltas = cut.of(answer, pacing, reply.chunks, 0, "content")
    counted = UsageCounted(question.tokens, answer.count)
    return (*deltas, counted, ChoiceFinished(0, answer.reason), Completed())


def _asks_no_more(request: Request) -> bool:
    if isinstance(request, CompletionRequest):
        if request.echo or len(request.prompts) != 1:
            return False
    elif not isinstance(request, ChatRequest):
        return False
    sampling = request.sampling
    return (
        sampling.n == 1
        and sampling.max_tokens is None
        and not sampling.stop
        and sampling.logprobs is None
        and request.parameters.system_prompt is None
    )
