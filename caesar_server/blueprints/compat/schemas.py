"""From a JSON body to a frozen request, or one error that names the field.

Fields and bounds are those of OpenAI's API description 2.3.0, with Caesar's ``metadata``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, Generic, TypeVar

import msgspec
from marshmallow import INCLUDE, ValidationError, fields

from caesar_server.blueprints.compat import json_schemas
from caesar_server.blueprints.compat.fields import NO_FILES, LogitBias, Prompt, Stop
from caesar_server.blueprints.compat.messages import MessageField
from caesar_server.blueprints.compat.nested_schemas import MetadataSchema, StreamOptionsSchema
from caesar_server.blueprints.compat.unknown import unknown_members
from caesar_server.contract.request import (
    ChatRequest,
    CompletionRequest,
    ResearchParameters,
    Sampling,
)
from caesar_server.errors import (
    BadRequestError,
    MissingFieldError,
    UnknownFieldError,
    ValidationFailedError,
)
from caesar_server.web.fields import (
    MAX_INTEGER,
    Array,
    Boolean,
    Integer,
    ModelName,
    NullIsAbsent,
    Number,
    Object,
    Text,
    means,
    problems_in,
)

R = TypeVar("R", CompletionRequest, ChatRequest)
#: What most requests ask for, made once.
_AUTOMATIC = ResearchParameters(auto=True)


class Call(msgspec.Struct, Generic[R], frozen=True):
    """What a client asked for: the request itself and how it wants the answer.

    :param model: the name as the client wrote it.
    """

    model: str
    request: R
    stream: bool
    include_usage: bool


class GenerationSchema(NullIsAbsent):
    """What completions and chat have in common."""

    class Meta:
        unknown = INCLUDE

    #: Names that Caesar's documentation accepts without effect on both endpoints: they go to the
    #: backend with the other extra fields and are never refused as unknown.
    also_accepted = frozenset({"logprobs", "top_logprobs", "tools", "tool_choice"})
    #: names of :class:`~caesar_server.contract.Sampling` that are fields of the body
    sampling_names = (
        "max_tokens",
        "temperature",
        "top_p",
        "frequency_penalty",
        "presence_penalty",
        "logit_bias",
        "seed",
        "stop",
        "n",
    )

    model = ModelName(
        required=True,
        metadata=means(
            "Which backend answers: a name that `GET /compat/models` lists, or any other for the "
            "default backend.",
            examples=["caesar-research"],
        ),
    )
    max_tokens = Integer(
        low=1,
        high=MAX_INTEGER,
        metadata=means("The most tokens to generate for a choice.", examples=[150]),
    )
    temperature = Number(
        low=0, high=2, metadata=means("Sampling temperature.", default=1, examples=[0.7])
    )
    top_p = Number(
        low=0,
        high=1,
        metadata=means("Nucleus sampling: the probability mass to draw from.", default=1),
    )
    frequency_penalty = Number(
        low=-2, high=2, metadata=means("Penalty for tokens by how often they occurred.", default=0)
    )
    presence_penalty = Number(
        low=-2, high=2, metadata=means("Penalty for tokens that occurred at all.", default=0)
    )
    logit_bias = LogitBias(
        metadata=means("Token id to what is added to its logit.", examples=[{"50256": -100}])
    )
    seed = Integer(
        low=-MAX_INTEGER - 1,
        high=MAX_INTEGER,
        metadata=means("Same seed and request, same text, where a backend can.", examples=[42]),
    )
    stop = Stop(
        metadata=means("The text ends before the first of these that occurs.", examples=[["###"]])
    )
    n = Integer(low=1, high=128, metadata=means("Choices for each prompt.", default=1))
    stream = Boolean(
        load_default=False, metadata=means("Answer with server-sent events while the text grows.")
    )
    stream_options = fields.Nested(StreamOptionsSchema, metadata=means("Only with `stream: true`."))
    user = Text(metadata=means("The caller's own id of the end user."))
    response_format = Object(
        metadata=means("Accepted without effect unless the backend keeps to it.")
    )
    metadata = fields.Nested(
        MetadataSchema,
        metadata=means(
            "How to do research.  Without any of its keys the backend chooses (auto mode)."
        ),
    )

    def made(self, data: dict[str, Any]) -> Any:
        """Return the call; what is left of the body becomes ``extra``."""
        if wrong := dict(self.misfits(data)):
            raise ValidationError({name: [message] for name, message in wrong.items()})
        return self.call(data)

    @abstractmethod
    def call(self, data: dict[str, Any]) -> Any:
        """Return the call of fields that go together."""

    def misfits(self, data: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Yield the fields that do not go with others, and why."""
        if "stream_options" in data and not data.get("stream"):
            yield "stream_options", "only allowed with stream: true"

    def _sampling(self, data: dict[str, Any], **more: Any) -> Sampling:
        names = self.sampling_names if data else ()
        given = {name: data.pop(name) for name in names if name in data}
        return Sampling(**given, **more)

    @staticmethod
    def _answer(data: dict[str, Any]) -> tuple[str, bool, bool]:
        """Take out model, stream and include_usage."""
        options = data.pop("stream_options", {})
        return data.pop("model"), data.pop("stream", False), options.get("include_usage", False)


