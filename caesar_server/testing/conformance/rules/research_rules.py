"""Rules about what research adds to an answer: sources, and a text reshaped by a system prompt."""

from __future__ import annotations

import re
from dataclasses import replace

from caesar_server.contract import (
    ChatRequest,
    ChoiceFinished,
    CompletionRequest,
    ContentDelta,
    ResearchParameters,
    ResearchRequest,
    ResultFound,
)
from caesar_server.testing.conformance.answer import Run
from caesar_server.testing.conformance.questions import plain_requests
from caesar_server.testing.conformance.rule import Fail, Inapplicable, Outcome, Pass, rule
from caesar_server.testing.conformance.rules.event_rules import each_run
from caesar_server.testing.conformance.subject import Subject

_CITATION = re.compile(r"\[([1-9]\d{0,5})\]")


@rule(
    "events.citations_resolve",
    "The references are written when a choice is finished; what is not known by then is missing.",
    needs=("events.citations", "events.choices"),
)
def citations_resolve(subject: Subject) -> Outcome:
    """Each [n] in a text is the citation_index of a result that came before ChoiceFinished."""
    if not subject.capabilities.citations:
        raise Inapplicable("it does not declare citations")

    def find(run: Run) -> Fail | None:
        texts: dict[int, str] = {}
        known: set[int] = set()
        for event in run.events:
            if isinstance(event, ResultFound) and event.citation_index is not None:
                known.add(event.citation_index)
            elif isinstance(event, ContentDelta) and event.channel != "reasoning":
                texts[event.choice] = texts.get(event.choice, "") + event.text
            elif isinstance(event, ChoiceFinished):
                cited = {int(number) for number in _CITATION.findall(texts.get(event.choice, ""))}
                if missing := sorted(cited - known):
                    return Fail(
                        f"[{missing[0]}] in the text and no such result at its end",
                        f"ResultFound(..., citation_index={missing[0]}) before ChoiceFinished",
                    )
        return None

    return each_run(subject, find)


@rule(
    "events.transformed",
    "With a system prompt the server sends that channel; without text in it the answer is empty.",
    needs=("run.accepts", "events.channels"),
)
def transformed(subject: Subject) -> Outcome:
    """With a system prompt there is text in the channel transformed, where that is declared."""
    if "transformed" not in subject.capabilities.channels:
        raise Inapplicable("it does not declare the channel transformed")
    parameters = ResearchParameters(auto=True, system_prompt="Answer in a single word.")
    for plain in plain_requests(subject.capabilities):
        if not isinstance(plain, (CompletionRequest, ChatRequest, ResearchRequest)):
            continue
        run = subject.ask(replace(plain, parameters=parameters))
        if not run.completed:
            return Fail(f"in a {plain.type} run with a system prompt: {run.end}", "an answer")
        texts = dict(run.answer.texts)
        if texts.get((0, "content")) and not texts.get((0, "transformed")):
            return Fail(f"in a {plain.type} run: text in content alone", "also in transformed")
    return Pass()
