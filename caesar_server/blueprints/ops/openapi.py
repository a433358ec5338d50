"""The description of the HTTP API as an OpenAPI 3.1 document.

Made from the app's own map of URLs, so that no route can be missing, and from what each surface
says about its views; schemas of requests are translated from those that check them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from apispec import APISpec
from apispec.ext.marshmallow import MarshmallowPlugin
from flask import Flask
from marshmallow import fields
from werkzeug.routing import Rule

from caesar_server import __version__
from caesar_server.web.description import Json, Operation, Surface, ref
from caesar_server.web.error_reference import ErrorRow, error_rows

#: Answered by Flask for every route.
_IMPLIED = frozenset({"HEAD", "OPTIONS"})
_VARIABLE = re.compile(r"<(?:[^<>:]+:)?([^<>:]+)>")

_INFO = {
    "description": (
        "A self-hosted server for the Caesar research API that speaks OpenAI's wire protocol.\n\n"
        "Some paths have aliases, which answer alike: each path lists them in `x-aliases`.  `HEAD` "
        "is answered wherever `GET` is, and `OPTIONS` everywhere.\n\n"
        "Every response carries `x-request-id`: the caller's own if it sent a sane one, else a new "
        "one."
    ),
    "license": {"name": "Apache License 2.0", "identifier": "Apache-2.0"},
}
_BEARER = {
    "type": "http",
    "scheme": "bearer",
    "description": "Needed if the server has keys of its own; accepted in any case.",
}
_HEADERS: Mapping[str, Json] = {
    "API-Version": {
        "description": "The version of the API in which the answer is.",
        "required": True,
        "schema": {"type": "string", "format": "date"},
    },
    "x-request-id": {
        "description": "Names the request in the server's log.",
        "required": True,
        "schema": {"type": "string", "pattern": "^[A-Za-z0-9._:/+=-]{1,128}$"},
    },
    "x-should-retry": {
        "description": "Tells OpenAI's clients whether to repeat the request, whatever its status.",
        "schema": {"type": "string", "enum": ["true", "false"]},
    },
    "Retry-After": {
        "description": "Seconds after which to try again, where that is known.",
        "schema": {"type": "integer", "minimum": 0},
    },
    "retry-after-ms": {
        "description": "The same in milliseconds.",
        "schema": {"type": "integer", "minimum": 0},
    },
    "x-ratelimit-limit-requests": {
        "description": "Requests a minute that the caller's key allows; only if it has a limit.",
        "schema": {"type": "integer", "minimum": 1},
    },
    "x-ratelimit-remaining-requests": {
        "description": "How many of them are left.",
        "schema": {"type": "integer", "minimum": 0},
    },
    "x-ratelimit-reset-requests": {
        "description": "The time until one more is there, such as `12.5s`.",
        "schema": {"type": "string", "pattern": "^[0-9]+([.][0-9]{1,3})?s$"},
    },
    "WWW-Authenticate": {"description": "`Bearer`.", "schema": {"type": "string"}},
    "Allow": {"description": "The methods that the path has.", "schema": {"type": "string"}},
}
_WAIT = ("x-should-retry", "Retry-After", "retry-after-ms")
_RATE = tuple(name for name in _HEADERS if name.startswith("x-ratelimit-"))
#: Headers of an error besides the id, by status.
_ERROR_HEADERS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("400", "4XX", "500", "502", "504"), ("x-should-retry",)),
    "401": ("WWW-Authenticate",),
    "405": ("Allow",),
    "429": (*_WAIT, *_RATE),
    "503": _WAIT,
}


class ApiDescription:
    """The document of one app, made when it is first asked for.

    :param surfaces: those that take long to make as functions that make them.
    """

    def __init__(self, surfaces: Iterable[Surface | Callable[[], Surface]]) -> None:
        self._surfaces = tuple(surfaces)
        self._document: Json | None = None

    def document(self, app: Flask) -> Json:
        """Return the document; ``app`` is always the same."""
        if self._document is None:
            # Two threads may both come here: they make the same.
            surfaces = [one if isinstance(one, Surface) else one() for one in self._surfaces]
            self._document = build_document(app, surfaces)
        return self._document


@dataclass(frozen=True, slots=True)
class View:
    """A view with the paths that lead to it, the canonical one first.

    :param paths: as OpenAPI writes them.
    :param methods: in lower case.
    """

    name: str
    summary: str
    paths: list[str] = field(default_factory=list)
    methods: set[str] = field(default_factory=set)


def find_views(app: Flask) -> list[View]:
    """Return the views of ``app``: routes that share one are each other's aliases.

    The first route that was registered is the canonical one.
    """
    views: dict[Callable[..., Any], View] = {}
    for rule in app.url_map.iter_rules():
        function = app.view_functions[rule.endpoint]
        if function not in views:
            summary = (function.__doc__ or function.__name__).partition("\n")[0]
            views[function] = View(function.__name__, summary)
        views[function].paths.append(openapi_path(rule))
        views[function].methods.update(
            method.lower() for method in (rule.methods or set()) - _IMPLIED
        )
    return list(views.values())


def openapi_path(rule: Rule) -> str:
    """Return a rule's path as OpenAPI writes it, ending without a slash: ``/models/{id}``."""
    return _VARIABLE.sub(r"{\1}", rule.rule.rstrip("/") or "/")


