"""The official SDK, ``caesar-data``, unchanged: found by its environment variables alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import caesar
import pytest

#: So that three pages of a list are needed.
JOBS, LIMIT = 25, 10


@pytest.fixture
def client(native: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[caesar.Caesar]:
    monkeypatch.setenv("CAESAR_BASE_URL", native.url)
    monkeypatch.setenv("CAESAR_API_KEY", native.keys["acme"])
    with caesar.Caesar(max_retries=0, timeout=60.0) as client:
        yield client


@pytest.fixture
def client_of(native: Any) -> Iterator[Callable[..., caesar.Caesar]]:
    """Make a client with any key."""
    clients: list[caesar.Caesar] = []

    def make(key: str, **options: Any) -> caesar.Caesar:
        options = {"base_url": native.url, "max_retries": 0, **options}
        clients.append(caesar.Caesar(api_key=key, **options))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


@pytest.fixture
def finished(client: caesar.Caesar, wait_until: Any) -> Callable[..., Any]:
    """Begin a job and return it once it has ended."""

    def run(**fields: Any) -> Any:
        job = client.research.create(**fields)
        assert job.status == "queued"

        def ended() -> Any:
            found = client.research.retrieve(job.id)
            return found if found.status in ("completed", "failed") else None

        return wait_until(ended)

    return run


# Research


def test_a_job_from_its_creation_to_its_answer(finished) -> None:
    job = finished(query="research", compute_units=3, system_prompt="As JSON")
    assert (job.status, job.query) == ("completed", "research")
    assert job.content == "Much is new [1], and more [2]."
    assert json.loads(job.transformed_content) == {"summary": "Much is new", "confidence": 7}
    assert abs(datetime.now(UTC) - job.created_at) < timedelta(minutes=5)
    assert [(one.title, one.url, one.citation_index) for one in job.results] == [
        ("News", "https://a.example/", 1),
        ("Unscored", "https://b.example/", 2),
        ("Uncited", "https://c.example/", None),
    ]
    # the SDK's own type says that there always is one
    assert all(isinstance(one.score, float) and 0 <= one.score <= 1 for one in job.results)
    assert job.results[0].score == 0.75


def test_a_job_of_the_newer_version_has_no_scores(finished) -> None:
    job = finished(query="research")
    assert job.status == "completed"
    assert job.transformed_content is None
    assert len(job.results) == 3
    assert {one.score for one in job.results} == {None}


def test_a_failed_job_says_why(finished) -> None:
    job = finished(query="breaks")
    assert (job.status, job.content) == ("failed", None)
    assert job.to_dict()["error"] == "It is gone"


def test_every_job_is_on_one_of_three_pages(native, client_of) -> None:
    client = client_of(native.keys["lists"])
    made = [client.research.create(query="capital?").id for _ in range(JOBS)]
    first = client.research.list(limit=LIMIT)
    assert [len(page.data) for page in first.iter_pages()] == [10, 10, 5]
    listed = [job.id for job in client.research.list(limit=LIMIT)]
    assert listed == made[::-1]
    third = client.research.list(limit=LIMIT, page=3)
    assert [job.id for job in third.data] == made[4::-1]
    assert not third.has_next_page()
    assert client.research.list(limit=LIMIT, page=4).data == []


def test_the_content_of_a_result(client, finished) -> None:
    job = finished(query="research")
    news, unscored, _ = job.results
    contents = client.research.results
    assert contents.retrieve_content(news.id, id=job.id).content == "<h1>News</h1>"
    as_markdown = contents.retrieve_content(news.id, id=job.id, extra_query={"format": "markdown"})
    assert as_markdown.content == "# News"
    with pytest.raises(caesar.NotFoundError):
        contents.retrieve_content(unscored.id, id=job.id)


def test_raw_and_streamed_responses(client) -> None:
    raw = client.research.with_raw_response.create(query="capital?", compute_units=1)
    assert raw.headers["API-Version"] == "2025-08-08"
    assert raw.headers["x-ratelimit-remaining"].isdigit()
    assert raw.headers["x-request-id"]
    job_id = raw.parse().id
    with client.research.with_streaming_response.retrieve(job_id) as streamed:
        assert streamed.headers["API-Version"] == "2025-08-08"
        assert json.loads(streamed.read())["id"] == job_id
    newer = {"API-Version": "2025-11-27"}
    asked = client.research.with_raw_response.retrieve(job_id, extra_headers=newer)
    assert asked.headers["API-Version"] == "2025-11-27"


# Files


def test_files_by_content_by_name_and_in_a_job(client, finished, tmp_path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("Paris is a capital.")
    named = client.research.files.create(file=path)
    assert (named.file_name, named.content_type) == ("notes.txt", "text/plain")
    bare = client.research.files.create(file=b"%PDF-1.4\n%%EOF\n")
    assert (bare.file_name, bare.content_type) == ("upload", "application/pdf")
    typed = client.research.files.create(file=("table.csv", b"a,b\n1,2\n", "text/csv"))
    assert (typed.file_name, typed.content_type) == ("table.csv", "text/csv")
    job = finished(
        query="Read",
        files=[named.id, typed.id],
        extra_body={"model": "reading"},
    )
    assert job.content.splitlines() == [
        "notes.txt text/plain 'Paris is a capital.'",
        "table.csv text/csv 'a,b\\n1,2\\n'",
    ]


def test_every_file_is_on_one_of_three_pages(native, client_of) -> None:
    client = client_of(native.keys["lists"])
    made = [client.research.files.create(file=(f"{n}.txt", b"text")).id for n in range(JOBS)]
    first = client.research.files.list(limit=LIMIT)
    assert [len(page.data) for page in first.iter_pages()] == [10, 10, 5]
    assert [file.id for file in client.research.files.list(limit=LIMIT)] == made[::-1]


# Errors


def test_a_key_that_is_not_known(client_of) -> None:
    client = client_of("csk-nobody-has-this-key")
    with pytest.raises(caesar.AuthenticationError) as caught:
        client.research.list()
    assert caught.value.body == {"error": "Invalid API key"}
    with pytest.raises(caesar.AuthenticationError):
        client.research.create(query="capital?")
    with pytest.raises(caesar.AuthenticationError):
        client.research.files.create(file=b"x")


def test_what_is_not_there(client) -> None:
    for call in (
        lambda: client.research.retrieve("3b0c2b1e-0000-4000-8000-000000000000"),
        lambda: client.research.retrieve("no-id-at-all"),
        lambda: client.research.results.retrieve_content("none", id="none"),
    ):
        with pytest.raises(caesar.NotFoundError) as caught:
            call()
        assert caught.value.body == {"error": "Resource not found"}


def test_requests_that_make_no_sense(client) -> None:
    with pytest.raises(caesar.BadRequestError) as caught:
        client.research.create(query="capital?", compute_units="many")  # type: ignore[arg-type]
    told = 'Body contains incorrect JSON type for field "compute_units"'
    assert caught.value.body["error"].startswith(told)  # type: ignore[index]
    for fields, named in (
        ({"query": "  "}, "query"),
        ({"query": "capital?", "compute_units": 11}, "compute_units"),
        ({"query": "capital?", "files": ["3b0c2b1e-0000-4000-8000-000000000000"]}, "3b0c2b1e"),
    ):
        with pytest.raises(caesar.BadRequestError) as caught:
            client.research.create(**fields)
        assert named in caught.value.body["error"]  # type: ignore[index]
    with pytest.raises(caesar.BadRequestError) as caught:
        client.research.list(limit=201)
    assert "limit" in caught.value.body["error"]  # type: ignore[index]


def test_an_account_that_has_no_room_for_a_job(native, client_of, wait_until) -> None:
    client = client_of(native.keys["waits"])
    first = client.research.create(query="takes long")
    with pytest.raises(caesar.RateLimitError) as caught:
        client.research.create(query="capital?")
    assert caught.value.body == {"error": "Too many requests - rate limit exceeded."}
    assert int(caught.value.response.headers["Retry-After"]) > 0
    assert caught.value.response.headers["x-ratelimit-remaining"] == "0"
    client.post(f"/research/{first.id}/cancel", cast_to=object)
    wait_until(lambda: client.research.retrieve(first.id).status == "failed")
    second = client.research.create(query="capital?")
    wait_until(lambda: client.research.retrieve(second.id).status == "completed")


# The mock, as a test of a program that uses the SDK has it


def test_a_refusal_with_retry_after_0_is_tried_again_by_the_sdk(caesar_mock) -> None:
    caesar_mock.on(path="/research").fail_first(
        2, status=429, message="Too many requests - rate limit exceeded.", retry_after_s=0
    ).reply("At last.")
    with caesar.Caesar(base_url=caesar_mock.base_url, api_key="unused") as client:
        job = client.research.create(query="Why?")
    assert job.status == "queued"
    assert [entry.status for entry in caesar_mock.requests] == [429, 429, 200]


def test_a_refusal_that_lasts_is_raised_after_two_more_tries(caesar_mock) -> None:
    caesar_mock.on(path="/research").fail(
        429, message="Too many requests - rate limit exceeded.", retry_after_s=0
    )
    with (
        caesar.Caesar(base_url=caesar_mock.base_url, api_key="unused") as client,
        pytest.raises(caesar.RateLimitError) as caught,
    ):
        client.research.create(query="Why?")
    assert caught.value.body == {"error": "Too many requests - rate limit exceeded."}
    assert caught.value.response.headers["Retry-After"] == "0"
    assert len(caesar_mock.requests) == 3
