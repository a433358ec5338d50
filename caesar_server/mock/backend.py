"""Decisions of the rules as events."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import ClassVar

import msgspec

from caesar_server.contract import (
    Backend,
    BackendError,
    BrainstormRequest,
    Capabilities,
    ChatRequest,
    Completed,
    CompletionRequest,
    ContentDelta,
    Context,
    Event,
    Failed,
    FollowUpRequest,
    InvalidRequestError,
    OptionsError,
    Request,
    Told,
    count_words,
    events_of,
    option,
)
from caesar_server.contract.request import Prompt
from caesar_server.mock.answering.answer import Answer, Question
from caesar_server.mock.answering.check import reply_problems
from caesar_server.mock.answering.deltas import Deltas
from caesar_server.mock.answering.nothing import nothing_matched
from caesar_server.mock.answering.pieces import Schedule, is_paced
from caesar_server.mock.answering.plain import plain_events, plain_reply
from caesar_server.mock.answering.templates import TemplateFailedError, Templates
from caesar_server.mock.answering.waiting import Waiter
from caesar_server.mock.calls import CALL_HEADER, call_from_request, prompt_text
from caesar_server.mock.course import Course, Courses
from caesar_server.mock.model.call import Call
from caesar_server.mock.model.reply import Reply
from caesar_server.mock.model.rule import Decision
from caesar_server.mock.scope import Scope
from caesar_server.mock.scopes import Held, Scopes


@dataclass(frozen=True)
class MockOptions:
    """The options of the mock."""

    fixtures: Path | None = option(
        None,
        help="File of rules, or from prompt to reply, or a folder of such; unset: repeat prompts.",
        example="fixtures.json",
    )


class MockBackend(Backend):
    """Answers by the rules of a scope, and repeats the prompts for which there is none.

    The same request gets the same events, unless a rule says otherwise.  A word is a token.
    """

    capabilities = Capabilities(
        accepts=frozenset({"completion", "chat", "research", "follow_up", "brainstorm"}),
        token_prompts=True,
        n=True,
        best_of=True,
        logprobs=True,
        echo=True,
        suffix=True,
        max_tokens=True,
        stop=True,
        seed=True,
        usage=True,
        images=True,
        audio=True,
        immediate=True,
        citations=True,
        channels=frozenset({"content", "transformed"}),
        # rules see their ids; nothing is read
        ignores=frozenset({"files"}),
    )
    options_schema = MockOptions
    options: MockOptions
    #: Those of the server in mock mode; None: the backend has one scope of its own.
    scopes: ClassVar[Scopes | None] = None

    def __init__(self, options: MockOptions | None = None) -> None:
        super().__init__(options)
        self._scope = Scope() if self.scopes is None else self.scopes.get()
        self._templates = Templates()
        self._deltas = Deltas()

    def open(self) -> None:
        """Read the fixtures.

        :raises OptionsError: if a file is not as it should be; names file, line and field.
        """
        if self.options.fixtures is None:
            return
        # not above: nobody else pays for reading files
        from caesar_server.mock.files import FixturesError, load_into

        try:
            load_into(self._scope, self.options.fixtures)
        except FixturesError as error:
            raise OptionsError(f"fixtures: {problem}" for problem in error.problems) from error

    def run(self, request: Request, context: Context) -> Iterator[Told]:
        """Return the reply to each prompt in turn."""
        courses = None if self.scopes is None else self.scopes.courses
        course = None if courses is None else courses.find(context.job_id)
        if courses is None or course is None or (held := course.begin()) is None:
            return self._events(request, context)
        return self._followed(request, context, held, courses, course)

    def _followed(
        self, request: Request, context: Context, held: Held, courses: Courses, course: Course
    ) -> Iterator[Told]:
        """Yield the events of a job that others poll, and keep its course."""
        try:
            with closing(self._events(request, context, held, course)) as events:
                for told in events:
                    yield told
                    for event in events_of(told):
                        course.tell(at_once=not isinstance(event, ContentDelta))
        finally:
            courses.end(context.job_id)

    def _events(
        self,
        request: Request,
        context: Context,
        held: Held | None = None,
        course: Course | None = None,
    ) -> Generator[Told, None, None]:
        """Yield the events of a run.

        :param held: the call that began it, where its course knows.
        """
        questions = _questions(request)
        scope, call, decision = self._decision(request, questions[0].text, context, held)
        # what a follow-up is answered may be followed as a stream by another request
        whole = bool(call.path) and not call.stream and not isinstance(request, FollowUpRequest)
        plain = plain_reply(request, decision)
        if plain is not None:
            context.raise_if_cancelled()
            pacing = plain.pacing or decision.pacing
            yield plain_events(plain, questions[0], pacing, self._deltas, whole=whole)
            return
        yield ()  # the reply may have its time, and a tester's own code what it waits for
        waiter = Waiter(context, None if self.scopes is None else scope.clock, course)
        decisions = (decision, *decision.rest)
        details: dict[str, int] = {}
        for position, (question, one) in enumerate(zip(questions, decisions, strict=True)):
            reply = self._reply(request, call, question.text, one)
            if reply is None:
                yield Failed(nothing_matched(scope.name, one.nearest))
                return
            if isinstance(request, BrainstormRequest):
                yield from _asked(reply, one, waiter)
                return
            yield from Answer(
                request,
                question,
                reply,
                pacing=one.pacing,
                seed=one.seed,
                waiter=waiter,
                cut=self._deltas,
                whole=whole,
                context=context,
            ).events(position)
            if reply.error is not None:
                yield Failed(reply.error.info())
                return
            if reply.loops is not None:
                details["loops_consumed"] = reply.loops
        yield Completed(details)

    def _decision(
        self, request: Request, prompt: str, context: Context, held: Held | None
    ) -> tuple[Scope, Call, Decision]:
        """Return what was decided on the call, or decide if nobody has yet."""
        if held is None:
            call_id = context.forwarded.headers.get(CALL_HEADER)
            held = self.scopes.find_call(call_id) if self.scopes and call_id else None
            # of another call: a backend that called this one passes on what it was told
            if held is not None and (held.call.prompt or "") != prompt:
                held = None
        if held is not None:
            held.begun = True
            return held.scope, held.call, held.decision
        call = call_from_request(request, scope=self._scope.name)
        return self._scope, call, self._scope.decide(call)

    def _reply(self, request: Request, call: Call, prompt: str, decision: Decision) -> Reply | None:
        """Return the reply without functions and templates.

        :param prompt: the one of the call's that it is for.
        :raises BackendError: if its template cannot be rendered.
        :raises Exception: whatever its function raises.
        """
        reply = decision.reply
        if isinstance(reply, Reply) and reply.template is None:
            return reply
        call = msgspec.structs.replace(call, request=request, prompt=prompt)
        if not (reply is None or isinstance(reply, Reply)):
            reply = _returned(reply(call))
        if reply is None or reply.template is None:
            return reply
        try:
            text = self._templates.render(reply.template, call, decision.seed)
        except TemplateFailedError as error:
            rule = decision.rule
            name = "the fallback" if rule is None else f"the rule {rule.label}"
            raise BackendError(
                f"The template of {name} failed: {error}", code="template_failed"
            ) from error
        return msgspec.structs.replace(reply, template=None, text=text)


def _returned(made: object) -> Reply:
    """Return the reply that a function made.

    :raises TypeError: if it made something else.
    :raises ValueError: if the reply contradicts itself.
    """
    if isinstance(made, str):
        return Reply(text=made)
    if not isinstance(made, Reply):
        raise TypeError(f"a reply function returned {made!r}, neither a Reply nor a text")
    for field, problem in reply_problems(made):
        raise ValueError(f"a reply function returned a reply with a wrong {field}: {problem}")
    return made


def mock_backend(scopes: Scopes) -> type[MockBackend]:
    """Return the mock as a server in mock mode has it: it answers by the rules of ``scopes``."""
    return type("MockBackend", (MockBackend,), {"scopes": scopes, "__doc__": MockBackend.__doc__})


def _asked(reply: Reply, decision: Decision, waiter: Waiter) -> Iterator[Event]:
    """Yield the answer to a brainstorm request, when its first chunk would be due."""
    pacing = reply.pacing or decision.pacing
    if is_paced(pacing):
        waiter.wait_until(Schedule(pacing, Random(decision.seed)).due_s(""))
    if reply.error is not None:
        yield Failed(reply.error.info())
        return
    asked = [{"question": one.question, "options": list(one.options)} for one in reply.questions]
    yield Completed({"questions": asked})


def _questions(request: Request) -> list[Question]:
    """Return the prompts of a request.

    :raises InvalidRequestError: for a chat in which no user says anything.
    """
    if isinstance(request, CompletionRequest):
        return [_prompt(prompt, echo=request.echo) for prompt in request.prompts]
    if isinstance(request, ChatRequest):
        said, tokens = None, 0
        for message in request.messages:
            text = message.text
            tokens += count_words(text)
            if message.role == "user":
                said = text
        if said is None:
            raise InvalidRequestError("expected at least one user message", param="messages")
        return [Question(said, tokens)]
    text = request.content if isinstance(request, FollowUpRequest) else request.query
    return [Question(text, count_words(text))]


def _prompt(prompt: Prompt, *, echo: bool) -> Question:
    text = prompt_text(prompt)
    tokens = count_words(prompt) if isinstance(prompt, str) else len(prompt)
    return Question(text, tokens, echo=text if echo else "")
