"""Clients that are generated from ``/openapi.json`` work.

openapi-python-client makes one, which is used.  Others need more, as OpenAPI Generator needs Java;
what ends them is looked for in the description.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flask import Flask

from caesar_server.testing import LiveServer

OCTETS = "application/octet-stream"
USE = """
import io, sys

from caesar_server_client import Client
from caesar_server_client.api.files import create_research_file, retrieve_research_file_content
from caesar_server_client.api.open_ai_compatible import create_chat_completion, create_completion
from caesar_server_client.api.research import create_agent_research, create_research, list_research
from caesar_server_client.models import (
    AgentResearchRequest,
    ChatCompletionRequest,
    CompletionRequest,
    FileUpload,
    ResearchMetadata,
    ResearchRequest,
)
from caesar_server_client.types import File

with Client(base_url=sys.argv[1], raise_on_unexpected_status=True) as client:
    asked = CompletionRequest(
        model="able", prompt="Hi", stop=["###"], metadata=ResearchMetadata(reasoning_loops=2)
    )
    print(create_completion.sync(client=client, body=asked).choices[0].text)
    chat = {"model": "able", "messages": [{"role": "user", "content": "Hi"}], "logprobs": True}
    body = ChatCompletionRequest.from_dict(chat)
    print(create_chat_completion.sync(client=client, body=body).choices[0].message.content)
    body = ChatCompletionRequest.from_dict({"model": "able", "messages": []})
    print(create_chat_completion.sync(client=client, body=body).error.code)
    upload = FileUpload(file=File(io.BytesIO(bytes(range(256))), "all.bin"))
    file = create_research_file.sync(client=client, body=upload)
    content = retrieve_research_file_content.sync(str(file.id), client=client)
    print(file.file_name, file.size, content.payload.read() == bytes(range(256)))
    print(create_research.sync(client=client, body=ResearchRequest(query="Why?")).status)
    agent = create_agent_research.sync(
        client=client, body=AgentResearchRequest(query="Why?"), stream=False
    )
    print(agent.status, len(list_research.sync(client=client, limit=200).data))
"""
USED = """\
Error correction
Error correction
invalid_value
all.bin 256 True
queued
queued 4
"""


@pytest.mark.slow
def test_a_client_that_is_generated_from_it_works(app: Flask, document, tmp_path: Path) -> None:
    (tmp_path / "openapi.json").write_text(json.dumps(document))
    (tmp_path / "config.yaml").write_text("post_hooks: []\n")
    generated = subprocess.run(
        [
            *(Path(sys.executable).with_name("openapi-python-client"), "generate"),
            *("--path", "openapi.json", "--output-path", "client", "--config", "config.yaml"),
            "--fail-on-warning",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert generated.returncode == 0, generated.stdout + generated.stderr
    with LiveServer(app) as server:
        used = subprocess.run(
            [sys.executable, "-c", USE, server.base_url],
            cwd=tmp_path / "client",
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert (used.stdout, used.returncode) == (USED, 0), used.stdout + used.stderr


def schemas_in(node: Any, where: str = "#") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every object of a document with its path."""
    if isinstance(node, dict):
        yield where, node
        for name, inner in node.items():
            yield from schemas_in(inner, f"{where}/{name}")
    elif isinstance(node, list):
        for index, inner in enumerate(node):
            yield from schemas_in(inner, f"{where}/{index}")


def test_no_object_has_fields_beside_what_it_is_composed_of(document) -> None:
    # OpenAPI Generator loses what optional fields may be, and ends in Python and Rust
    found = [where for where, one in schemas_in(document) if {"allOf", "properties"} <= set(one)]
    assert found == []


def test_nothing_is_null_alone(document) -> None:
    # there is no class for it, but in an alternative
    found = [
        where
        for where, one in schemas_in(document)
        if one.get("type") == "null" and where.split("/")[-2] not in ("anyOf", "oneOf")
    ]
    assert found == []


def test_names_of_constants_differ_in_more_than_capitals(document) -> None:
    # they become TRUE and FALSE
    for where, one in schemas_in(document):
        names = [str(value).upper() for value in one.get("enum", ())]
        assert len(set(names)) == len(names), where


def test_bytes_are_said_to_be_bytes_in_both_ways(document) -> None:
    # 3.1 has ``contentMediaType``, which few generators know: their clients take a text then
    found = [one for _, one in schemas_in(document) if one.get("contentMediaType") == OCTETS]
    assert found
    assert [one.get("format") for one in found] == ["binary"] * len(found)
