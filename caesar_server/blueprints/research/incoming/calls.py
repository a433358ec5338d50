"""What clients ask of the native research API, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass, field

from caesar_server.contract.request import ResearchParameters


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer to a question of a brainstorm session; it has one of the two or both.

    :param question_id: of the session's question.
    :param selected_option: place of the chosen option, from 0; it may be past the last.
    :param custom_text: the caller's own words, never blank; they count if there are both.
    """

    question_id: str
    selected_option: int | None = None
    custom_text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResearchCall:
    """A question to do research on.

    :param query: not blank.
    :param parameters: without ``model``: what the name means is not known here.
    :param file_ids: files to ground the answer on, each once.
    :param session_id: the brainstorm session that it is to use up, or None.
    :param answers: to that session's questions.
    :param model: the name as the client wrote it, or None.
    :param old_form: the loops were given as ``compute_units``, the word of version 2025-08-08.
    """

    query: str
    parameters: ResearchParameters = field(default_factory=ResearchParameters)
    file_ids: tuple[str, ...] = ()
    session_id: str | None = None
    answers: tuple[Answer, ...] = ()
    model: str | None = None
    old_form: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateCall:
    """Something to say to a running job.

    :param content: not blank.
    :param file_ids: each once.
    """

    content: str
    file_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatCall:
    """A further question about a finished job.

    :param content: not blank.
    :param snippets: passages that the caller points at.
    """

    content: str
    snippets: tuple[str, ...] = ()
    excluded_domains: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BrainstormCall:
    """A query to ask clarifying questions about.

    :param query: not blank.
    """

    query: str