class CompletionSchema(GenerationSchema):
    """The body of ``POST /compat/completions``."""

    prompt = Prompt(
        required=True,
        metadata=means("What to continue.", examples=["What is new in quantum computing?"]),
    )
    suffix = Text(metadata=means("Text that comes after the generated one."))
    echo = Boolean(load_default=False, metadata=means("Begin the text with the prompt."))
    best_of = Integer(
        low=1,
        high=20,
        metadata=means(
            "Generate so many and return the best `n`; at least `n`, not with `stream`."
        ),
    )
    logprobs = Integer(
        low=0,
        high=5,
        metadata=means("Log probabilities of each token and of so many alternatives."),
    )

    def misfits(self, data: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Yield the fields that do not go with others, and why."""
        best_of = data.get("best_of")
        if best_of is not None:
            if best_of < data.get("n", 1):
                yield "best_of", f"expected at least n ({data['n']}), got {best_of}"
            elif data.get("stream") and best_of > data.get("n", 1):
                yield "best_of", "not possible with stream: true"
        for name in ("files", "file_ids"):
            if data.get(name):  # say how it is done rather than answer without them
                yield name, NO_FILES
        yield from super().misfits(data)

    def call(self, data: dict[str, Any]) -> Call[CompletionRequest]:
        """Return the call; what is left of the body becomes ``extra``."""
        model, stream, include_usage = self._answer(data)
        request = CompletionRequest(
            prompts=data.pop("prompt"),
            suffix=data.pop("suffix", None) or None,  # an empty one asks for nothing
            echo=data.pop("echo", False),
            user=data.pop("user", None),
            parameters=data.pop("metadata", _AUTOMATIC),
            sampling=self._sampling(
                data, best_of=data.pop("best_of", None), logprobs=data.pop("logprobs", None)
            ),
            extra=data,
        )
        return Call(model, request, stream, include_usage)


class ChatSchema(GenerationSchema):
    """The body of ``POST /compat/chat/completions``."""

    messages = Array(
        MessageField(),
        required=True,
        metadata=means(
            "The conversation; one message at least is the user's.",
            **json_schemas.HAS_USER_MESSAGE,
            examples=[[{"role": "user", "content": "What is new in quantum computing?"}]],
        ),
    )
    max_completion_tokens = Integer(
        low=1, high=MAX_INTEGER, metadata=means("The newer name of `max_tokens`.")
    )
    logprobs = Boolean(
        load_default=False, metadata=means("Return the log probability of each token.")
    )
    top_logprobs = Integer(
        low=0, high=20, metadata=means("So many alternatives a token; needs `logprobs: true`.")
    )
    tools = Array(
        Object(),
        metadata=means("Accepted without effect unless the backend passes them on."),
    )
    tool_choice = fields.Raw(metadata=means("As `tools`."))

    def misfits(self, data: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Yield the fields that do not go with others, and why."""
        messages = data.get("messages", ())
        if "user" not in [message.role for message in messages]:
            yield "messages", "expected at least one user message"
        if data.get("top_logprobs") and not data.get("logprobs"):
            yield "top_logprobs", "only allowed with logprobs: true"
        yield from super().misfits(data)

    def call(self, data: dict[str, Any]) -> Call[ChatRequest]:
        """Return the call; what is left of the body becomes ``extra``."""
        model, stream, include_usage = self._answer(data)
        messages = tuple(data.pop("messages"))
        wants_logprobs, top = data.pop("logprobs", False), data.pop("top_logprobs", 0)
        longest = data.pop("max_completion_tokens", None)
        if longest is not None:
            data["max_tokens"] = longest
        request = ChatRequest(
            messages=messages,
            user=data.pop("user", None),
            tools=tuple(data.pop("tools", ())),
            tool_choice=data.pop("tool_choice", None),
            parameters=with_system_prompt(
                data.pop("metadata", _AUTOMATIC),
                [message.text for message in messages if message.role in ("system", "developer")],
            ),
            sampling=self._sampling(data, logprobs=top if wants_logprobs else None),
            extra=data,
        )
        return Call(model, request, stream, include_usage)


def with_system_prompt(parameters: ResearchParameters, system: list[str]) -> ResearchParameters:
    """Return ``parameters`` with the chat's system messages, unless metadata has a prompt."""
    if parameters.system_prompt is not None or not any(system):
        return parameters
    return replace(parameters, system_prompt="\n\n".join(filter(None, system)))


class CallLoader:
    """Loads the bodies of one endpoint.

    marshmallow looks for each of a schema's fields in each body, and wraps each that it finds in a
    function of its own; a usual body has four of twenty.  So the members that are there are read by
    their fields themselves, and marshmallow is asked where that fails: it has the words for it.
    What the absence of a member means, ``call`` knows.
    """

    def __init__(self, schema_class: type[GenerationSchema]) -> None:
        self._whole = schema_class()
        fields_of = self._whole.fields.items()
        self._required = tuple(name for name, field in fields_of if field.required)
        self._readers = {name: _reader(field) for name, field in fields_of}

    @property
    def names(self) -> Collection[str]:
        """The members that the schema defines."""
        return self._whole.fields.keys()

    @property
    def also_accepted(self) -> frozenset[str]:
        """Further members that are never refused."""
        return self._whole.also_accepted

    def load(self, body: Mapping[str, Any]) -> Any:
        """Return what the schema makes of ``body``.

        :raises ValidationError: likewise.
        """
        given = body
        if None in body.values():
            given = {name: value for name, value in body.items() if value is not None}
        try:
            found = self._found(given)
        except ValidationError:
            found = None
        return self._whole.load(given) if found is None else self._whole.made(found)

    def _found(self, given: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the members as their fields read them, unknown ones as they are.

        None if one is missing.
        """
        for name in self._required:
            if name not in given:
                return None
        readers = self._readers
        return {
            name: readers[name](value, name, given) if name in readers else value
            for name, value in given.items()
        }


def _reader(field: fields.Field[Any]) -> Callable[[Any, str, Mapping[str, Any]], Any]:
    """Return what reads a value of a field that is there, and no null."""
    if field.validators or field.pre_load or field.post_load:
        return field.deserialize
    return field._deserialize  # what deserialize() does around it is for those


def load_call(schema: CallLoader, body: Mapping[str, Any], *, refuse_unknown: bool = False) -> Any:
    """Return what ``schema`` makes of ``body``.

    A body of the single key ``body`` is unwrapped: the sample in Caesar's API reference posts that.

    :param refuse_unknown: refuse members that the API does not define, at any depth, instead of
        keeping them.
    :raises BadRequestError: naming the first field that is wrong, and all others in its message.
    """
    if len(body) == 1 and "body" in body and isinstance(body["body"], Mapping):
        body = body["body"]
    if refuse_unknown:
        unknown = next(unknown_members(body, {*schema.names, *schema.also_accepted}), None)
        if unknown is not None:
            raise UnknownFieldError(f"{unknown}: unknown field", param=unknown)
    try:
        return schema.load(body)
    except ValidationError as error:
        raise to_bad_request(error) from None


def to_bad_request(error: ValidationError) -> BadRequestError:
    """Return marshmallow's tree of messages as one error: the first field is ``param``."""
    problems = list(problems_in(error))
    message = "; ".join(map(str, problems[:5]))
    kind = MissingFieldError if problems[0].is_missing else ValidationFailedError
    return kind(message, param=problems[0].path or None)
