"""From a JSON body to a frozen call, or one error that names the field.

Names and bounds are those of Caesar's API reference, version 2025-11-27, with ``compute_units`` of
2025-08-08 and ``answer``, which a public client has for ``custom_text``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from marshmallow import EXCLUDE, ValidationError, fields, post_load, validates_schema

from caesar_server.blueprints.research.incoming.calls import (
    Answer,
    BrainstormCall,
    ChatCall,
    ResearchCall,
    UpdateCall,
)
from caesar_server.blueprints.research.incoming.domains import Domain
from caesar_server.contract.request import ResearchParameters
from caesar_server.web.fields import (
    MAX_ITEMS,
    Array,
    Boolean,
    Id,
    Integer,
    ModelName,
    NullIsAbsent,
    Text,
    load_object,
    means,
)

__all__ = [
    "AgentResearchSchema",
    "AgentUpdateSchema",
    "Answer",
    "AnswerSchema",
    "BrainstormCall",
    "BrainstormSchema",
    "ChatCall",
    "ChatCreateSchema",
    "ResearchCall",
    "ResearchSchema",
    "UpdateCall",
    "UpdateSchema",
    "load_agent_research",
    "load_agent_update",
    "load_brainstorm",
    "load_chat",
    "load_research",
    "load_update",
]

#: Fields of a body with their names in the contract; ``auto`` overrides them all.
_CHOSEN_BY_AUTO = {
    "reasoning_loops": "reasoning_loops",
    "source_timeout": "source_timeout_s",
    "reasoning_mode": "reasoning_mode",
    "allow_early_exit": "allow_early_exit",
    "exclude_social": "exclude_social",
}


class _BodySchema(NullIsAbsent):
    class Meta:
        unknown = EXCLUDE


def _query() -> Text:
    return Text(
        required=True,
        visible=True,
        metadata=means("The question.", examples=["What is new in quantum computing?"]),
    )


def _files(text: str) -> Array:
    return Array(Id(), max_items=MAX_ITEMS, metadata=means(text))


def _excluded_domains() -> Array:
    return Array(
        Domain(),
        max_items=MAX_ITEMS,
        metadata=means("Leave these domains and their subdomains out.", examples=[["example.com"]]),
    )


class AnswerSchema(_BodySchema):
    """An answer to a question of a brainstorm session."""

    question_id = Text(required=True, min_length=1, metadata=means("Which question."))
    selected_option = Integer(
        low=0, high=MAX_ITEMS, metadata=means("The chosen option, counted from 0.")
    )
    custom_text = Text(metadata=means("An answer in own words; it counts if there are both."))
    answer = Text(metadata=means("Another name of `custom_text`.", deprecated=True))

    @validates_schema
    def check_answer(self, data: Mapping[str, Any], **kwargs: Any) -> None:
        """A question is answered by an option or by text."""
        if "selected_option" not in data and _own_words(data) is None:
            raise ValidationError("expected selected_option or custom_text")

    @post_load
    def make(self, data: dict[str, Any], **kwargs: Any) -> Answer:
        """Return the answer; blank text is none."""
        return Answer(
            question_id=data["question_id"],
            selected_option=data.get("selected_option"),
            custom_text=_own_words(data),
        )


class AgentResearchSchema(_BodySchema):
    """The body of ``POST /agents/research``, which is a part of that of ``POST /research``."""

    query = _query()
    files = _files("Ids of files to ground the answer on.")
    reasoning_mode = Boolean(metadata=means("Use the stronger model.", default=False))
    exclude_social = Boolean(metadata=means("Leave social media out.", default=False))
    excluded_domains = _excluded_domains()

    @post_load
    def make(self, data: dict[str, Any], **kwargs: Any) -> ResearchCall:
        """Return the call."""
        old_form = "compute_units" in data and "reasoning_loops" not in data
        if old_form:
            data["reasoning_loops"] = data["compute_units"]
        return ResearchCall(
            query=data["query"],
            parameters=_parameters(data),
            file_ids=_each_once(data.get("files", ())),
            session_id=data.get("brainstorm_session_id"),
            answers=tuple(data.get("answers", ())),
            model=data.get("model"),
            old_form=old_form,
        )


class ResearchSchema(AgentResearchSchema):
    """The body of ``POST /research``."""

    collection_ids = _files("Ids of collections whose files to ground the answer on.")
    reasoning_loops = Integer(
        low=1,
        high=10,
        metadata=means("The most loops of research.", default=1, examples=[4]),
    )
    compute_units = Integer(
        low=1,
        high=10,
        metadata=means("The older name of `reasoning_loops`.", deprecated=True),
    )
    source_timeout = Integer(
        low=3,
        high=180,
        metadata=means("Seconds to wait for one source.", default=60, examples=[30]),
    )
    allow_early_exit = Boolean(
        metadata=means("Finish before all loops are done if enough is known.", default=False)
    )
    auto = Boolean(
        metadata=means(
            "Let the backend choose loops, timeout, mode, early exit and social sources, whatever "
            "the request says of them.",
            default=False,
        )
    )
    system_prompt = Text(
        metadata=means(
            "How to shape the answer, which is then in `transformed_content` too.",
            examples=["Answer in three bullet points."],
        )
    )
    model = ModelName(metadata=means("Which model writes the answer."))
    brainstorm_session_id = Id(metadata=means("The session whose questions `answers` answers."))
    answers = Array(
        fields.Nested(AnswerSchema),
        max_items=MAX_ITEMS,
        metadata=means("Answers to the questions of the session."),
    )


class AgentUpdateSchema(_BodySchema):
    """The body of ``POST /agents/research/{id}/updates``."""

    update_content = Text(
        required=True,
        visible=True,
        metadata=means("What to say to the job.", examples=["Look at Europe only."]),
    )

    @post_load
    def make(self, data: dict[str, Any], **kwargs: Any) -> UpdateCall:
        """Return the call."""
        return UpdateCall(
            content=data["update_content"], file_ids=_each_once(data.get("files", ()))
        )


class UpdateSchema(AgentUpdateSchema):
    """The body of ``POST /research/{id}/updates``."""

    files = _files("Ids of further files to ground the answer on.")


class ChatCreateSchema(_BodySchema):
    """The body of ``POST /research/{id}/chat``."""

    content = Text(
        required=True,
        visible=True,
        metadata=means("The further question.", examples=["Which of these is the cheapest?"]),
    )
    snippets = Array(
        Text(), max_items=MAX_ITEMS, metadata=means("Passages that the question is about.")
    )
    excluded_domains = _excluded_domains()

    @post_load
    def make(self, data: dict[str, Any], **kwargs: Any) -> ChatCall:
        """Return the call."""
        return ChatCall(
            content=data["content"],
            snippets=tuple(data.get("snippets", ())),
            excluded_domains=_each_once(data.get("excluded_domains", ())),
        )


class BrainstormSchema(_BodySchema):
    """The body of ``POST /research/brainstorm``."""

    query = _query()

    @post_load
    def make(self, data: dict[str, Any], **kwargs: Any) -> BrainstormCall:
        """Return the call."""
        return BrainstormCall(query=data["query"])


def load_research(body: Mapping[str, Any], *, refuse_unknown: bool = False) -> ResearchCall:
    """Return what a body of ``POST /research`` asks for.

    :param body: in the words of version 2025-11-27; ``compute_units`` is taken as well, and
        ``reasoning_loops`` counts if there are both.
    :raises BadRequestError: naming the field that is wrong; so do the functions below.
    """
    call: ResearchCall = load_object(ResearchSchema(), body, refuse_unknown=refuse_unknown)
    return call


def load_agent_research(body: Mapping[str, Any], *, refuse_unknown: bool = False) -> ResearchCall:
    """Return what a body of ``POST /agents/research`` asks for."""
    call: ResearchCall = load_object(AgentResearchSchema(), body, refuse_unknown=refuse_unknown)
    return call


def load_update(body: Mapping[str, Any], *, refuse_unknown: bool = False) -> UpdateCall:
    """Return what a body of ``POST /research/{id}/updates`` says."""
    call: UpdateCall = load_object(UpdateSchema(), body, refuse_unknown=refuse_unknown)
    return call


def load_agent_update(body: Mapping[str, Any], *, refuse_unknown: bool = False) -> UpdateCall:
    """Return what a body of ``POST /agents/research/{id}/updates`` says."""
    call: UpdateCall = load_object(AgentUpdateSchema(), body, refuse_unknown=refuse_unknown)
    return call


def load_chat(body: Mapping[str, Any], *, refuse_unknown: bool = False) -> ChatCall:
    """Return what a body of ``POST /research/{id}/chat`` asks."""
    call: ChatCall = load_object(ChatCreateSchema(), body, refuse_unknown=refuse_unknown)
    return call


def load_brainstorm(body: Mapping[str, Any], *, refuse_unknown: bool = False) -> BrainstormCall:
    """Return what a body of ``POST /research/brainstorm`` asks about."""
    call: BrainstormCall = load_object(BrainstormSchema(), body, refuse_unknown=refuse_unknown)
    return call


def _parameters(data: Mapping[str, Any]) -> ResearchParameters:
    auto = data.get("auto", False)
    chosen = {
        name: data[field] for field, name in _CHOSEN_BY_AUTO.items() if field in data and not auto
    }
    return ResearchParameters(
        auto=auto,
        excluded_domains=_each_once(data.get("excluded_domains", ())),
        # an empty one shapes nothing
        system_prompt=data.get("system_prompt") or None,
        collection_ids=_each_once(data.get("collection_ids", ())),
        **chosen,
    )


def _each_once(items: Iterable[str]) -> tuple[str, ...]:
    """Return the items in their order, without those that occurred before."""
    return tuple(dict.fromkeys(items))


def _own_words(data: Mapping[str, Any]) -> str | None:
    """Return the text of an answer, or None: who chose an option may send empty text with it."""
    texts = (data.get("custom_text", ""), data.get("answer", ""))
    return next((text for text in texts if text.strip()), None)
