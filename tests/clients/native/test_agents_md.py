"""Arcane's Agents.MD: what it sends, and what its TypeScript reads.

It posts ``query``, ``compute_units`` and ``system_prompt``, takes ``results[].score`` for a number
and parses ``transformed_content`` as JSON; ``created_at`` goes into ``new Date(...)``.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

BODY = {"query": "research", "compute_units": 5, "system_prompt": "Answer with a JSON object"}

#: Reads the bodies of several answers and prints all moments in milliseconds, NaN as null.
MOMENTS = """
let text = "";
for await (const part of process.stdin) text += part;
const found = [];
const walk = (value) => {
  if (value === null || typeof value !== "object") return;
  for (const [name, one] of Object.entries(value)) {
    if (name.endsWith("_at")) found.push([name, one, new Date(one).getTime()]);
    else walk(one);
  }
};
walk(JSON.parse(text));
console.log(JSON.stringify(found));
"""


@pytest.fixture
def job(native: Any) -> dict[str, Any]:
    """A job as this client begins one, which has ended."""
    created = native.send("POST", "/research", BODY)
    assert created.status == 200
    (*_, last) = native.poll(created.body["id"])
    return dict(last.body)


def test_what_is_left_may_be_shown(native) -> None:
    created = native.send("POST", "/research", BODY)
    assert created.headers["x-ratelimit-remaining"].isdigit()


def test_every_result_has_a_score_that_is_a_number(job) -> None:
    assert len(job["results"]) == 3
    for result in job["results"]:
        assert type(result["score"]) in (int, float)
        assert 0 <= result["score"] <= 1
    assert job["results"][0]["score"] == 0.75
    assert job["results"][0]["citation_index"] == 1


def test_the_transformed_content_is_text_that_holds_json(job) -> None:
    assert isinstance(job["transformed_content"], str)
    assert json.loads(job["transformed_content"]) == {"summary": "Much is new", "confidence": 7}
    assert job["content"] == "Much is new [1], and more [2]."


def test_the_list_as_a_health_check(native, job) -> None:
    body = native.send("GET", "/research?limit=1").body
    assert set(body["pagination"]) >= {"page", "limit", "has_next"}
    assert body["data"][0]["id"] == job["id"]
    assert type(body["data"][0]["results"][0]["score"]) in (int, float)


def test_every_moment_is_the_same_to_javascript_and_python(native, job) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node.js is not installed")
    paths = (f"/{job['id']}", f"/{job['id']}/events", "?limit=2", "/files")
    part = b'Content-Disposition: form-data; name="file"; filename="a.txt"'
    upload = b"--b\r\n%b\r\n\r\ntext\r\n--b--\r\n" % part
    kind = {"Content-Type": "multipart/form-data; boundary=b"}
    bodies = [native.send("POST", "/research/files", upload, headers=kind).body]
    bodies += [native.send("GET", f"/research{path}").body for path in paths]
    done = subprocess.run(
        [node, "--input-type=module", "-e", MOMENTS],
        input=json.dumps(bodies),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    moments = json.loads(done.stdout)
    assert {name for name, _, _ in moments} == {"created_at", "completed_at"}
    assert len(moments) > 10
    for _, text, milliseconds in moments:
        moment = datetime.fromisoformat(text)
        assert moment.tzinfo is not None
        assert milliseconds == round(moment.timestamp() * 1000)
        assert abs(datetime.now(UTC) - moment) < timedelta(hours=1)
