"""Replies of the fixtures as events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from caesar_server.contract import (
    Backend,
    Capabilities,
    ChatRequest,
    Completed,
    CompletionRequest,
    ContentDelta,
    Context,
    Event,
    Failed,
    InvalidRequestError,
    ProgressNoted,
    Request,
    ResearchRequest,
    ResultFound,
    Sampling,
    SourceStored,
    StatusChanged,
    UsageCounted,
    choice_events,
    count_words,
    option,
    split_words,
)
from caesar_server.mock.fixtures import Fixtures, Reply, load_fixtures


@dataclass(frozen=True)
class MockOptions:
    """The options of the mock."""

    fixtures: str | None = option(
        None,
        help="A JSON file from prompt to reply; a prompt that is not in it is repeated.",
        example="fixtures.json",
    )


@dataclass(frozen=True, slots=True)
class _Question:
    """One prompt of a request.

    :param text: what is looked up in the fixtures.
    :param tokens: the words of all that the caller sent for it.
    """

    text: str
    tokens: int
    echo: str = ""


class MockBackend(Backend):
    """Answers from a fixtures file, and repeats the prompts that are not in it.

    The same request always gets the same events.  A word is a token.
    """

    capabilities = Capabilities(
        accepts=frozenset({"completion", "chat", "research"}),
        n=True,
        echo=True,
        max_tokens=True,
        stop=True,
        seed=True,
        usage=True,
        citations=True,
    )
    options_schema = MockOptions
    options: MockOptions

    def __init__(self, options: MockOptions | None = None) -> None:
        super().__init__(options)
        self._fixtures = Fixtures()

    def open(self) -> None:
        """Read the fixtures.

        :raises OptionsError: if the file is not as it should be; names file and prompt.
        """
        if self.options.fixtures is not None:
            self._fixtures = load_fixtures(Path(self.options.fixtures))

    def run(self, request: Request, context: Context) -> Iterator[Event]:
        """Yield the reply to each prompt in turn."""
        questions = _questions(request)
        sampling = Sampling()
        if isinstance(request, (CompletionRequest, ChatRequest)):
            sampling = request.sampling
        for position, question in enumerate(questions):
            reply = self._fixtures.reply_to(question.text)
            yield from _findings(reply, context)
            for k in range(sampling.n):
                choice = position * sampling.n + k
                yield from _choice(reply, k, choice, question, sampling, context)
            if reply.error is not None:
                yield Failed(reply.error.info())
                return
            yield UsageCounted(prompt_tokens=question.tokens)
        yield Completed()


def _questions(request: Request) -> list[_Question]:
    """Return the prompts of a request.

    :raises InvalidRequestError: for a request that the mock does not take.
    """
    if isinstance(request, CompletionRequest):
        return [_prompt(prompt, echo=request.echo) for prompt in request.prompts]
    if isinstance(request, ChatRequest):
        users = [message.text for message in request.messages if message.role == "user"]
        if not users:
            raise InvalidRequestError("expected at least one user message", param="messages")
        tokens = sum(count_words(message.text) for message in request.messages)
        return [_Question(users[-1], tokens)]
    if isinstance(request, ResearchRequest):
        return [_Question(request.query, count_words(request.query))]
    raise InvalidRequestError(f"the mock does not take {request.type} requests", param=None)


def _prompt(prompt: str | tuple[int, ...], *, echo: bool) -> _Question:
    if not isinstance(prompt, str):
        raise InvalidRequestError("the mock takes text, not token ids", param="prompt")
    return _Question(prompt, count_words(prompt), echo=prompt if echo else "")


def _findings(reply: Reply, context: Context) -> Iterator[Event]:
    """Yield what a reply reports before its text."""
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


def _choice(
    reply: Reply, k: int, choice: int, question: _Question, sampling: Sampling, context: Context
) -> Iterator[Event]:
    """Yield the text of choice ``k`` of a prompt; it stays unfinished if the reply fails."""
    words = split_words(reply.text_of(k))
    echo = question.echo if reply.error is None else ""
    events = choice_events(words, context, sampling, choice=choice, echo=echo)
    if reply.chunks is not None:
        events = _rechunk(events, choice, reply.chunks)
    for event in events:
        if reply.error is None or isinstance(event, ContentDelta):
            yield event


def _rechunk(events: Iterable[Event], choice: int, chunks: int) -> Iterator[Event]:
    """Cut the deltas of a choice anew into so many of about equal length, or one a character."""
    whole = list(events)
    text = "".join(event.text for event in whole if isinstance(event, ContentDelta))
    chunks = min(chunks, len(text))
    for i in range(chunks):
        yield ContentDelta(text[len(text) * i // chunks : len(text) * (i + 1) // chunks], choice)
    yield from (event for event in whole if not isinstance(event, ContentDelta))
