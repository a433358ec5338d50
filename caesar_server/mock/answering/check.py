"""What the fields of a reply cannot say each on its own."""

from __future__ import annotations

from collections.abc import Iterator

from caesar_server.mock.answering.templates import Templates
from caesar_server.mock.model.reply import MockChoice, Reply


def reply_problems(reply: Reply) -> list[tuple[str, str]]:
    """Return field and problem of everything that is wrong with a reply."""
    return list(_problems(reply))


def _problems(reply: Reply) -> Iterator[tuple[str, str]]:
    given = [
        name
        for name, value in (
            ("text", reply.text),
            ("template", reply.template is not None),
            ("choices", reply.choices),
        )
        if value
    ]
    if len(given) > 1:
        yield given[1], f"expected one of text, template and choices, got {' and '.join(given)}"
    if reply.template is not None:
        problem = Templates().problem(reply.template)
        if problem is not None:
            yield "template", f"expected a Jinja template: {problem}"
    for index, request in enumerate(reply.requests):
        if request.result is not None and request.result >= len(reply.results):
            yield (
                f"requests[{index}].result",
                f"expected the place of one of the {len(reply.results)} results, from 0",
            )
    for index, choice in enumerate(reply.choices):
        if not _joins(choice):
            yield f"choices[{index}].logprobs", "expected tokens that join to the choice's text"


def _joins(choice: MockChoice) -> bool:
    tokens = choice.logprobs
    return tokens is None or "".join(token.token for token in tokens) == choice.text
