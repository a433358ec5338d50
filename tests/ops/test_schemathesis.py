"""schemathesis tries the API against its own description, with good bodies and with bad ones."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from flask import Flask

from caesar_server.testing import LiveServer

EXAMPLES = 200
#: Any will do; a fixed one lets a failure be repeated.
SEED = 20251127


def described_for_this_app(document: dict[str, Any]) -> dict[str, Any]:
    """Return the description less what does not hold for the app under test.

    Said in the description's words, but not expressible in JSON Schema: ``best_of`` is at least
    ``n`` and stands alone without a stream.  Not so here: no collection exists, so that naming one
    is an error, and the backend passes no status of somebody else's on.
    """
    own = copy.deepcopy(document)
    schemas = own["components"]["schemas"]
    schemas["ResearchMetadata"]["properties"]["collection_ids"]["maxItems"] = 0
    schemas["CompletionRequest"]["allOf"].append(
        {
            "if": {"required": ["best_of"], "properties": {"best_of": {"type": "integer"}}},
            "then": {"properties": {"n": {"maximum": 1}, "stream": {"enum": [False, None]}}},
        }
    )
    for item in own["paths"].values():
        for operation in item.values():
            if isinstance(operation, dict):
                operation["responses"].pop("4XX", None)
    return own


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_schemathesis_finds_nothing(app: Flask, document, tmp_path: Path) -> None:
    description = tmp_path / "openapi.json"
    description.write_text(json.dumps(described_for_this_app(document)))
    with LiveServer(app) as server:
        result = subprocess.run(
            [
                Path(sys.executable).with_name("schemathesis"),
                "run",
                description,
                *("--url", server.base_url),
                *("--checks", "all"),
                *("--phases", "examples,coverage,fuzzing,stateful"),
                *("--max-examples", str(EXAMPLES)),
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
    operations = sum(len({"get", "post"} & set(item)) for item in document["paths"].values())
    assert f"Tested: {operations}" in result.stdout
    assert "API Links:    1 covered" in result.stdout
