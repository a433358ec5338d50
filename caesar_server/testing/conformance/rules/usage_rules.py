"""Rules about counting, and about many callers at once."""

from __future__ import annotations

from caesar_server.contract import UsageCounted
from caesar_server.testing.conformance.questions import QUESTION, plain_requests
from caesar_server.testing.conformance.rule import Fail, Inapplicable, Outcome, Pass, rule
from caesar_server.testing.conformance.rules.sampling_rules import (
    OTHER_QUESTION,
    plain_answer,
    prompt_question,
    text_question,
)
from caesar_server.testing.conformance.subject import Subject

_NEEDS = ("run.accepts",)


@rule(
    "usage.counted",
    "Quotas and bills are made from it; the server does not count where the backend says it does.",
    needs=_NEEDS,
)
def usage_counted(subject: Subject) -> Outcome:
    """Usage counts the tokens of the prompt and of the text."""
    run = subject.once(text_question(subject, "usage"))
    if not any(isinstance(event, UsageCounted) for event in run.events):
        return Fail("no UsageCounted", "at least one, since usage is declared")
    answer = run.answer
    if answer.prompt_tokens < 1 or (answer.text() and answer.completion_tokens < 1):
        return Fail(
            f"{answer.prompt_tokens} prompt and {answer.completion_tokens} completion tokens",
            "at least 1 of each",
        )
    return Pass()


@rule(
    "usage.prompt_once",
    "The prompt is read once; OpenAI bills it once.",
    needs=("usage.counted", "sampling.n"),
)
def usage_prompt_once(subject: Subject) -> Outcome:
    """The tokens of a prompt are counted once, however many choices it has."""
    request = text_question(subject, "usage", "n", n=2)
    one, two = plain_answer(subject).prompt_tokens, subject.ask(request).answer.prompt_tokens
    return Pass() if one == two else Fail(f"{one} with n=1, {two} with n=2", "twice the same")


@rule(
    "usage.sums",
    "Usage is the sum of all such events; who reports totals each time charges several times over.",
    needs=("usage.counted", "sampling.prompts"),
)
def usage_sums(subject: Subject) -> Outcome:
    """Each UsageCounted counts what was not counted before."""
    if not subject.capabilities.usage:
        raise Inapplicable("it does not declare usage")
    prompts = (QUESTION, OTHER_QUESTION)
    alone = [subject.once(prompt_question(subject, "prompts", one)).answer for one in prompts]
    both = subject.ask(prompt_question(subject, "prompts", *prompts)).answer
    expected = sum(answer.prompt_tokens for answer in alone)
    if both.prompt_tokens != expected:
        return Fail(
            f"{both.prompt_tokens} prompt tokens for two prompts",
            f"{expected}, as for each alone",
        )
    limit = _plain_limit(subject)
    if limit is not None and both.completion_tokens > 2 * limit:
        return Fail(
            f"{both.completion_tokens} completion tokens with two choices of max_tokens={limit}",
            f"at most {2 * limit}",
        )
    return Pass()


def _plain_limit(subject: Subject) -> int | None:
    return text_question(subject).sampling.max_tokens


@rule(
    "concurrency.eight",
    "Callers do not wait for each other; what one connection or one lock cannot do must be queued.",
    needs=_NEEDS,
)
def eight_at_once(subject: Subject) -> Outcome:
    """Eight requests at once are all answered, or refused with RateLimitedError."""
    request = plain_requests(subject.capabilities)[0]
    for number, run in enumerate(subject.ask_all([request] * 8)):
        if not run.completed and (run.error is None or run.error.status != 429):
            return Fail(f"{run.end} (request {number})", "an answer, or RateLimitedError")
    return Pass()


@rule(
    "concurrency.same_answers",
    "run() is called from many threads; shared state mixes up the answers of different people.",
    needs=("sampling.seed",),
)
def same_answers(subject: Subject) -> Outcome:
    """Eight requests at once get the answers that they get one by one."""
    requests = [
        text_question(subject, "seed", text=f"{QUESTION} Question {number}.") for number in range(8)
    ]
    alone = [subject.ask(request).answer for request in requests]
    together = [run.answer for run in subject.ask_all(requests)]
    for number, (one, other) in enumerate(zip(alone, together, strict=True)):
        if one != other:
            return Fail(f"alone {one}, beside others {other} (request {number})", "the same")
    return Pass()
