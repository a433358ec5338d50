"""What a backend is asked: frozen values, already validated by the surface that received them.

``None`` means that the caller did not say; a backend then uses its own default.  A request holds no
HTTP, no ids and no keys, and survives JSON (:func:`request_to_json`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, TypeAlias

import msgspec

from caesar_server.contract import codec

#: A prompt: text, or token ids for a backend whose capabilities say ``token_prompts``.
Prompt: TypeAlias = str | tuple[int, ...]


class Sampling(codec.Value, frozen=True, kw_only=True):
    """How text is to be generated; ranges are those of OpenAI's completions API.

    :param max_tokens: at least 1.
    :param temperature: 0 to 2.
    :param top_p: 0 to 1.
    :param frequency_penalty: -2 to 2.
    :param presence_penalty: -2 to 2.
    :param logit_bias: token id -> -100 to 100.
    :param seed: a signed 64-bit integer: same seed and request, same text.
    :param stop: at most four non-empty strings; the text ends before the first that occurs.
    :param n: choices a prompt, 1 to 128.
    :param best_of: generate so many (1 to 20, at least ``n``) and return the best ``n``.
    :param logprobs: for each token, log probabilities of it and of so many alternatives, 0 to 5
        (0 to 20 in a chat).
    """

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    logit_bias: Mapping[int, float] = msgspec.field(default_factory=dict)
    seed: int | None = None
    stop: tuple[str, ...] = ()
    n: int = 1
    best_of: int | None = None
    logprobs: int | None = None


class ResearchParameters(codec.Value, frozen=True, kw_only=True):
    """How research is to be done (Caesar's ``POST /research``, version 2025-11-27).

    :param auto: let the backend choose the five values below it.
    :param reasoning_loops: the most loops it may take, 1 to 10.
    :param source_timeout_s: seconds to wait for one source, 3 to 180.
    :param reasoning_mode: use the stronger model.
    :param allow_early_exit: it may finish before all loops are done.
    :param exclude_social: leave social media out.
    :param excluded_domains: leave these domains and their subdomains out.
    :param system_prompt: how to shape the answer.
    :param model: which model writes the answer.
    :param collection_ids: collections whose files to ground the answer on.
    """

    auto: bool = False
    reasoning_loops: int = 1
    source_timeout_s: int = 60
    reasoning_mode: bool = False
    allow_early_exit: bool = False
    exclude_social: bool = False
    excluded_domains: tuple[str, ...] = ()
    system_prompt: str | None = None
    model: str | None = None
    collection_ids: tuple[str, ...] = ()


class CompletionRequest(codec.Value, frozen=True, kw_only=True):
    """Continue each of the prompts.

    Choice ``p * sampling.n + k`` is the ``k``-th answer to ``prompts[p]``.

    :param prompts: at least one.
    :param model: the model's name as this backend knows it; empty for its default.
    :param echo: the text begins with the prompt.
    :param suffix: text that comes after the inserted one.
    :param parameters: for a backend that does research.
    :param user: the caller's own id for the end user.
    :param extra: fields of the body that the API does not define, as JSON values.
    :raises TypeError: if ``prompts`` is a single text.
    """

    type: ClassVar[str] = "completion"
    prompts: tuple[Prompt, ...]
    model: str = ""
    sampling: Sampling = Sampling()
    echo: bool = False
    suffix: str | None = None
    parameters: ResearchParameters = ResearchParameters(auto=True)
    user: str | None = None
    extra: Mapping[str, Any] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        # A text is a sequence, too: each of its letters would be a prompt.
        given: object = self.prompts
        if isinstance(given, str):
            raise TypeError("prompts: expected a tuple of prompts, got one; write prompts=(text,)")

    @property
    def choices(self) -> int:
        """The number of choices: prompts times ``n``."""
        return len(self.prompts) * self.sampling.n


class Image(codec.Value, frozen=True, kw_only=True):
    """An image in a chat, for a backend whose capabilities say ``images``.

    It may be megabytes: keep it out of log lines and of the messages of errors.

    :param url: an ``http:``, ``https:`` or ``data:`` URL, as the caller wrote it; the
        server fetches nothing.
    :param detail: how closely to look.
    """

    url: str
    detail: Literal["auto", "low", "high"] | None = None


class Audio(codec.Value, frozen=True, kw_only=True):
    """Recorded sound in a chat, for a backend whose capabilities say ``audio``; may be large, too.

    :param data: the file's bytes as base64.
    """

    data: str
    format: Literal["wav", "mp3"]


class Part(codec.Value, frozen=True, kw_only=True):
    """A piece of a message: text, a stored file by its id, an image or audio; one of them is set.

    :param text: the piece's text.
    :param file_id: the id that the upload returned (see ``context.files``).
    :param filename: the file's name as the caller gave it.
    :param image: in messages of the user alone, as is ``audio``.
    """

    text: str | None = None
    file_id: str | None = None
    filename: str | None = None
    image: Image | None = None
    audio: Audio | None = None


class Message(codec.Value, frozen=True, kw_only=True):
    """One turn of a chat.

    :param role: ``system``, ``developer``, ``user``, ``assistant``, ``tool`` or ``function``.
    :param parts: the content, in order.
    :param extra: other members of the message (``tool_calls``, ...), as JSON values.
    """

    role: str
    parts: tuple[Part, ...] = ()
    name: str | None = None
    extra: Mapping[str, Any] = msgspec.field(default_factory=dict)

    @property
    def text(self) -> str:
        """The text parts, joined by line breaks."""
        return "\n".join(part.text for part in self.parts if part.text is not None)


class ChatRequest(codec.Value, frozen=True, kw_only=True):
    """Answer the last message of a chat, ``sampling.n`` times.

    :param messages: at least one.
    :param parameters: for a backend that does research; a system message is in ``messages`` *and*,
        unless metadata says otherwise, in ``parameters.system_prompt``.
    :param tools: accepted and passed on by backends that can; without effect elsewhere.
    :param extra: fields of the body that the API does not define, as JSON values.
    """

    type: ClassVar[str] = "chat"
    messages: tuple[Message, ...]
    model: str = ""
    sampling: Sampling = Sampling()
    parameters: ResearchParameters = ResearchParameters(auto=True)
    tools: tuple[Mapping[str, Any], ...] = ()
    tool_choice: Any = None
    user: str | None = None
    extra: Mapping[str, Any] = msgspec.field(default_factory=dict)

    @property
    def choices(self) -> int:
        """The number of choices, ``n``."""
        return self.sampling.n

    @property
    def media(self) -> tuple[tuple[str, Part], ...]:
        """The parts that are images or audio, each with its place: ``messages[0].content[1]``."""
        return tuple(
            [
                (f"messages[{index}].content[{place}]", part)
                for index, message in enumerate(self.messages)
                for place, part in enumerate(message.parts)
                if part.image is not None or part.audio is not None
            ]
        )


class ResearchRequest(codec.Value, frozen=True, kw_only=True):
    """Find out about ``query`` and answer with sources.

    :param file_ids: uploaded files to ground the answer on.
    """

    type: ClassVar[str] = "research"
    query: str
    model: str = ""
    parameters: ResearchParameters = ResearchParameters()
    file_ids: tuple[str, ...] = ()

    @property
    def choices(self) -> int:
        """Always 1."""
        return 1


class Source(codec.Value, frozen=True, kw_only=True):
    """A result of an earlier job, with what was stored of it."""

    id: str
    title: str
    url: str
    citation_index: int | None = None
    markdown: str | None = None


class FollowUpRequest(codec.Value, frozen=True, kw_only=True):
    """A further question about a finished job.

    :param content: the question.
    :param query: what the job was asked.
    :param answer: what it answered, with ``[n]`` citations.
    :param sources: what it found.
    :param history: earlier questions and answers about it, oldest first.
    :param snippets: passages that the caller points at.
    :param synthesis_model: which model wrote the job's answer, where its caller chose one
        (``model`` of :class:`ResearchParameters`), and so writes this one.
    """

    type: ClassVar[str] = "follow_up"
    content: str
    query: str
    answer: str
    model: str = ""
    sources: tuple[Source, ...] = ()
    history: tuple[Message, ...] = ()
    snippets: tuple[str, ...] = ()
    excluded_domains: tuple[str, ...] = ()
    synthesis_model: str | None = None

    @property
    def choices(self) -> int:
        """Always 1."""
        return 1


class BrainstormRequest(codec.Value, frozen=True, kw_only=True):
    """Ask 2 to 7 clarifying questions about ``query``, or none if it is specific.

    The answer is ``Completed(details={"questions": [{"question": str, "options": [str, ...]}]})``.
    """

    type: ClassVar[str] = "brainstorm"
    query: str
    model: str = ""

    @property
    def choices(self) -> int:
        """Always 0: there is no text."""
        return 0


Request: TypeAlias = (
    CompletionRequest | ChatRequest | ResearchRequest | FollowUpRequest | BrainstormRequest
)
#: The wire names of the request types, as ``Capabilities.accepts`` lists them.
RequestKind: TypeAlias = Literal["completion", "chat", "research", "follow_up", "brainstorm"]

REQUEST_TYPES: Mapping[str, type[Request]] = {
    cls.type: cls
    for cls in (CompletionRequest, ChatRequest, ResearchRequest, FollowUpRequest, BrainstormRequest)
}


def request_to_json(request: Request) -> dict[str, Any]:
    """Return ``request`` as a JSON object whose ``type`` is one of :data:`RequestKind`."""
    return codec.to_json(request)


def request_from_json(data: object) -> Request:
    """Return the request that :func:`request_to_json` turned into ``data``.

    :raises ValueError: if ``data`` is no such object.
    """
    return codec.from_json(data, REQUEST_TYPES, "request")
