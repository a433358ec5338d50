"""Decisions of the rules as events."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import msgspec

from caesar_server.contract import (
    Backend,
    BackendError,
    Capabilities,
    ChatRequest,
    Completed,
    CompletionRequest,
    Context,
    Event,
    Failed,
    InvalidRequestError,
    OptionsError,
    Request,
    ResearchRequest,
    count_words,
    option,
)
from caesar_server.mock.answering.answer import Answer, Question
from caesar_server.mock.answering.check import reply_problems
from caesar_server.mock.answering.deltas import Deltas
from caesar_server.mock.answering.nothing import nothing_matched
from caesar_server.mock.answering.templates import TemplateFailedError, Templates
from caesar_server.mock.answering.waiting import Waiter
from caesar_server.mock.calls import CALL_HEADER, call_from_request
from caesar_server.mock.model.call import Call
from caesar_server.mock.model.reply import Reply
from caesar_server.mock.model.rule import Decision
from caesar_server.mock.scope import Scope
from caesar_server.mock.scopes import Scopes


@dataclass(frozen=True)
class MockOptions:
    """The options of the mock."""

    fixtures: str | None = option(
        None,
        help="File of rules, or from prompt to reply, or a folder of such; unset: repeat prompts.",
        example="fixtures.json",
    )


class MockBackend(Backend):
    """Answers by the rules of a scope, and repeats the prompts for which there is none.

    The same request gets the same events, unless a rule says otherwise.  A word is a token.
    """

    capabilities = Capabilities(
        accepts=frozenset({"completion", "chat", "research"}),
        n=True,
        best_of=True,
        logprobs=True,
        echo=True,
        suffix=True,
        max_tokens=True,
        stop=True,
        seed=True,
        usage=True,
        citations=True,
        channels=frozenset({"content", "transformed"}),
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
            load_into(self._scope, Path(self.options.fixtures))
        except FixturesError as error:
            raise OptionsError(f"fixtures: {problem}" for problem in error.problems) from error

    def run(self, request: Request, context: Context) -> Iterator[Event]:
        """Yield the reply to each prompt in turn."""
        if not isinstance(request, (CompletionRequest, ChatRequest, ResearchRequest)):
            problem = f"the mock does not take {request.type} requests"
            raise InvalidRequestError(problem, param=None)
        questions = _questions(request)
        scope, call, decision = self._decision(request, questions[0].text, context)
        waiter = Waiter(context, None if self.scopes is None else scope.clock)
        decisions = (decision, *decision.rest)
        for position, (question, one) in enumerate(zip(questions, decisions, strict=True)):
            reply = self._reply(request, call, question.text, one)
            if reply is None:
                yield Failed(nothing_matched(scope.name, one.nearest))
                return
            yield from Answer(
                request,
                question,
                reply,
                pacing=one.pacing,
                seed=one.seed,
                waiter=waiter,
                cut=self._deltas,
                whole=bool(call.path) and not call.stream,
                context=context,
            ).events(position)
            if reply.error is not None:
                yield Failed(reply.error.info())
                return
        yield Completed()

    def _decision(
        self, request: Request, prompt: str, context: Context
    ) -> tuple[Scope, Call, Decision]:
        """Return what was decided on the call, or decide if nobody has yet."""
        call_id = context.forwarded.headers.get(CALL_HEADER)
        held = self.scopes.find_call(call_id) if self.scopes and call_id else None
        # of another call: a backend that called this one passes on what it was told
        if held is not None and (held.call.prompt or "") == prompt:
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
        call = replace(call, request=request, prompt=prompt)
        if not (reply is None or isinstance(reply, Reply)):
            reply = _returned(reply(call))
        if reply is None or reply.template is None:
            return reply
        try:
            text = self._templates.render(reply.template, call, decision.seed)
        except TemplateFailedError as error:
            rule = decision.rule
            name = "the fallback" if rule is None else f"the rule {rule.name or rule.id!r}"
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


def _questions(request: CompletionRequest | ChatRequest | ResearchRequest) -> list[Question]:
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
        return [Question(users[-1], tokens)]
    return [Question(request.query, count_words(request.query))]


def _prompt(prompt: str | tuple[int, ...], *, echo: bool) -> Question:
    if not isinstance(prompt, str):
        raise InvalidRequestError("the mock takes text, not token ids", param="prompt")
    return Question(prompt, count_words(prompt), echo=prompt if echo else "")
