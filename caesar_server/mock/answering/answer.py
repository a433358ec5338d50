"""The events of the answer to one prompt."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from caesar_server.contract import (
    ChatRequest,
    ChoiceFinished,
    CompletionRequest,
    ContentDelta,
    Context,
    Event,
    ProgressNoted,
    ResearchRequest,
    ResultFound,
    Sampling,
    SourceStored,
    StatusChanged,
    UsageCounted,
)
from caesar_server.contract.events import Channel
from caesar_server.mock.answering.choices import Said, choice_of, prompt_said, said
from caesar_server.mock.answering.deltas import Deltas
from caesar_server.mock.answering.pieces import Schedule, is_paced
from caesar_server.mock.answering.waiting import Waiter
from caesar_server.mock.model.pacing import Pacing
from caesar_server.mock.model.reply import MockChoice, Reply


@dataclass(frozen=True, slots=True)
class Question:
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
        request: CompletionRequest | ChatRequest | ResearchRequest,
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
        self._sampling = Sampling() if isinstance(request, ResearchRequest) else request.sampling
        #: whether a system prompt asks for the answer in another shape
        self._shaped = request.parameters.system_prompt is not None
        # Nobody sees the unshaped text of a completion, so that it is told only where it differs.
        self._both = isinstance(request, ResearchRequest) or reply.transformed is not None
        self._pacing = reply.pacing or pacing
        paced = is_paced(self._pacing)
        self._schedule = Schedule(self._pacing, Random(seed)) if paced else None

    def events(self, position: int) -> Iterator[Event]:
        """Yield what the reply reports, its choices and their usage.

        A choice stays unfinished if the reply fails.

        :param position: of the prompt.
        :raises Cancelled: as soon as the run is cancelled.
        """
        yield from self._findings()
        for k in range(self._sampling.n):
            yield from self._choice(choice_of(self._reply, k), position * self._sampling.n + k)
        if self._reply.error is None:
            yield self._usage()

    def _findings(self) -> Iterator[Event]:
        reply, context = self._reply, self._context
        for status in reply.statuses:
            context.raise_if_cancelled()
            yield StatusChanged(status)
        for line in reply.progress:
            context.raise_if_cancelled()
            yield ProgressNoted(line)
        for result in reply.results:
            context.raise_if_cancelled()
            id = result.event_id
            yield ResultFound(id, result.title, result.url, result.score, result.citation_index)
            if result.raw is not None or result.markdown is not None:
                yield SourceStored(id, result.raw, result.markdown)

    def _choice(self, choice: MockChoice, number: int) -> Iterator[Event]:
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
            usage = self._reply.usage
            if usage is None or usage.completion_tokens is None:
                yield UsageCounted(completion_tokens=answer.count)
            yield ChoiceFinished(number, answer.reason)

    def _deltas(
        self, answer: Said, number: int, channel: Channel, schedule: Schedule | None
    ) -> Iterator[Event]:
        context = self._context
        if self._whole and schedule is None:
            context.raise_if_cancelled()
            yield from self._one(answer, number, channel)
            return
        deltas = self._cut.of(answer, self._pacing, self._reply.chunks, number, channel)
        if schedule is None:
            for delta in deltas:
                context.raise_if_cancelled()
                yield delta
        elif self._whole:
            dues = [schedule.due_s(delta.text) for delta in deltas]
            self._waiter.wait_until(max(dues, default=0.0))
            yield from self._one(answer, number, channel)
        else:
            for delta in deltas:
                self._waiter.wait_until(schedule.due_s(delta.text))
                yield delta

    @staticmethod
    def _one(answer: Said, number: int, channel: Channel) -> Iterator[Event]:
        if answer.text:
            yield ContentDelta(answer.text, number, channel, answer.tokens)

    def _usage(self) -> UsageCounted:
        usage = self._reply.usage
        if usage is None:
            return UsageCounted(prompt_tokens=self._question.tokens)
        prompt = self._question.tokens if usage.prompt_tokens is None else usage.prompt_tokens
        return UsageCounted(prompt, usage.completion_tokens or 0)
