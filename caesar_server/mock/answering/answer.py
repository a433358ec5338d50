"""The events of the answer to one prompt."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from random import Random

import msgspec

from caesar_server.contract import (
    ChatRequest,
    ChoiceFinished,
    CompletionRequest,
    ContentDelta,
    Context,
    Event,
    FollowUpRequest,
    LoopFinished,
    ProgressNoted,
    ResearchRequest,
    ResultFound,
    Sampling,
    SourceStored,
    StatusChanged,
    Told,
    UsageCounted,
)
from caesar_server.contract.events import Channel
from caesar_server.mock.answering.choices import Said, choice_of, prompt_said, said
from caesar_server.mock.answering.deltas import Deltas
from caesar_server.mock.answering.pieces import Schedule, is_paced
from caesar_server.mock.answering.waiting import Waiter
from caesar_server.mock.model.pacing import Pacing
from caesar_server.mock.model.reply import MockChoice, Reply


class Question(msgspec.Struct, frozen=True):
    """One prompt of a request.

    :param text: what replies are looked up by.
    :param tokens: the words of all that the caller sent for it.
    :param echo: what the text is to begin with.
    """

    text: str
    tokens: int
    echo: str = ""


class Answer:
    """Tells a reply to one prompt.  For one thread.

    :param reply: without template.
    :param pacing: of a reply that has none of its own.
    :param seed: of the jitter.
    :param cut: makes deltas of texts.
    :param whole: nobody sees the chunks: tell each text in one, when the last of them is due.
    """

    def __init__(
        self,
        request: CompletionRequest | ChatRequest | ResearchRequest | FollowUpRequest,
        question: Question,
        reply: Reply,
        *,
        pacing: Pacing,
        seed: int,
        waiter: Waiter,
        cut: Deltas,
        whole: bool,
        context: Context,
    ) -> None:
        self._question = question
        self._reply = reply
        self._context = context
        self._waiter = waiter
        self._cut = cut
        self._whole = whole
        if isinstance(request, (CompletionRequest, ChatRequest)):
            is_text, self._sampling = True, request.sampling
        else:
            is_text, self._sampling = False, Sampling()
        #: whether a system prompt asks for the answer in another shape
        self._shaped = not isinstance(request, FollowUpRequest) and (
            request.parameters.system_prompt is not None
        )
        # Nobody sees the unshaped text of a completion, so that it is told only where it differs.
        self._both = not is_text or reply.transformed is not None
        self._pacing = reply.pacing or pacing
        paced = is_paced(self._pacing)
        self._schedule = Schedule(self._pacing, Random(seed)) if paced else None

    def events(self, position: int) -> Iterator[Told]:
        """Yield what the reply reports, its choices and their usage.

        A choice stays unfinished if the reply fails.

        :param position: of the prompt.
        :raises Cancelled: as soon as the run is cancelled.
        """
        yield from self._findings()
        n = self._sampling.n
        for k in range(n):
            choice = choice_of(self._reply, k)
            yield from self._choice(choice, position * n + k, is_last=k == n - 1)

    def _findings(self) -> Iterator[Event]:
        reply, context = self._reply, self._context
        self._waiter.wait_for_polls(reply.queued_polls)
        for status in reply.statuses:
            context.raise_if_cancelled()
            yield StatusChanged(status)
            self._waiter.wait_for_polls(reply.polls_per_status)
        for line in reply.progress:
            context.raise_if_cancelled()
            yield ProgressNoted(line)
        for result in reply.results:
            context.raise_if_cancelled()
            id = result.event_id
            yield ResultFound(id, result.title, result.url, result.score, result.citation_index)
            if result.raw is not None or result.markdown is not None:
                yield SourceStored(id, result.raw, result.markdown)
        for request in reply.requests:
            context.raise_if_cancelled()
            yield request.event(reply.results)
        for loop in range(reply.loops or 0):
            context.raise_if_cancelled()
            yield LoopFinished(loop + 1)

    def _choice(self, choice: MockChoice, number: int, *, is_last: bool) -> Iterator[Told]:
        self._context.raise_if_cancelled()
        fails = self._reply.error is not None
        channel: Channel = "transformed" if self._shaped else "content"
        if self._shaped and self._both:
            plain = said(choice, self._sampling)
            yield from self._deltas(plain, number, "content", None)
            if self._reply.transformed is not None:
                choice = MockChoice(
                    text=self._reply.transformed, finish_reason=choice.finish_reason
                )
        answer = said(choice, self._sampling)
        if self._question.echo and not fails:
            prompt = prompt_said(self._question.echo, self._sampling)
            yield ContentDelta(prompt.text, number, channel, prompt.tokens)
        yield from self._deltas(answer, number, channel, self._schedule)
        if not fails:
            usage = self._usage(answer, is_last=is_last)
            if usage is not None:
                yield usage
            yield ChoiceFinished(number, answer.reason)

    def _deltas(
        self, answer: Said, number: int, channel: Channel, schedule: Schedule | None
    ) -> Iterable[Told]:
        """Return the deltas of a text; to be asked for one by one, since some have to wait.

        Those that have not are there already, and go on together.
        """
        if self._whole and schedule is None:
            return self._one(answer, number, channel)
        deltas = self._cut.of(answer, self._pacing, self._reply.chunks, number, channel)
        if schedule is None:
            return (deltas,)
        if self._whole:
            dues = [schedule.due_s(delta.text) for delta in deltas]
            return self._paced(self._one(answer, number, channel), [max(dues, default=0.0)])
        return self._paced(deltas, (schedule.due_s(delta.text) for delta in deltas))

    def _paced(
        self, deltas: Iterable[ContentDelta], dues: Iterable[float]
    ) -> Iterator[ContentDelta]:
        """Yield each delta when it is due."""
        for delta, due_s in zip(deltas, dues, strict=False):
            self._waiter.wait_until(due_s)
            yield delta

    @staticmethod
    def _one(answer: Said, number: int, channel: Channel) -> Sequence[ContentDelta]:
        if not answer.text:
            return ()
        return (ContentDelta(answer.text, number, channel, answer.tokens),)

    def _usage(self, answer: Said, *, is_last: bool) -> UsageCounted | None:
        """Return the usage to report with a choice; that of the prompt comes with the last one."""
        told = self._reply.usage
        counts = told is None or told.completion_tokens is None
        completion = answer.count if counts else 0
        if not is_last:
            return UsageCounted(completion_tokens=completion) if counts else None
        prompt = self._question.tokens
        if told is not None:
            prompt = prompt if told.prompt_tokens is None else told.prompt_tokens
            completion += told.completion_tokens or 0
        return UsageCounted(prompt, completion)
