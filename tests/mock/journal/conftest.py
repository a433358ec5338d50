"""A journal by a clock that tests turn, and calls to write into it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from caesar_server.mock.journal import Journal, Limits
from caesar_server.mock.model.call import Call
from caesar_server.mock.model.rule import Condition
from caesar_server.testing import FakeClock

MakeCall = Callable[..., Call]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def make_journal(clock: FakeClock) -> Callable[..., Journal]:
    def make(**limits: int) -> Journal:
        return Journal(Limits(**limits), monotonic=clock.monotonic, wall_time=clock.time)

    return make


@pytest.fixture
def journal(make_journal: Callable[..., Journal]) -> Journal:
    return make_journal()


@pytest.fixture
def make_call() -> MakeCall:
    """Make the call of a chat; each has an id of its own."""
    made: list[Call] = []

    def make(prompt: str = "Hello", **fields: Any) -> Call:
        body = {"model": "m", "prompt": prompt}
        call = Call(
            **{
                "id": f"c{len(made) + 1}",
                "method": "POST",
                "path": "/compat/completions",
                "raw_path": "/v1/completions",
                "headers": {"host": "mock.test:8000", "content-type": "application/json"},
                "body": body,
                "raw_body": json.dumps(body).encode(),
                "model": "m",
                "prompt": prompt,
                **fields,
            }
        )
        made.append(call)
        return call

    return make


@pytest.fixture
def prompt_is() -> Callable[[str], Condition]:
    def make(wanted: str) -> Condition:
        return Condition(
            "prompt",
            repr(wanted),
            lambda call: call.prompt == wanted,
            lambda call: repr(call.prompt),
        )

    return make
