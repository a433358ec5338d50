"""The published JSON Schema says what the loader does."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from jsonschema import Draft202012Validator

from caesar_server.mock.files import FixturesError
from caesar_server.mock.files.rules import content_of
from caesar_server.mock.files.schema import fixtures_schema
from caesar_server.mock.files.text.document import Document

from .drawing import REPLIES_FILE, RULES_FILE, mutated

PUBLISHED = files("caesar_server.mock.files") / "static" / "fixtures.schema.json"
VALIDATOR = Draft202012Validator(fixtures_schema())
#: What no schema can say, in the words of the loader.
BEYOND = ("another rule is called", "join to", "Jinja", "regex:", "JMESPath", "results, from 0")


def refusals(data: Any) -> list[str]:
    """Return what the loader says of data."""
    try:
        content_of(Document("f.json", data))
    except FixturesError as error:
        return [problem.message for problem in error.problems]
    return []


def agree(data: Any) -> None:
    said = [text for text in refusals(data) if not any(words in text for words in BEYOND)]
    errors = [f"{error.json_path}: {error.message}" for error in VALIDATOR.iter_errors(data)]
    assert bool(said) == bool(errors), f"loader: {said}\nschema: {errors}"


def test_the_file_in_the_package_is_up_to_date() -> None:
    # caesar-server fixtures schema > caesar_server/mock/files/static/fixtures.schema.json
    assert json.loads(PUBLISHED.read_text()) == fixtures_schema()


def test_it_is_a_schema() -> None:
    Draft202012Validator.check_schema(fixtures_schema())


def test_every_field_is_described() -> None:
    for name, definition in fixtures_schema()["$defs"].items():
        for field, schema in definition.get("properties", {}).items():
            assert "description" in schema, (name, field)


GOOD: dict[str, Any] = {
    "prompts": {"Hello": "Hi", "Fail": {"error": {"message": "no", "status": 429}}},
    "a prompt called rules": {"rules": "The rules are simple."},
    "nothing": {"rules": []},
    "a place for anchors": {"x-usual": {"any": ["thing"]}, "x-": 1, "rules": []},
    "whole": {
        "$schema": "fixtures.schema.json",
        "seed": 7,
        "fallback": {"text": "What?"},
        "strict": False,
        "pacing": {"first_chunk_s": 0.1, "tokens_per_s": 50},
        "faults": [{"kind": "delay", "delay_s": 0.5, "probability": 0.1}],
        "rules": [
            {
                "name": "quantum",
                "when": {
                    "prompt": {"contains": "quantum", "ignore_case": True},
                    "model": "gpt-*",
                    "headers": {"X-Team": "blue", "x-none": None},
                    "metadata": {"depth": 3, "tags": {"any": ["a"]}},
                    "stream": True,
                    "attempt": 1,
                    "jmespath": "messages[?role == 'system']",
                },
                "times": 2,
                "priority": 10,
                "reply": {"text": "Improved [1].", "chunks": 5},
            },
            {"when": {"body": {"anything": True}}, "replies": ["one", {"text": "two"}]},
            {
                "when": {
                    "body": {"response_format": {"type": {"contains": "json"}}},
                    "messages": [{"role": "user", "content": {"glob": "What*"}}],
                },
                "reply": "{}",
            },
            {"fault": {"kind": "status", "status": 429, "retry_after_s": 0}, "times": 2},
            {"fault": {"kind": "hang"}, "times": 0},
            {"faults": [{"kind": "delay", "delay_s": 1}, {"kind": "reset"}], "skip": 1},
        ],
    },
}
BAD: dict[str, Any] = {
    "a list": [],
    "a text": "rules",
    "nothing": None,
    "unknown field": {"rules": [], "seeds": 1},
    "x- in a rule": {"rules": [{"reply": "a", "x-usual": 1}]},
    "rules not a list": {"rules": {"a": {"b": 1}}},
    "no action": {"rules": [{"when": {}}]},
    "two actions": {"rules": [{"reply": "a", "fault": {"kind": "reset"}}]},
    "null action": {"rules": [{"reply": None}]},
    "no replies": {"rules": [{"replies": []}]},
    "unknown condition": {"rules": [{"when": {"promt": "a"}, "reply": "a"}]},
    "unknown operator": {"rules": [{"when": {"prompt": {"has": "a"}}, "reply": "a"}]},
    "no operator": {"rules": [{"when": {"prompt": {}}, "reply": "a"}]},
    "operator of no text": {"rules": [{"when": {"prompt": {"contains": 1}}, "reply": "a"}]},
    "operator of no text inside": {
        "rules": [{"when": {"body": {"a": [{"b": {"regex": 1}}]}}, "reply": "a"}]
    },
    "path without a slash": {"rules": [{"when": {"path": "v1/completions"}, "reply": "a"}]},
    "path with a query": {"rules": [{"when": {"path": "/research?limit=2"}, "reply": "a"}]},
    "attempt 0": {"rules": [{"when": {"attempt": 0}, "reply": "a"}]},
    "times -1": {"rules": [{"reply": "a", "times": -1}]},
    "times true": {"rules": [{"reply": "a", "times": True}]},
    "text and template": {"a": {"text": "a", "template": "b"}},
    "field of another fault": {"rules": [{"fault": {"kind": "reset", "after_chunks": 0}}]},
    "field that is missing": {"rules": [{"fault": {"kind": "delay"}}]},
    "field that is null": {"rules": [{"fault": {"kind": "delay", "delay_s": None}}]},
    "interim status": {"rules": [{"fault": {"kind": "status", "status": 100}}]},
    "body of 204": {"rules": [{"fault": {"kind": "status", "status": 204, "body": ""}}]},
    "framing": {
        "rules": [{"fault": {"kind": "status", "status": 400, "headers": {"Content-Length": "1"}}}]
    },
    "fallback": {"rules": [], "fallback": "ehco"},
}


@pytest.mark.parametrize("name", GOOD)
def test_good(name: str) -> None:
    assert refusals(GOOD[name]) == []
    agree(GOOD[name])


@pytest.mark.parametrize("name", BAD)
def test_bad(name: str) -> None:
    assert refusals(BAD[name])
    agree(BAD[name])


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(RULES_FILE)
@example({"rules": [{"reply": "a", "times": 2.0, "when": {"attempt": 2.0}}]})
def test_both_agree_on_files_of_rules(data: Any) -> None:
    agree(data)


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(mutated(RULES_FILE))
def test_both_agree_on_files_with_a_mistake(data: Any) -> None:
    agree(data)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(mutated(REPLIES_FILE))
def test_both_agree_on_files_of_replies(data: Any) -> None:
    agree(data)
