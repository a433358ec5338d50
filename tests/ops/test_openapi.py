"""``/openapi.json``: valid, complete, and true to what the server does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urljoin

import pytest
from flask import Flask
from jsonschema import Draft202012Validator
from marshmallow import Schema
from openapi_spec_validator import OpenAPIV31SpecValidator

import caesar_server
from caesar_server.app import create_app
from caesar_server.blueprints.compat.nested_schemas import MetadataSchema, StreamOptionsSchema
from caesar_server.blueprints.compat.schemas import ChatSchema, CompletionSchema
from caesar_server.blueprints.ops.openapi import ApiDescription, openapi_path
from caesar_server.registry import Registry
from caesar_server.settings import Settings
from caesar_server.testing import scripted_backend
from caesar_server.web.error_reference import error_rows
from caesar_server.web.limiting.limits import window_headers
from caesar_server.web.limiting.windows import Window

REQUESTS: dict[str, type[Schema]] = {
    "CompletionRequest": CompletionSchema,
    "ChatCompletionRequest": ChatSchema,
    "ResearchMetadata": MetadataSchema,
    "StreamOptions": StreamOptionsSchema,
}
IMPLIED = {"HEAD", "OPTIONS"}


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method in ("get", "post", "put", "patch", "delete"):
            if method in item:
                yield path, method, item[method]


def validator(document: dict[str, Any], component: str) -> Draft202012Validator:
    schema = {"$ref": f"#/components/schemas/{component}", "components": document["components"]}
    return Draft202012Validator(schema)


def test_it_is_a_valid_openapi_3_1_document(document) -> None:
    OpenAPIV31SpecValidator(document).validate()
    assert document["openapi"].startswith("3.1.")


def test_its_schemas_are_valid_json_schemas(document) -> None:
    for schema in document["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)


def test_every_route_is_in_it_as_a_path_or_as_an_alias(app: Flask, document) -> None:
    described = {
        (where, method.upper())
        for path, method, _ in operations(document)
        for where in (path, *document["paths"][path].get("x-aliases", ()))
    }
    routes = {
        (openapi_path(rule), method)
        for rule in app.url_map.iter_rules()
        for method in rule.methods - IMPLIED
    }
    assert len(routes) > 10
    assert described == routes


def test_an_alias_leads_to_the_same_view(app: Flask, document) -> None:
    views = {
        openapi_path(rule): app.view_functions[rule.endpoint].__name__
        for rule in app.url_map.iter_rules()
    }
    for path, _, operation in operations(document):
        for alias in document["paths"][path].get("x-aliases", ()):
            assert views[alias] == views[path] == operation["operationId"]
    aliases = document["paths"]["/compat/completions"]["x-aliases"]
    assert aliases == ["/v1/completions", "/compat/v1/completions"]


def test_operations_are_named_after_their_views(document) -> None:
    names = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(set(names)) == len(names)
    assert {
        "create_completion",
        "create_chat_completion",
        "list_models",
        "retrieve_model",
        "show_health",
        "show_readiness",
        "show_openapi",
        "show_docs",
    } <= set(names)


def test_every_operation_says_what_it_does_and_what_may_go_wrong(document) -> None:
    tags = {tag["name"] for tag in document["tags"]}
    for path, _, operation in operations(document):
        assert operation["summary"], path
        assert set(operation["tags"]) <= tags, path
        assert {"200", "403", "405", "500"} <= set(operation["responses"]), path


def test_it_names_server_version_licence_and_key(document) -> None:
    assert document["info"]["version"] == caesar_server.__version__
    assert document["info"]["license"]["identifier"] == "Apache-2.0"
    assert document["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"
    # Either none or a key.
    assert document["security"] == [{}, {"bearer": []}]


@pytest.mark.parametrize("path", ["openapi.json", "openapi.json/"])
def test_it_names_the_server_relative_to_itself(app: Flask, path: str) -> None:
    (server,) = app.test_client().get(f"/{path}").json["servers"]
    for base in ("http://127.0.0.1:8000", "https://site.example/under/caesar"):
        assert urljoin(f"{base}/{path}", server["url"]).rstrip("/") == base


@pytest.mark.parametrize("name", REQUESTS)
def test_every_field_of_a_request_is_described(document, name: str) -> None:
    described = document["components"]["schemas"][name]
    fields = REQUESTS[name]().fields
    assert set(described["properties"]) == set(fields)
    for field, schema in described["properties"].items():
        assert schema["description"], field
        typed = {"type", "anyOf", "oneOf"} & set(schema)
        assert typed or field == "tool_choice", field
    assert set(described.get("required", ())) == {
        field for field, definition in fields.items() if definition.required
    }


@pytest.mark.parametrize("name", REQUESTS)
def test_bounds_are_those_that_are_checked(document, name: str) -> None:
    for field, definition in REQUESTS[name]().fields.items():
        described = document["components"]["schemas"][name]["properties"][field]
        for option in (described, *described.get("anyOf", ())):
            if option.get("type") in ("integer", ["integer", "null"], ["number", "null"]):
                assert option.get("minimum") == definition.low, field
                assert option.get("maximum") == definition.high, field


@pytest.mark.parametrize("name", REQUESTS)
def test_null_is_allowed_where_a_field_is_optional(document, name: str) -> None:
    check = validator(document, name)
    for field, definition in REQUESTS[name]().fields.items():
        wrong = [error for error in check.iter_errors({field: None}) if list(error.path) == [field]]
        assert bool(wrong) == definition.required, field


def test_prompt_and_stop_are_alternatives(document) -> None:
    properties = document["components"]["schemas"]["CompletionRequest"]["properties"]
    assert len(properties["prompt"]["oneOf"]) == 4
    assert [option["type"] for option in properties["stop"]["oneOf"]] == ["string", "array", "null"]


@pytest.mark.parametrize("field", ["reasoning_loops", "source_timeout"])
def test_strings_are_described_exactly_as_they_are_taken(document, field: str) -> None:
    check, schema = validator(document, "ResearchMetadata"), MetadataSchema()
    texts = [*map(str, range(-2, 400)), "007", " 5 ", "5.0", "5 5", "", "+5", "five", "\u0665"]
    for text in texts:
        assert check.is_valid({field: text}) == (not schema.validate({field: text})), text


def test_examples_of_requests_match_their_schema_and_are_answered(app: Flask, document) -> None:
    client, tried = app.test_client(), 0
    for path, _, operation in operations(document):
        if "requestBody" not in operation:
            continue
        content = operation["requestBody"]["content"].get("application/json")
        if content is None:
            continue
        check = validator(document, content["schema"]["$ref"].rpartition("/")[2])
        for name, example in content["examples"].items():
            check.validate(example["value"])
            if "{" in path:
                continue
            reply = client.post(path, json=example["value"])
            assert (reply.status_code, bool(reply.data)) == (200, True), name
            tried += 1
    assert tried >= 6


def test_examples_of_answers_match_their_schema(document) -> None:
    tried = 0
    for _, _, operation in operations(document):
        for response in operation["responses"].values():
            content = response.get("content", {}).get("application/json", {})
            check = Draft202012Validator(
                {**content.get("schema", {}), "components": document["components"]}
            )
            for example in content.get("examples", {}).values():
                check.validate(example["value"])
                tried += 1
    assert tried >= 5


def test_the_example_of_a_stream_is_one(document) -> None:
    for path, chunk in (
        ("/compat/completions", "CompletionChunk"),
        ("/compat/chat/completions", "ChatCompletionChunk"),
    ):
        content = document["paths"][path]["post"]["responses"]["200"]["content"]
        text = content["text/event-stream"]["examples"]["stream"]["value"]
        *frames, last, rest = text.split("\n\n")
        assert (last, rest) == ("data: [DONE]", "")
        for frame in frames:
            validator(document, chunk).validate(json.loads(frame.removeprefix("data: ")))


def test_every_error_is_described_under_its_status(document) -> None:
    responses = document["components"]["responses"]
    for row in error_rows():
        status = "4XX" if " to " in row.status else row.status
        if status == "499":  # of a job that somebody cancelled: nobody is left to be told
            continue
        if status in ("409", "422"):  # of mocks alone
            continue
        # only what can be downloaded has ranges and marks
        surface = "Files" if status in ("412", "416") else ""
        assert f"`{row.code}`" in responses[f"{surface}Error{status}"]["description"], row
    for path in ("/compat/completions", "/compat/chat/completions"):
        described = document["paths"][path]["post"]["responses"]
        for status in ("400", "403", "404", "405", "413", "415", "429", "500", "502", "503", "504"):
            assert described[status] == {"$ref": f"#/components/responses/Error{status}"}


def test_headers_are_described(document) -> None:
    error = document["components"]["responses"]["Error429"]
    assert set(error["headers"]) == {
        "x-request-id",
        "API-Version",
        "x-should-retry",
        "Retry-After",
        "retry-after-ms",
        "x-ratelimit-limit-requests",
        "x-ratelimit-remaining-requests",
        "x-ratelimit-reset-requests",
    }
    for _, _, operation in operations(document):
        for response in operation["responses"].values():
            if "$ref" not in response:
                assert "x-request-id" in response["headers"]


def test_a_route_that_somebody_adds_to_the_app_appears_too() -> None:
    settings = Settings(default_backend="able")
    app = create_app(settings, Registry.of({"able": scripted_backend([])}, settings))

    @app.get("/own/<int:number>")
    def show_own(number: int) -> str:
        """Show something of one's own.  More words."""
        return str(number)

    document = app.test_client().get("/openapi.json").json
    OpenAPIV31SpecValidator(document).validate()
    own = document["paths"]["/own/{number}"]["get"]
    assert own["operationId"] == "show_own"
    assert "show_own" in app.test_client().get("/docs").text
    app.extensions["caesar_server"].close()


