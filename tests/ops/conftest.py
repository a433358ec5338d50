"""An app whose backend can do everything, and the description of its API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from flask import Flask

from caesar_server.app import create_app
from caesar_server.contract import (
    ChoiceFinished,
    Completed,
    ContentDelta,
    Event,
    LogprobToken,
    RequestLogged,
    ResultFound,
    SourceStored,
    TopLogprob,
    UsageCounted,
)
from caesar_server.registry import Registry
from caesar_server.settings import Settings
from caesar_server.testing import scripted_backend


def answer(request: Any) -> Iterator[Event]:
    """Answer every choice with two words, with log probabilities if they are asked for."""
    sampling = getattr(request, "sampling", None)
    top = None if sampling is None else sampling.logprobs
    if request.type == "research":
        yield ResultFound("r1", "Surface codes", "https://example.org", 0.9, 1)
        yield SourceStored("r1", raw="<p>codes</p>")
        yield RequestLogged("https://example.org", response_status=200, result_id="r1")
    for choice in range(request.choices):
        for word in ("Error ", "correction"):
            alternatives = (TopLogprob(word, -0.25), TopLogprob("Other", -2.0))
            token = LogprobToken(word, -0.25, alternatives[:top])
            yield ContentDelta(word, choice, logprobs=None if top is None else (token,))
        yield ChoiceFinished(choice)
    yield UsageCounted(1, 2 * request.choices)
    yield Completed()


@pytest.fixture
def app() -> Iterator[Flask]:
    settings = Settings(default_backend="able", max_choices=100_000, max_prompts=100_000)
    made = create_app(settings, Registry.of({"able": scripted_backend(answer)}, settings))
    yield made
    made.extensions["caesar_server"].close()


@pytest.fixture
def document(app: Flask) -> dict[str, Any]:
    return app.test_client().get("/openapi.json").json
