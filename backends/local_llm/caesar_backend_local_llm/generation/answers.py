"""The events of an answer: prompts are read, choices generated, token by token."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, replace

from caesar_backend_local_llm.engine.failures import AbortedError, EvaluationError
from caesar_backend_local_llm.engine.grammars.grammar import GrammarError
from caesar_backend_local_llm.engine.instance import Instance, Logits
from caesar_backend_local_llm.engine.likelihoods import described, logprob_of
from caesar_backend_local_llm.engine.sampler import Sampler
from caesar_backend_local_llm.generation.asks import Ask
from caesar_backend_local_llm.generation.echoes import EchoedPrompt
from caesar_backend_local_llm.generation.prompts import Prompt
from caesar_backend_local_llm.generation.text import ChoiceText
from caesar_backend_local_llm.loaded import LoadedModel
from caesar_server.contract import (
    BackendError,
    ChoiceFinished,
    ContentDelta,
    Context,
    Event,
    InvalidRequestError,
    LogprobToken,
    UsageCounted,
)
from caesar_server.contract.events import FinishReason


@dataclass(slots=True)
class Spent:
    """What an answer took.

    :param prompt_s: seconds of reading prompts.
    :param generation_s: seconds of generating, without those in which nobody took the text.
    """

    prompt_tokens: int = 0
    reused_tokens: int = 0
    completion_tokens: int = 0
    prompt_s: float = 0.0
    generation_s: float = 0.0


@dataclass(frozen=True, slots=True)
class _Outcome:
    """How a candidate ended.

    :param quality: the mean log probability of its tokens, where it was asked for.
    """

    reason: FinishReason
    tokens: int
    quality: float


class Answer:
    """Generates the answer to one request, with an instance that is its own as long as it lasts.

    :param spent: is added to as it goes on.
    """

    def __init__(
        self, ask: Ask, model: LoadedModel, instance: Instance, context: Context, spent: Spent
    ) -> None:
        self._ask = ask
        self._model = model
        self._instance = instance
        self._context = context
        self._spent = spent
        self._ranked = ask.candidates > ask.n

    def events(self) -> Iterator[Event]:
        """Yield the deltas, usage and ends of all choices, prompt by prompt.

        :raises Cancelled: within a few milliseconds of a cancel, also in the middle of a prompt.
        :raises InvalidRequestError: if a grammar of the caller becomes too much to follow.
        :raises BackendError: if the library fails.
        """
        try:
            for position, prompt in enumerate(self._ask.prompts):
                yield from self._prompt_events(prompt, position * self._ask.n)
        except AbortedError:
            self._context.raise_if_cancelled()
            raise BackendError("the evaluation was ended, and nobody asked for it") from None
        except EvaluationError as error:
            raise BackendError(f"The model {self._model.name!r} failed: {error}") from error
        except GrammarError as error:
            param = self._ask.grammar_param
            raise InvalidRequestError(
                f"{param}: the text cannot go on by this grammar: {error}", param=param
            ) from error

    def _prompt_events(self, prompt: Prompt, first: int) -> Iterator[Event]:
        self._context.raise_if_cancelled()
        echo, logits = self._read(prompt)
        yield UsageCounted(prompt_tokens=len(prompt.tokens))
        if self._ranked:
            yield from self._best(prompt, first, logits, echo)
            return
        for number in range(self._ask.n):
            if echo is not None:
                yield _of(echo, first + number)
            with closing(self._candidate(prompt, number, first + number, logits)) as deltas:
                outcome = yield from deltas
            yield from _end(first + number, outcome)

    def _best(
        self, prompt: Prompt, first: int, logits: Logits, echo: ContentDelta | None
    ) -> Iterator[Event]:
        """Generate all candidates, then yield the best, the best first."""
        found: list[tuple[list[ContentDelta], _Outcome]] = []
        for number in range(self._ask.candidates):
            deltas: list[ContentDelta] = []
            with closing(self._candidate(prompt, number, first, logits)) as going:
                found.append((deltas, _run(going, deltas)))
        found.sort(key=lambda candidate: -candidate[1].quality)
        lost = sum(outcome.tokens for _, outcome in found[self._ask.n :])
        if lost:
            yield UsageCounted(completion_tokens=lost)
        for choice, (deltas, outcome) in enumerate(found[: self._ask.n], first):
            for delta in deltas if echo is None else (echo, *deltas):
                yield _of(delta, choice)
            yield from _end(choice, outcome)

    def _read(self, prompt: Prompt) -> tuple[ContentDelta | None, Logits]:
        """Evaluate a prompt; return its echo, or None, and the logits after it."""
        began = time.monotonic()
        reuse = self._model.plan.reuse_prompts
        echo = ContentDelta(prompt.echo) if prompt.echo else None
        if prompt.echo is not None and self._ask.logprobs is not None:
            echoed = EchoedPrompt(self._model.vocabulary, prompt.tokens, self._ask.logprobs)
            logits, reused = self._instance.read(prompt.tokens, each=echoed.note)
            echo = echoed.delta(prompt.echo)
        else:
            logits, reused = self._instance.read(prompt.tokens, reuse=reuse)
        self._spent.prompt_tokens += len(prompt.tokens)
        self._spent.reused_tokens += reused
        self._spent.prompt_s += time.monotonic() - began
        return echo, logits.copy()  # the next evaluation writes over them

    def _candidate(
        self, prompt: Prompt, number: int, choice: int, logits: Logits
    ) -> Generator[ContentDelta, None, _Outcome]:
        """Generate one candidate from the logits after the prompt."""
        ask = self._ask
        if not self._instance.rewind(len(prompt.tokens)):
            logits, _ = self._instance.read(prompt.tokens)
        grammar = None if ask.grammar is None else ask.grammar.copy()
        seed = None if ask.seed is None else ask.seed + number
        sampler = Sampler(ask.rules, prompt.tokens, seed, grammar)
        text = ChoiceText(choice, ask.stops, with_logprobs=ask.logprobs is not None)
        return (yield from self._tokens(sampler, text, logits, prompt.limit))

    def _tokens(
        self, sampler: Sampler, text: ChoiceText, logits: Logits, limit: int
    ) -> Generator[ContentDelta, None, _Outcome]:
        vocabulary, context, spent = self._model.vocabulary, self._context, self._spent
        reason: FinishReason = "length"
        total, scored, count = 0.0, 0, 0
        began = time.monotonic()
        while True:
            context.raise_if_cancelled()
            token = sampler.choose(logits)
            if token is not None and self._ranked:
                total, scored = total + logprob_of(logits, token), scored + 1
            if token is None or self._ends(token):
                reason = "stop"
                break
            sampler.accept(token)
            count += 1
            spent.completion_tokens += 1
            delta = text.feed(vocabulary.piece(token), self._described(logits, token))
            if delta is not None:
                spent.generation_s += time.monotonic() - began
                yield delta
                began = time.monotonic()
            if text.stopped:
                reason = "stop"
                break
            if count == limit:
                break
            logits = self._instance.append(token)
        spent.generation_s += time.monotonic() - began
        rest = text.finish()
        if rest is not None:
            yield rest
        return _Outcome(reason, count, total / max(1, scored))

    def _ends(self, token: int) -> bool:
        """Return whether a token ends the text; after the end of a grammar, there is only that."""
        ignored = self._ask.ignore_end and self._ask.grammar is None
        return not ignored and self._model.vocabulary.is_end(token)

    def _described(self, logits: Logits, token: int) -> LogprobToken | None:
        if self._ask.logprobs is None:
            return None
        return described(self._model.vocabulary, logits, token, self._ask.logprobs)


def _run(deltas: Generator[ContentDelta, None, _Outcome], into: list[ContentDelta]) -> _Outcome:
    """Take all deltas of a candidate and return how it ended."""
    while True:
        try:
            into.append(next(deltas))
        except StopIteration as end:
            outcome: _Outcome = end.value
            return outcome


def _of(delta: ContentDelta, choice: int) -> ContentDelta:
    return replace(delta, choice=choice)


def _end(choice: int, outcome: _Outcome) -> Iterator[Event]:
    yield UsageCounted(completion_tokens=outcome.tokens)
    yield ChoiceFinished(choice, outcome.reason)
