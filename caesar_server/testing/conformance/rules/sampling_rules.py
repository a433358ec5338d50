"""Rules about what the caller asks for: the parameters that are declared, and usage."""

from __future__ import annotations

from typing import Any

from caesar_server.contract import CompletionRequest, ContentDelta
from caesar_server.testing.conformance.answer import Answer, Run
from caesar_server.testing.conformance.questions import (
    QUESTION,
    TextRequest,
    completion,
    text_request,
)
from caesar_server.testing.conformance.rule import Fail, Inapplicable, Outcome, Pass, rule
from caesar_server.testing.conformance.subject import Subject

OTHER_QUESTION = "How deep is the sea? Answer in one short sentence."
_NEEDS = ("run.accepts",)


def text_question(subject: Subject, *declared: str, **sampling: Any) -> TextRequest:
    """Return a request for text, if the backend takes one and declares these capabilities."""
    for name in declared:
        if not getattr(subject.capabilities, name):
            raise Inapplicable(f"it does not declare {name}")
    request = text_request(subject.capabilities, **sampling)
    if request is None:
        raise Inapplicable("it takes neither completions nor chats")
    return request


def prompt_question(
    subject: Subject, declared: str, *prompts: str | tuple[int, ...], **given: Any
) -> CompletionRequest:
    """Return a completion request, if the backend takes one and declares this capability."""
    if not getattr(subject.capabilities, declared):
        raise Inapplicable(f"it does not declare {declared}")
    if "completion" not in subject.capabilities.accepts:
        raise Inapplicable("it does not take completions")
    return completion(subject.capabilities, prompts, **given)


def _not_completed(run: Run, asked: str) -> Fail | None:
    return None if run.completed else Fail(f"with {asked}: {run.end}", "a run that completes")


def plain_answer(subject: Subject) -> Answer:
    """Return the answer to the suite's question."""
    return subject.once(text_question(subject)).answer


def _missing_choices(run: Run, asked: str) -> Fail | None:
    """Return what is wrong if a run does not answer each choice of its request."""
    if fail := _not_completed(run, asked):
        return fail
    wanted = list(range(run.request.choices))
    finished = [choice for choice, _ in run.answer.reasons]
    if finished != wanted:
        return Fail(f"with {asked}: choices {finished} finished", f"choices {wanted}")
    empty = [choice for choice in wanted if not run.answer.text(choice)]
    if empty:
        return Fail(f"with {asked}: choice {empty[0]} has no text", "text in every choice")
    return None


def _need_text(subject: Subject) -> str:
    text = plain_answer(subject).text()
    if not text:
        raise Inapplicable("it answered the suite's question with no text")
    return text


@rule(
    "sampling.n",
    "A caller who asks for alternatives indexes into them.",
    needs=_NEEDS,
)
def n_choices(subject: Subject) -> Outcome:
    """n = 3 gives three choices, each with text and a finish reason."""
    request = text_question(subject, "n", n=3)
    _need_text(subject)
    return _missing_choices(subject.ask(request), "n=3") or Pass()


@rule(
    "sampling.best_of",
    "The candidates that lost must not reach the caller as further choices.",
    needs=_NEEDS,
)
def best_of(subject: Subject) -> Outcome:
    """best_of = 2 returns n = 1 choice."""
    request = text_question(subject, "best_of", best_of=2)
    _need_text(subject)
    return _missing_choices(subject.ask(request), "best_of=2") or Pass()


