"""schemathesis tries the API against its own description, with good bodies and with bad ones."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flask import Flask

from caesar_server.jobs.following.follower import Follower
from caesar_server.store.base import UnknownJobError
from caesar_server.testing import LiveServer
from caesar_server.web.services import EXTENSION, services_of

EXAMPLES = 25
#: Any will do; a fixed one lets a failure be repeated.
SEED = 20251127


EACH = ("--phases", "examples,coverage,fuzzing", "--max-examples", str(EXAMPLES))
UPLOAD = "create_(research|agent)_file"
#: The operations that links lead to from the creation of a job.
JOBS = ("--include-path-regex", r"^/research(/\{job_id\}(/(events|results|http_requests).*)?)?$")


def described_for_this_app(document: dict[str, Any]) -> dict[str, Any]:
    """Return the description less what does not hold for the app under test.

    Said in the description's words, but not expressible in JSON Schema: ``best_of`` is at least
    ``n`` and stands alone without a stream; answers need a session.  Not so here: no file,
    collection or session exists, so that naming one is an error, and the backend passes no status
    of somebody else's on.
    """
    own = copy.deepcopy(document)
    schemas = own["components"]["schemas"]
    schemas["ResearchMetadata"]["properties"]["collection_ids"]["maxItems"] = 0
    schemas["FileUpload"]["properties"]["collection_id"]["maxLength"] = 0
    for message in schemas["ChatCompletionRequest"]["properties"]["messages"]["items"]["oneOf"]:
        parts = message["properties"]["content"]["oneOf"][1]["items"]
        parts["oneOf"] = [part for part in parts["oneOf"] if "text" in part["required"]]
    for name in ("ResearchRequest", "AgentResearchRequest", "ResearchUpdateRequest"):
        properties = schemas[name]["properties"]
        for field in ("files", "collection_ids", "answers"):
            if field in properties:
                properties[field]["maxItems"] = 0
        for field in ("brainstorm_session_id", "model"):
            if field in properties:
                properties[field] = {"type": "null"}
    del schemas["FileUpload"]["properties"]["collection_id"]
    schemas["CompletionRequest"]["allOf"] = [
        {
            "if": {"required": ["best_of"], "properties": {"best_of": {"type": "integer"}}},
            "then": {"properties": {"n": {"maximum": 1}, "stream": {"enum": [False, None]}}},
        }
    ]
    for item in own["paths"].values():
        for operation in item.values():
            if isinstance(operation, dict):
                operation["responses"].pop("4XX", None)
    return own


def let_jobs_end_first(app: Flask) -> None:
    """Let whoever reads a job see it at its end, so that links lead to its results."""
    parts = services_of(app)

    def settled(job_id: str) -> None:
        try:
            with closing_follower(parts.runner.follow_stored(parts.store.job(job_id))) as follower:
                while not follower.drained:
                    follower.take(10)
        except UnknownJobError:
            pass

    app.extensions[EXTENSION] = replace(parts, settled=settled)


@contextmanager
def closing_follower(follower: Follower) -> Iterator[Follower]:
    try:
        yield follower
    finally:
        follower.leave()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "options",
    [
        (*EACH, "--exclude-operation-id-regex", UPLOAD),
        # what is wrong with a form, a schema cannot say
        (*EACH, "--include-operation-id-regex", UPLOAD, "--mode", "positive"),
        # a job from its creation to what it has read
        (*("--phases", "stateful", "--max-examples", "50"), *JOBS),
    ],
    ids=["each", "upload", "in-a-row"],
)
def test_schemathesis_finds_nothing(
    app: Flask, document, tmp_path: Path, options: tuple[str, ...]
) -> None:
    description = tmp_path / "openapi.json"
    description.write_text(json.dumps(described_for_this_app(document)))
    let_jobs_end_first(app)
    with LiveServer(app) as server:
        result = subprocess.run(
            [
                Path(sys.executable).with_name("schemathesis"),
                "run",
                description,
                *("--url", server.base_url),
                *("--checks", "all"),
                *options,
                *("--seed", str(SEED)),
                "--continue-on-failure",
                "--no-color",
            ],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=550,
        )
    assert result.returncode == 0, result.stdout[-20_000:] + result.stderr
    # It did run, all of it.
    if "stateful" in options:
        assert "never reached" not in result.stdout, result.stdout
    else:
        methods = {"get", "post", "patch", "delete"}
        operations = sum(len(methods & set(item)) for item in document["paths"].values())
        tested = 2 if "positive" in options else operations - 2
        assert f"Tested: {tested}" in result.stdout