def build_document(app: Flask, surfaces: Iterable[Surface]) -> dict[str, Any]:
    """Return the whole document: every route of ``app``, described or not."""
    surfaces = tuple(surfaces)
    spec = _new_spec(surfaces)
    for surface in surfaces:
        _add_schemas(spec, surface)
        _add_error_responses(spec, surface)
    known = {
        name: (surface, operation)
        for surface in surfaces
        for name, operation in surface.operations.items()
    }
    for view in find_views(app):
        described = known.get(view.name)
        operation = _undescribed(view) if described is None else _operation(view, *described)
        first, *aliases = view.paths
        extension = {"x-aliases": aliases} if aliases else {}
        spec.path(
            path=first,
            operations=dict.fromkeys(sorted(view.methods), operation) | extension,
        )
    return spec.to_dict()


def _new_spec(surfaces: Iterable[Surface]) -> APISpec:
    plugin = MarshmallowPlugin()
    spec = APISpec(
        title="caesar-server",
        version=__version__,
        openapi_version="3.1.1",
        plugins=[plugin],
        info=_INFO,
        # Relative to where the document was found, or what a proxy puts before it would be lost.
        servers=[{"url": "./", "description": "This server"}],
        tags=[{"name": one.tag, "description": one.description} for one in surfaces],
        # An empty requirement makes the other one optional.
        security=[{}, {"bearer": []}],
    )
    if plugin.converter is not None:  # APISpec has made it
        add_keywords: Callable[[Any], None] = plugin.converter.add_attribute_function
        add_keywords(_add_keywords)
    spec.components.security_scheme("bearer", _BEARER)
    for name, header in _HEADERS.items():
        spec.components.header(name, dict(header))
    return spec


def _add_keywords(converter: Any, field: fields.Field[Any], ret: dict[str, Any]) -> dict[str, Any]:
    """Return what apispec leaves out: keywords of JSON Schema 2020-12, and null in unions."""
    found: dict[str, Any] = {
        name: field.metadata[name]
        for name in ("contains", "propertyNames")
        if name in field.metadata
    }
    for union in ("anyOf", "oneOf"):
        if union in field.metadata:
            # The union says it all; the type is that of the field's class.
            ret.pop("type", None)
            options = field.metadata[union]
            null = {"type": "null"}
            if field.allow_none and null not in options:
                found[union] = [*options, null]
    return found


def _add_schemas(spec: APISpec, surface: Surface) -> None:
    for name, schema in surface.schemas.items():
        keywords = dict(surface.keywords.get(name, {}))
        if isinstance(schema, Mapping):
            spec.components.schema(name, {**schema, **keywords})
        else:
            spec.components.schema(name, keywords, schema=schema)


def _add_error_responses(spec: APISpec, surface: Surface) -> None:
    statuses = {status for one in surface.operations.values() for status in one.errors}
    rows = error_rows()
    for status in sorted(statuses):
        found = [row for row in rows if row.has_status(status)]
        spec.components.response(
            _error_response(surface, status),
            {
                "description": _codes(found) or "See the message.",
                "headers": _headers(*_ERROR_HEADERS.get(status, ())),
                "content": {"application/json": {"schema": ref(surface.error_schema)}},
            },
        )


def _error_response(surface: Surface, status: str) -> str:
    return f"{surface.error_schema}{status}"


def _codes(rows: Iterable[ErrorRow]) -> str:
    """Return a list of codes and what they mean, in CommonMark."""
    return "\n".join(f"- `{row.code}`: {row.when.replace('``', '`')}" for row in rows)


def _headers(*names: str) -> dict[str, Json]:
    return {
        name: {"$ref": f"#/components/headers/{name}"}
        for name in ("x-request-id", "API-Version", *names)
    }


def _operation(view: View, surface: Surface, operation: Operation) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": view.name,
        "summary": operation.summary,
        "tags": [surface.tag],
    }
    if operation.description:
        found["description"] = operation.description
    if operation.open:
        found["security"] = []
    parameters = list(_parameters(view, operation))
    if parameters:
        found["parameters"] = parameters
    if operation.body is not None:
        content = {"schema": ref(operation.body), "examples": dict(operation.body_examples)}
        found["requestBody"] = {
            "required": not operation.body_optional,
            "content": {operation.body_type: content},
        }
    if operation.extension:
        found["x-caesar-extension"] = True
    found["responses"] = dict(_responses(surface, operation))
    return found


def _parameters(view: View, operation: Operation) -> Iterator[dict[str, Any]]:
    for name in re.findall(r"\{(.+?)\}", view.paths[0]):
        described = operation.parameters.get(name, {"schema": {"type": "string"}})
        yield {"name": name, "in": "path", "required": True, **described}
    for name, described in operation.query.items():
        yield {"name": name, "in": "query", **described}
    for name, described in operation.headers.items():
        yield {"name": name, "in": "header", **described}


def _responses(surface: Surface, operation: Operation) -> Iterator[tuple[str, Json]]:
    # Only what has a body counts towards a key's requests.
    shared = _headers(*_RATE) if operation.body is not None else _headers()
    for status, response in operation.responses.items():
        yield status, {**response, "headers": {**shared, **response.get("headers", {})}}
    for status in operation.errors:
        name = _error_response(surface, status)
        yield status, {"$ref": f"#/components/responses/{name}"}


def _undescribed(view: View) -> dict[str, Any]:
    """Return what is known of a route that was added to the app by somebody else."""
    return {
        "operationId": view.name,
        "summary": view.summary,
        "parameters": list(_parameters(view, Operation(summary=view.summary))),
        "responses": {"default": {"description": "Not described."}},
    }
