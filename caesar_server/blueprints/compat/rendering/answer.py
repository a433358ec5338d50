"""From a job's events to the pieces of an OpenAI answer: the part that both wires share.

Which channel is the text, where the References go, how usage adds up: decided here, once, so that a
stream and a JSON body cannot differ.
"""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, TypeAlias, assert_never

from caesar_server.contract.backend import Capabilities
from caesar_server.contract.errors import ErrorInfo
from caesar_server.contract.events import (
    Channel,
    ChoiceFinished,
    Completed,
    ContentDelta,
    Event,
    Failed,
    FinishReason,
    LogprobToken,
    LoopFinished,
    ProgressNoted,
    RequestLogged,
    ResultFound,
    SourceStored,
    Started,
    StatusChanged,
    UsageCounted,
)
from caesar_server.contract.request import ChatRequest, CompletionRequest
from caesar_server.contract.text import WholeCharacters, count_words

logger = logging.getLogger(__name__)


class TextsPiece(NamedTuple):
    """More text of a choice, in as many increments as the backend made of it, none of them empty.

    Nearly all events are such text and nothing else, so they are taken together.
    """

    choice: int
    texts: Sequence[str]


class TextPiece(NamedTuple):
    """More text of a choice that is more than text: it has log probabilities, or is reasoning.

    The ``reasoning`` is not part of the answer.
    """

    choice: int
    text: str
    logprobs: tuple[LogprobToken, ...] | None = None
    reasoning: bool = False


class FinishPiece(NamedTuple):
    """A choice is complete."""

    choice: int
    reason: FinishReason


class ProgressPiece(NamedTuple):
    """News of the research, not part of the answer."""

    status: str
    message: str


class UsagePiece(NamedTuple):
    """The tokens of the whole answer; the last piece of an answer that is complete."""

    prompt_tokens: int
    completion_tokens: int


class FailurePiece(NamedTuple):
    """The answer failed; the last piece then."""

    error: ErrorInfo


# Named tuples, since there is one for every token and they are made twice as fast as dataclasses.
Piece: TypeAlias = TextsPiece | TextPiece | FinishPiece | ProgressPiece | UsagePiece | FailurePiece

_CITATION = re.compile(r"\[(\d{1,9})\]")


