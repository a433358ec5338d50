"""A backend for the Caesar server that answers with the prompt: the example to start from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from caesar_server.contract import (
    Backend,
    Capabilities,
    Completed,
    CompletionRequest,
    Context,
    Event,
    InvalidRequestError,
    Request,
    UsageCounted,
    choice_events,
    count_words,
    option,
    split_words,
)


@dataclass(frozen=True)
class EchoOptions:
    """What an operator may set under ``[backends.echo]``."""

    prefix: str = option("", help="Text to put before the prompt in each answer.")


class EchoBackend(Backend):
    """Answers each prompt with ``prefix`` and the prompt, one word a delta; a word is a token."""

    capabilities = Capabilities(
        accepts=frozenset({"completion"}),  # the server turns chats and questions into prompts
        n=True,
        echo=True,
        max_tokens=True,
        stop=True,
        seed=True,  # there is no chance in it: any seed gives the same text
        usage=True,
    )
    options_schema = EchoOptions
    options: EchoOptions

    def run(self, request: Request, context: Context) -> Iterator[Event]:
        """Yield the events of an answer, choice by choice."""
        if not isinstance(request, CompletionRequest):
            raise InvalidRequestError("echo takes completion requests only", param=None)
        for position, prompt in enumerate(request.prompts):
            if not isinstance(prompt, str):
                raise InvalidRequestError("echo takes text, not token ids", param="prompt")
            yield UsageCounted(prompt_tokens=count_words(prompt))
            words, echo = split_words(self.options.prefix + prompt), prompt if request.echo else ""
            for k in range(request.sampling.n):
                choice = position * request.sampling.n + k
                yield from choice_events(words, context, request.sampling, choice=choice, echo=echo)
        yield Completed()
