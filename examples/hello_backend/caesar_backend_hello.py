"""The smallest backend that is a package: it greets each prompt."""

from __future__ import annotations

from collections.abc import Iterator

from caesar_server.contract import (
    Backend,
    Capabilities,
    ChoiceFinished,
    Completed,
    CompletionRequest,
    ContentDelta,
    Context,
    Event,
    InvalidRequestError,
    Request,
)


class HelloBackend(Backend):
    """Answers each prompt with ``Hello, PROMPT!``."""

    capabilities = Capabilities(accepts=frozenset({"completion"}))

    def run(self, request: Request, context: Context) -> Iterator[Event]:
        """Yield a delta and the end of each answer, and at last the end of the run."""
        if not isinstance(request, CompletionRequest):
            raise InvalidRequestError("hello takes completion requests only", param=None)
        for choice, prompt in enumerate(request.prompts):
            if not isinstance(prompt, str):
                raise InvalidRequestError("hello takes text, not token ids", param="prompt")
            yield ContentDelta(f"Hello, {prompt}!", choice)
            yield ChoiceFinished(choice)
        yield Completed()
