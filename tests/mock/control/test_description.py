"""The description of the control API, in mock mode a part of ``/openapi.json``."""

from __future__ import annotations

from typing import Any

from flask.testing import FlaskClient
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from caesar_server.mock.scopes import Scopes

METHODS = ("get", "post", "put", "patch", "delete")


def operations(document: Any) -> list[tuple[str, str, Any]]:
    return [
        (path, method, item[method])
        for path, item in document["paths"].items()
        for method in METHODS
        if method in item and path.startswith("/_mock")
    ]


def test_it_is_valid(document: Any) -> None:
    OpenAPIV31SpecValidator(document).validate()
    for schema in document["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)


def test_every_route_is_described(client: FlaskClient, document: Any) -> None:
    routes = {
        (rule.rule.replace("<path:", "{").replace(">", "}"), method.lower())
        for rule in client.application.url_map.iter_rules()
        for method in rule.methods or ()
        if rule.rule.startswith("/_mock") and method not in ("HEAD", "OPTIONS")
    }
    assert len(routes) > 20
    described = operations(document)
    assert {(path, method) for path, method, _ in described} == routes
    assert all(operation["tags"] == ["Mock"] for _, _, operation in described)
    assert all("default" not in operation["responses"] for _, _, operation in described)


def test_its_examples_are_good_and_accepted(
    client: FlaskClient, document: Any, scopes: Scopes
) -> None:
    accepted = 0
    for path, method, operation in operations(document):
        for media in operation.get("requestBody", {}).get("content", {}).values():
            schema = {**media["schema"], "components": document["components"]}
            for example in media["examples"].values():
                Draft202012Validator(schema).validate(example["value"])
                if "waiting" in example["value"] or "timeout_s" in example["value"]:
                    continue  # for calls that do not come
                where = path.replace("{rule_id}", "r1")
                answer = client.open(where, method=method.upper(), json=example["value"])
                assert answer.status_code in (200, 201, 409), (path, answer.text)
                assert str(answer.status_code) in operation["responses"]
                accepted += 1
    assert accepted >= 10


def test_every_parameter_is_described(document: Any) -> None:
    for path, _, operation in operations(document):
        for parameter in operation.get("parameters", ()):
            assert parameter["description"], path
    (journal,) = [
        one for path, _, one in operations(document) if one["operationId"] == "show_mock_journal"
    ]
    names = {parameter["name"] for parameter in journal["parameters"]}
    assert names == {"rule", "fault", "status", "ended", "group", "last", "format"}


def test_a_check_that_fails_is_described(document: Any) -> None:
    response = document["components"]["responses"]["MockControlError409"]
    assert "`check_failed`" in response["description"]
    failing = {
        one["operationId"] for _, _, one in operations(document) if "409" in one["responses"]
    }
    assert failing == {"check_mock_journal", "turn_mock_clock"}
