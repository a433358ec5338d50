"""What a job has read, and what was said to it."""

from __future__ import annotations

import io
import uuid
from urllib.parse import quote

import pytest

from caesar_server.contract import (
    ChoiceFinished,
    Completed,
    ContentDelta,
    ResultFound,
    SourceStored,
)
from caesar_server.testing import Gate


@pytest.fixture
def done(serve):
    served = serve()
    job_id = served.create()
    served.ended(job_id)
    return served, f"/research/{job_id}"


@pytest.mark.parametrize(
    ("result", "query", "content"),
    [
        ("r1", "", "<p>One</p>"),
        ("r1", "?format=raw", "<p>One</p>"),
        ("r1", "?format=markdown", "One"),
        # what was not stored in that form is shown in the other
        ("r2", "?format=raw", "Two"),
    ],
)
def test_the_content_of_a_result(done, result, query, content) -> None:
    served, job = done
    assert served.get(f"{job}/results/{result}/content{query}") == {"content": content}


@pytest.mark.parametrize("result", ["r3", "r4", "https://example.org/x"])
def test_what_was_not_stored_is_404(done, result) -> None:
    served, job = done
    assert served.client.get(f"{job}/results/{result}/content").status_code == 404


def test_another_format_is_400_but_unknown_to_old_readers(done) -> None:
    served, job = done
    path = f"{job}/results/r1/content?format=pdf"
    response = served.client.get(path)
    assert (response.status_code, "format" in response.json["error"]) == (400, True)
    assert served.get(path, {"API-Version": "2025-08-08"}) == {"content": "<p>One</p>"}


def test_a_format_that_is_asked_for_twice_is_400(done) -> None:
    served, job = done
    for path in (f"{job}/results/r1/content", f"/agents{job}/results/r1"):
        response = served.client.get(f"{path}?format=raw&format=raw")
        assert response.status_code == 400
        assert response.json == {"error": "format: expected one value, got 2"}


def test_calls_to_third_parties(done) -> None:
    served, job = done
    search, page = served.get(f"{job}/http_requests")
    assert search["ask_id"] == page["ask_id"] == job.rpartition("/")[2]
    assert (search["url"], search["provider"]) == ("https://search.example", "search")
    assert [log["response_status"] for log in search["http_logs"]] == [503, 200]
    assert "results_index" not in search
    assert page["results_index"] == 0
    logs = [*search["http_logs"], *page["http_logs"]]
    assert len({uuid.UUID(log["id"]) for log in logs}) == 3
    for log in logs:
        assert type(log["duration_ms"]) is type(log["response_status"]) is int
        assert all(type(log[name]) is str for name in log if name not in _NUMBERS)


_NUMBERS = ("duration_ms", "response_status")


def test_updates_reach_the_backend_in_their_order(serve) -> None:
    gate = Gate()

    def told(context):
        return ContentDelta("|".join(f"{one.id}={one.content}" for one in context.updates()))

    served = serve([gate, told, ContentDelta("||"), told, ChoiceFinished(), Completed()])
    job_id = served.create()
    gate.wait_until_reached()
    sent = []
    for text in ("First", "Then"):
        response = served.client.post(f"/research/{job_id}/updates", json={"update_content": text})
        assert response.status_code == 200
        assert response.json == {
            "id": response.json["id"],
            "ask_id": job_id,
            "update_content": text,
            "files": [],
            "created_at": response.json["created_at"],
        }
        sent.append(response.json)
    assert served.get(f"/research/{job_id}/updates") == sent
    gate.open()
    content = served.ended(job_id)["content"]
    assert content == "|".join(f"{one['id']}={one['update_content']}" for one in sent) + "||"
    late = served.client.post(f"/research/{job_id}/updates", json={"update_content": "Late"})
    assert (late.status_code, "has ended" in late.json["error"]) == (400, True)
    assert served.get(f"/research/{job_id}/updates") == sent


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "update_content"),
        ({"update_content": ""}, "update_content"),
        ({"update_content": 1}, "update_content"),
        ({"update_content": "x", "files": ["nope"]}, "nope"),
    ],
)
def test_bad_updates_are_400(serve, body, field) -> None:
    gate = Gate()
    served = serve([gate, ChoiceFinished(), Completed()])
    job_id = served.create()
    response = served.client.post(f"/research/{job_id}/updates", json=body)
    assert (response.status_code, field in response.json["error"]) == (400, True)
    assert served.get(f"/research/{job_id}/updates") == []
    gate.open()
    served.ended(job_id)


@pytest.mark.parametrize(
    "result_id",
    ["/data/a.md", "https://example.org/a/content", "https://example.org/a/", "a b", "\u00e4"],
)
def test_a_result_may_have_any_id(serve, result_id) -> None:
    served = serve(
        [
            ResultFound(result_id, "A", "file:a"),
            SourceStored(result_id, raw="half \ud83d"),
            ChoiceFinished(),
            Completed(),
        ]
    )
    job_id = served.create()
    (result,) = served.ended(job_id)["results"]
    path = f"/research/{job_id}/results/{quote(result['id'], safe='/')}/content"
    assert served.get(path) == {"content": "half \ufffd"}
    assert served.get(f"{path}/") == {"content": "half \ufffd"}
    agent = f"/agents/research/{job_id}/results/{quote(result['id'], safe='/')}"
    for found in (agent, f"{agent}/"):
        assert served.get(f"{found}?format=raw")["content"] == "half \ufffd"


@pytest.mark.parametrize(("reads", "status"), [(True, 200), (False, 400)])
def test_files_of_an_update_are_for_who_reads_them(serve, reads, status) -> None:
    gate = Gate()
    served = serve([gate, ChoiceFinished(), Completed()], able={"files": reads})
    form = {"file": (io.BytesIO(b"text"), "a.txt")}
    file_id = served.client.post("/research/files", data=form).json["id"]
    job_id = served.create()
    body = {"update_content": "See the file.", "files": [file_id]}
    response = served.client.post(f"/research/{job_id}/updates", json=body)
    assert response.status_code == status, response.text
    gate.open()
    served.ended(job_id)
