"""From the OpenAPI document to what the page at ``/docs`` shows.  Pure."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from caesar_server.blueprints.ops.schema_rows import Row, member_row, reference, schema_rows
from caesar_server.web.description import Json

#: Headers of all answers, which need not be listed with each.
_EVERYWHERE = frozenset({"x-request-id", "API-Version"})
#: How files are sent.
_FORM = "multipart/form-data"
_METHODS = ("get", "post", "put", "patch", "delete")


@dataclass(frozen=True, slots=True)
class Example:
    """A request as a shell command.

    :param curl: what to paste into a shell.
    """

    title: str
    curl: str


@dataclass(frozen=True, slots=True)
class Content:
    """What a response holds in one media type.

    :param rows: the members of the JSON body, or of the data of an event.
    """

    media_type: str
    title: str
    rows: tuple[Row, ...]
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """A response by status; ``headers`` are those besides the ones that all have."""

    status: str
    description: str
    headers: tuple[str, ...]
    contents: tuple[Content, ...]

    @property
    def failed(self) -> bool:
        """Whether it is an error."""
        return not self.status.startswith("2")


@dataclass(frozen=True, slots=True)
class OperationSection:
    """One operation of the page; ``anchor`` is its id."""

    anchor: str
    method: str
    path: str
    aliases: tuple[str, ...]
    summary: str
    description: str
    parameters: tuple[Row, ...]
    body: tuple[Row, ...]
    examples: tuple[Example, ...]
    answers: tuple[Answer, ...]


@dataclass(frozen=True, slots=True)
class TagSection:
    """The operations of one surface."""

    name: str
    description: str
    operations: tuple[OperationSection, ...]


def page_sections(document: Json, base_url: str) -> list[TagSection]:
    """Return the sections of the page; one without operations is left out.

    :param base_url: where the server is found, without a slash at its end.
    """
    sections = list(_operations(document, base_url))
    tags = [*document.get("tags", ()), {"name": "Other", "description": ""}]
    found = (
        TagSection(
            tag["name"],
            tag["description"],
            tuple(section for name, section in sections if name == tag["name"]),
        )
        for tag in tags
    )
    return [tag for tag in found if tag.operations]


def _operations(document: Json, base_url: str) -> Iterator[tuple[str, OperationSection]]:
    for path, item in document["paths"].items():
        for method in _METHODS:
            if method in item:
                tags = item[method].get("tags") or ["Other"]
                yield tags[0], _section(document, path, method, item, base_url)


def _section(document: Json, path: str, method: str, item: Json, base_url: str) -> OperationSection:
    operation = item[method]
    contents = operation.get("requestBody", {}).get("content", {})
    body: Json = next(iter(contents.values()), {})
    return OperationSection(
        anchor=operation["operationId"],
        method=method.upper(),
        path=path,
        aliases=tuple(item.get("x-aliases", ())),
        summary=operation["summary"],
        description=operation.get("description", ""),
        parameters=tuple(
            member_row(
                document,
                parameter["name"],
                parameter["schema"],
                required=parameter.get("required", False),
                meaning=parameter.get("description", ""),
            )
            for parameter in operation.get("parameters", ())
        ),
        body=tuple(schema_rows(document, body["schema"])) if body else (),
        examples=tuple(
            _upload(operation, path, base_url)
            if _FORM in contents
            else _examples(operation, path, method, body, base_url)
        ),
        answers=tuple(
            _answer(document, status, response)
            for status, response in sorted(operation["responses"].items())
        ),
    )


def _examples(
    operation: Json, path: str, method: str, body: Json, base_url: str
) -> Iterator[Example]:
    for example in body.get("examples", {}).values():
        value = example["value"]
        yield Example(example["summary"], curl(method, base_url + _filled(path, operation), value))
    if not body:
        yield Example("Call it", curl(method, base_url + _filled(path, operation)))


def _upload(operation: Json, path: str, base_url: str) -> Iterator[Example]:
    url = shlex.quote(base_url + _filled(path, operation))
    yield Example("Upload a file", f"curl -s {url} -F file=@paper.pdf")


def _filled(path: str, operation: Json) -> str:
    """Return ``path`` with an example for each of its variables."""
    examples = {
        parameter["name"]: str(next(iter(parameter["schema"].get("examples", ())), "..."))
        for parameter in operation.get("parameters", ())
    }
    return re.sub(r"\{(.+?)\}", lambda found: examples[found[1]], path)


def curl(method: str, url: str, body: Json | None = None) -> str:
    """Return the shell command for a request."""
    if body is None:
        verb = "" if method == "get" else f"-X {method.upper()} "
        return f"curl -s {verb}{shlex.quote(url)}"
    text = json.dumps(body, indent=2, ensure_ascii=False)
    # -N: print a stream as it comes
    flags = "-sN" if body.get("stream") else "-s"
    lines = [
        f"curl {flags} {shlex.quote(url)}",
        *([] if method == "post" else [f"  -X {method.upper()}"]),
        "  -H 'Content-Type: application/json'",
        f"  -d {shlex.quote(text)}",
    ]
    return " \\\n".join(lines)


def _answer(document: Json, status: str, response: Json) -> Answer:
    response = reference(document, response)
    return Answer(
        status=status,
        description=response["description"],
        headers=tuple(name for name in response.get("headers", ()) if name not in _EVERYWHERE),
        contents=tuple(
            _content(document, media_type, content)
            for media_type, content in response.get("content", {}).items()
        ),
    )


def _content(document: Json, media_type: str, content: Json) -> Content:
    schema: Mapping[str, Any] = content["schema"]
    title = "Body"
    if media_type == "text/event-stream":
        schema, title = (
            schema["properties"]["data"]["anyOf"][0]["contentSchema"],
            "Data of an event",
        )
    return Content(
        media_type=media_type,
        title=title,
        rows=tuple(schema_rows(document, schema)),
        examples=tuple(_shown(one["value"]) for one in content.get("examples", {}).values()),
    )


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