@rule(
    "sampling.prompts",
    "Nothing but the number tells a caller of several prompts which answer is whose.",
    needs=_NEEDS,
)
def several_prompts(subject: Subject) -> Outcome:
    """Choice p * n + k answers prompt p."""
    n = 2 if subject.capabilities.n else 1
    prompts, echo = (QUESTION, OTHER_QUESTION), subject.capabilities.echo
    request = prompt_question(subject, "prompts", *prompts, n=n, echo=echo)
    _need_text(subject)
    run = subject.ask(request)
    asked = f"two prompts and n={n}"
    if fail := _missing_choices(run, asked):
        return fail
    if echo:  # then the text itself says which prompt it answers
        for choice in range(request.choices):
            text, prompt = run.answer.text(choice), prompts[choice // n]
            if not text.startswith(prompt):
                return Fail(f"with {asked}: choice {choice} is {text!r}", f"it begins {prompt!r}")
    return Pass()


@rule(
    "sampling.echo",
    "Scoring tools cut the prompt off again by its length.",
    needs=_NEEDS,
)
def echo_prompt(subject: Subject) -> Outcome:
    """With echo the text is the prompt followed by the answer."""
    run = subject.ask(prompt_question(subject, "echo", QUESTION, echo=True))
    if fail := _not_completed(run, "echo"):
        return fail
    text, plain = run.answer.text(), plain_answer(subject).text()
    if not text.startswith(QUESTION):
        return Fail(repr(text), f"text that begins with the prompt {QUESTION!r}")
    if subject.capabilities.seed and text != QUESTION + plain:
        return Fail(repr(text), f"the prompt followed by the answer without echo, {plain!r}")
    return Pass()


@rule(
    "sampling.suffix",
    "A declared capability keeps the server from refusing; the backend must cope.",
    needs=_NEEDS,
)
def suffix(subject: Subject) -> Outcome:
    """A request with a suffix is answered."""
    run = subject.ask(prompt_question(subject, "suffix", QUESTION, suffix=" That is all."))
    return _not_completed(run, "suffix") or Pass()


@rule(
    "sampling.token_prompts",
    "A declared capability keeps the server from refusing; the backend must cope.",
    needs=_NEEDS,
)
def token_prompts(subject: Subject) -> Outcome:
    """A prompt of token ids is answered."""
    run = subject.ask(prompt_question(subject, "token_prompts", (1, 2, 3)))
    return _not_completed(run, "token ids") or Pass()


@rule(
    "sampling.stop",
    "Callers parse what comes before it; the sequence itself, or what follows, breaks them.",
    needs=_NEEDS,
)
def stop_sequence(subject: Subject) -> Outcome:
    """The text ends before a stop sequence, with the reason stop."""
    text_question(subject, "stop")
    text = _need_text(subject)
    stop = _stop_from(text)
    run = subject.ask(text_question(subject, stop=(stop,)))
    asked = f"stop={stop!r}"
    if fail := _not_completed(run, asked):
        return fail
    answer = run.answer
    if stop in answer.text():
        return Fail(f"with {asked}: {answer.text()!r}", "text without it")
    if not subject.capabilities.seed:  # chance may not have met the sequence this time
        return Pass()
    expected = text[: text.index(stop)]
    if answer.text() != expected or answer.reason() != "stop":
        return Fail(
            f"with {asked}: {answer.text()!r}, reason {answer.reason()}",
            f"{expected!r}, reason stop, since without it the text was {text!r}",
        )
    return Pass()


def _stop_from(text: str) -> str:
    """Return a word from the middle of ``text``, that does not begin it, or else its end."""
    words = text.split()
    for word in words[len(words) // 2 :]:
        if text.index(word) > 0:
            return word
    return text[len(text) // 2 :]


@rule(
    "sampling.max_tokens",
    "It is the caller's limit on cost; length tells that there is more to fetch.",
    needs=_NEEDS,
)
def max_tokens(subject: Subject) -> Outcome:
    """max_tokens = 1 gives at most one token, with the reason length."""
    request = text_question(subject, "max_tokens", max_tokens=1)
    text = _need_text(subject)
    if len(text.split()) < 2:
        raise Inapplicable("it answered the suite's question with a single word")
    run = subject.ask(request)
    if fail := _not_completed(run, "max_tokens=1"):
        return fail
    answer = run.answer
    if answer.reason() != "length":
        return Fail(f"with max_tokens=1: reason {answer.reason()}", "reason length")
    if len(answer.text().split()) > 1:
        return Fail(f"with max_tokens=1: {answer.text()!r}", "no more than a word")
    if subject.capabilities.usage and answer.completion_tokens > 1:
        return Fail(f"with max_tokens=1: {answer.completion_tokens} tokens counted", "at most 1")
    return Pass()


@rule(
    "sampling.seed",
    "Tests and evaluations repeat requests and compare.",
    needs=_NEEDS,
)
def seed(subject: Subject) -> Outcome:
    """The same request with the same seed gives the same answer."""
    request = text_question(subject, "seed")
    first, second = subject.once(request).answer, subject.ask(request).answer
    return Pass() if first == second else Fail(f"{first} and then {second}", "twice the same")


@rule(
    "sampling.logprobs",
    "Clients place tokens in the text by adding up their lengths.",
    needs=_NEEDS,
)
def logprobs(subject: Subject) -> Outcome:
    """With logprobs the tokens of each delta join to its text, each with its alternatives."""
    run = subject.ask(text_question(subject, "logprobs", logprobs=2))
    if fail := _not_completed(run, "logprobs=2"):
        return fail
    for event in run.events:
        if not isinstance(event, ContentDelta) or event.channel == "reasoning":
            continue
        tokens = event.logprobs
        if tokens is None or "".join(token.token for token in tokens) != event.text:
            return Fail(f"with logprobs=2: {event!r}", "tokens that join to the delta's text")
        # OpenAI's API may add the chosen token to the ones that were asked for.
        if any(len(token.top) > 3 or token.logprob is None for token in tokens):
            return Fail(
                f"with logprobs=2: {event!r}", "a logprob and at most 3 alternatives for each token"
            )
    return Pass()