def test_it_is_made_once_and_not_before_it_is_asked_for(app: Flask, monkeypatch) -> None:
    made = []
    monkeypatch.setattr(
        "caesar_server.blueprints.ops.openapi.build_document",
        lambda app, surfaces: made.append(surfaces) or {},
    )
    description = ApiDescription(())
    assert made == []
    assert description.document(app) is description.document(app)
    assert len(made) == 1


def test_it_is_json_over_the_wire(app: Flask) -> None:
    reply = app.test_client().get("/openapi.json")
    assert reply.content_type == "application/json"
    assert reply.headers["x-request-id"]


@pytest.mark.parametrize("prompt", [[1.0, 2], [[1, 2.0]]])
def test_a_whole_number_is_an_integer_however_it_is_written(app: Flask, document, prompt) -> None:
    # JSON Schema has it so; Integer fields and token ids must not differ
    body = {"model": "m", "prompt": prompt, "max_tokens": 3.0}
    assert validator(document, "CompletionRequest").is_valid(body)
    assert app.test_client().post("/v1/completions", json=body).status_code == 200
    backend = app.extensions["caesar_server"].registry.loaded()["able"]
    (request,) = backend.script.requests
    assert repr((request.prompts, request.sampling.max_tokens)) == "(((1, 2),), 3)"


def test_the_headers_of_a_keys_rate_are_described(document) -> None:
    described = document["components"]["headers"]
    rate = {name for name in described if name.startswith("x-ratelimit-")}
    assert rate == set(window_headers(Window(limit=3, remaining=2, reset_s=1.5)))
    answer = document["paths"]["/compat/completions"]["post"]["responses"]["200"]
    refusal = document["components"]["responses"]["Error429"]
    for response in (answer, refusal):
        assert rate <= set(response["headers"])
    models = document["paths"]["/compat/models"]["get"]["responses"]["200"]
    assert not rate & set(models["headers"])
