"""Rules that only the server itself, with a backend behind it, can show."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from caesar_server.testing.conformance.questions import QUESTION
from caesar_server.testing.conformance.rule import Fail, Inapplicable, Outcome, Pass, rule
from caesar_server.testing.conformance.subject import Subject

if TYPE_CHECKING:
    from flask.testing import FlaskClient

_NAME = "subject"


@rule(
    "server.fold_is_stream",
    "Clients switch between both and expect one API; threads of the server serve many requests.",
    needs=(
        "class.contract_version",
        "events.json",
        "events.terminal",
        "sampling.seed",
        "durable.state_json",
        "life.reopens",
    ),
)
def fold_is_stream(subject: Subject) -> Outcome:
    """Through the server, the JSON answer and the joined stream are the same, again and again."""
    able = subject.capabilities
    if not able.seed:
        raise Inapplicable("it does not declare seed")
    if not {"completion", "chat"} & able.accepts:
        raise Inapplicable("it takes neither completions nor chats")
    if subject.called_others:
        raise Inapplicable("it calls other backends, and this server has none")
    answers = subject.call("an answer through the server", lambda: _answers(subject))
    for how, answer in answers[1:]:
        if answer != answers[0][1]:
            return Fail(f"{answers[0][0]}: {answers[0][1]}; {how}: {answer}", "the same")
    return Pass()


def _answers(subject: Subject) -> list[tuple[str, Any]]:
    """Ask for JSON, for a stream and again for JSON, all in this thread."""
    # Imported here, so that the suite's other rules need no Flask.
    from caesar_server.app import create_app
    from caesar_server.registry import Registry
    from caesar_server.settings import Settings

    settings = Settings(default_backend=_NAME, backends={_NAME: dict(subject.options)}, threads=8)
    app = create_app(settings, Registry.of({_NAME: subject.backend_class}, settings))
    body: dict[str, Any] = {"model": _NAME, "prompt": QUESTION, "seed": 7}
    if subject.capabilities.max_tokens:
        body["max_tokens"] = 48
    try:
        client = app.test_client()
        return [
            ("as JSON", _whole(client, body)),
            ("as a stream", _streamed(client, body)),
            ("as JSON again", _whole(client, body)),
        ]
    finally:
        app.extensions["caesar_server"].close()


def _whole(client: FlaskClient, body: Mapping[str, Any]) -> Any:
    answer = client.post("/compat/completions", json=body).get_json()
    if "error" in answer:
        return answer["error"]["message"]
    choice = answer["choices"][0]
    return choice["text"], choice["finish_reason"]


def _streamed(client: FlaskClient, body: Mapping[str, Any]) -> Any:
    response = client.post("/compat/completions", json={**body, "stream": True})
    text, reason = "", None
    for line in response.get_data(as_text=True).splitlines():
        data = line.removeprefix("data: ")
        if data == line or data == "[DONE]":
            continue
        chunk = json.loads(data)
        if "error" in chunk:
            return chunk["error"]["message"]
        for choice in chunk["choices"]:
            text += choice["text"]
            reason = choice["finish_reason"] or reason
    return text, reason