class Answer:
    """Turns the events of one job into pieces.  Not safe for threads.

    A backend that cuts within a character, against the contract, does not reach the client with
    it: of the text of a choice and of its reasoning a half waits for the other one.

    :param request: as the client sent it.
    :param usage: ``zero`` shows no tokens, as the hosted service does.
    :param job_id: names the job in the log.
    """

    def __init__(
        self,
        request: CompletionRequest | ChatRequest,
        capabilities: Capabilities,
        usage: Literal["counted", "zero"],
        job_id: str = "",
    ) -> None:
        self._job_id = job_id
        self._request = request
        self._channel = text_channel(request, capabilities)
        self._usage_mode = usage
        self._counted = [0, 0]
        self._counts_itself = capabilities.usage
        self._status = "queued"
        self._results: dict[str, ResultFound] = {}
        self._texts: defaultdict[int, list[str]] = defaultdict(list)
        #: What puts characters together, by choice and whether it is reasoning, where one was cut.
        self._cut: dict[tuple[int, bool], WholeCharacters] = {}

    def pieces(self, events: Iterable[Event]) -> Iterator[Piece]:
        """Yield what ``events`` add to the answer.

        Nothing is held back once they are over, so they may be given in any number of parts.
        """
        channel = self._channel
        choice = 0
        texts: list[str] = []
        for event in events:
            if (
                type(event) is ContentDelta
                and event.channel == channel
                and event.logprobs is None
                and event.text
            ):
                if event.choice != choice:
                    if texts:
                        yield from self._plain(choice, texts)
                        texts = []
                    choice = event.choice
                texts.append(event.text)
                continue
            if texts:
                yield from self._plain(choice, texts)
                texts = []
            yield from self._others(event)
        if texts:
            yield from self._plain(choice, texts)

    def _plain(self, choice: int, texts: Sequence[str]) -> Sequence[TextsPiece]:
        if self._cut or not _has_whole_characters("".join(texts)):
            texts = [whole for text in texts if (whole := self._whole(choice, text))]
            if not texts:
                return ()
        self._texts[choice] += texts
        return (TextsPiece(choice, texts),)

    def _whole(self, choice: int, text: str, *, reasoning: bool = False) -> str:
        """Return the characters of ``text`` that are complete, with a half that waited."""
        place = (choice, reasoning)
        if place not in self._cut:
            if _has_whole_characters(text):
                return text
            if not self._cut:
                logger.warning("job %s: the backend cut its text within a character", self._job_id)
            self._cut[place] = WholeCharacters()
        return self._cut[place].feed(text)

    def _rest(self, choice: int) -> Iterator[Piece]:
        """Yield what stands for a half whose other one never came."""
        if (choice, True) in self._cut and (half := self._cut[choice, True].finish()):
            yield TextPiece(choice, half, reasoning=True)
        if (choice, False) in self._cut and (half := self._cut[choice, False].finish()):
            self._texts[choice].append(half)
            yield TextsPiece(choice, (half,))

    def _others(self, event: Event) -> Sequence[Piece]:
        """Return what an event adds that is more than text."""
        match event:
            case ContentDelta():
                return self._delta(event)
            case ChoiceFinished():
                finish = FinishPiece(event.choice, event.reason)
                rest = tuple(self._rest(event.choice)) if self._cut else ()
                cited = self._references(event.choice)
                return (
                    (*rest, TextsPiece(event.choice, (cited,)), finish)
                    if cited
                    else (*rest, finish)
                )
            case StatusChanged():
                self._status = event.status
                shown = event.status != "queued"
                return (ProgressPiece(event.status, event.message),) if shown else ()
            case ProgressNoted():
                return (ProgressPiece(self._status, event.message),)
            case ResultFound():
                self._results[event.id] = event
            case UsageCounted():
                self._counted[0] += event.prompt_tokens
                self._counted[1] += event.completion_tokens
            case Completed():
                return (self._usage(),)
            case Failed():
                return (FailurePiece(event.error),)
            case Started() | SourceStored() | RequestLogged() | LoopFinished():
                pass
            case _:
                assert_never(event)
        return ()

    def _delta(self, event: ContentDelta) -> Sequence[Piece]:
        if event.channel == "reasoning":
            text = self._whole(event.choice, event.text, reasoning=True)
            return (TextPiece(event.choice, text, reasoning=True),)
        if event.channel == self._channel and (event.text or event.logprobs):
            text = self._whole(event.choice, event.text)
            self._texts[event.choice].append(text)
            return (TextPiece(event.choice, text, event.logprobs),)
        return ()

    def _references(self, choice: int) -> str:
        if not self._results:
            return ""
        cited = {
            result.citation_index: result
            for result in self._results.values()
            if result.citation_index is not None
        }
        if not cited:
            return ""
        found = map(int, _CITATION.findall("".join(self._texts[choice])))
        return references(cited[number] for number in sorted(set(found) & cited.keys()))

    def _usage(self) -> UsagePiece:
        if self._usage_mode == "zero":
            return UsagePiece(0, 0)
        if self._counts_itself or any(self._counted):
            return UsagePiece(self._counted[0], self._counted[1])
        words = sum(count_words("".join(parts)) for parts in self._texts.values())
        return UsagePiece(count_prompt_words(self._request), words)


def _has_whole_characters(text: str) -> bool:
    if text.isascii():  # as a rule, and known at once
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def text_channel(request: CompletionRequest | ChatRequest, capabilities: Capabilities) -> Channel:
    """Return the channel whose text is the answer; decided before the first chunk."""
    if request.parameters.system_prompt and "transformed" in capabilities.channels:
        return "transformed"
    return "content"


def references(cited: Iterator[ResultFound]) -> str:
    """Return the section that lists the cited results, or an empty string for none."""
    lines = [
        f"[{result.citation_index}] [{_link_text(result.title or result.url)}]"
        f"({_link_target(result.url)})"
        for result in cited
    ]
    return "\n\n## References\n\n" + "\n".join(lines) if lines else ""


def _link_text(title: str) -> str:
    """Return a title from the web as a link's text: one line, no markup of its own."""
    return re.sub(r"([\\\[\]`*_<>])", r"\\\1", " ".join(title.split()))


def _link_target(url: str) -> str:
    """Return ``url`` so that it cannot end the link it stands in."""
    return re.sub(r"[\s()<>\\]", lambda found: f"%{ord(found[0]):02X}", url)


def count_prompt_words(request: CompletionRequest | ChatRequest) -> int:
    """Return the words of the request's text, once per prompt; a token id counts as one."""
    if isinstance(request, CompletionRequest):
        return sum(
            count_words(prompt) if isinstance(prompt, str) else len(prompt)
            for prompt in request.prompts
        )
    return sum(count_words(message.text) for message in request.messages)
