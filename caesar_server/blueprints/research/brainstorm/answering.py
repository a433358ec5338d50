"""From the answers to a session's questions to the query of a job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from caesar_server.blueprints.research.schemas import Answer, ResearchCall
from caesar_server.errors import ValidationFailedError
from caesar_server.store.owned.base import OwnedSession, UnknownOwnedError
from caesar_server.web.access.auth import caller
from caesar_server.web.services import services

_UNANSWERED = (
    "The brainstorm session was used without answers: the query stands as it is. "
    "Send answers with brainstorm_session_id to have them taken into account."
)


@dataclass(frozen=True, slots=True)
class Answered:
    """What a request asks once its answers are taken into account.

    :param warning: what the caller should know, or None.
    """

    query: str
    warning: str | None = None


def answered(call: ResearchCall) -> Answered:
    """Return what a request asks.

    :raises ValidationFailedError: if its session is unknown, used or expired, or the answers are
        none to its questions.
    """
    if call.session_id is None:
        if call.answers:
            raise ValidationFailedError(
                "answers: they need the brainstorm_session_id whose questions they answer",
                param="answers",
            )
        return Answered(call.query)
    session = usable_session(call.session_id)
    if not call.answers:
        return Answered(call.query, _UNANSWERED if session.questions else None)
    return Answered(folded(call.query, session, call.answers))


def usable_session(session_id: str) -> OwnedSession:
    """Return a session of the caller's that may still be used.

    Whether it is used meanwhile shows only when the job is stored.

    :raises ValidationFailedError: if it is unknown, used or expired.
    """
    parts = services()
    # looked for first: with the job that used it, the session goes
    used = parts.store.session_job(session_id) is not None
    try:
        session = parts.store.owned.session(caller().account, session_id)
    except UnknownOwnedError:
        raise _refused(f"unknown session {session_id[:100]!r}") from None
    if used:
        raise _refused("the session has been used")
    if parts.clock.time() - session.created_at > parts.settings.brainstorm_expiry_s:
        raise _refused("the session has expired")
    return session


def folded(query: str, session: OwnedSession, answers: Sequence[Answer]) -> str:
    """Return the query with what was answered.

    :raises ValidationFailedError: naming the first answer that answers nothing.
    """
    questions = {question["id"]: question for question in session.questions}
    lines: dict[str, str] = {}
    for index, answer in enumerate(answers):
        field = f"answers[{index}]"
        question = questions.get(answer.question_id)
        if question is None:
            known = ", ".join(questions) or "none"
            raise ValidationFailedError(
                f"{field}.question_id: {answer.question_id[:100]!r} is no question of the session; "
                f"expected one of: {known}",
                param=f"{field}.question_id",
            )
        if answer.question_id in lines:
            raise ValidationFailedError(
                f"{field}.question_id: {answer.question_id!r} is answered twice",
                param=f"{field}.question_id",
            )
        text = answer.custom_text or _selected(answer, question["options"], field)
        lines[answer.question_id] = f"- {question['question']} {text}"
    return "\n".join([query, "", "Clarifications:", *lines.values()])


def _selected(answer: Answer, options: Sequence[str], field: str) -> str:
    number = answer.selected_option
    if number is None or number >= len(options):
        raise ValidationFailedError(
            f"{field}.selected_option: expected 0 to {len(options) - 1}, got {number}"
            if options
            else f"{field}.selected_option: the question has no options; send custom_text",
            param=f"{field}.selected_option",
        )
    return options[number]


def _refused(problem: str) -> ValidationFailedError:
    return ValidationFailedError(
        f"brainstorm_session_id: {problem}; begin a new one with POST /research/brainstorm",
        param="brainstorm_session_id",
    )
