"""Caesar's own Python client against the mock."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import caesar
import httpx
import pytest

from caesar_server.testing import CaesarMock, mock_server

RESULTS = [
    {"title": "A", "url": "https://a.example/", "citation_index": 1, "raw": "<p>", "score": 0.5},
    {"title": "B", "url": "https://b.example/"},
]
POLL = {"path": "/research/{id}", "method": "GET"}


@pytest.fixture
def client(caesar_mock: CaesarMock) -> Iterator[caesar.Caesar]:
    with caesar.Caesar(base_url=caesar_mock.base_url, api_key="test") as client:
        yield client


def wait(client: caesar.Caesar, job_id: str) -> tuple[list[str], Any]:
    """Poll as programs do; return the statuses that were seen, and the job."""
    seen: list[str] = []
    while True:
        job = client.research.retrieve(job_id)
        seen.append(job.status)
        if job.status in ("completed", "failed"):
            return seen, job


def test_create_poll_and_read_a_source(caesar_mock: CaesarMock, client: caesar.Caesar) -> None:
    caesar_mock.on(query="What is new?", metadata={"reasoning_loops": 2}).reply(
        "Much [1].",
        results=RESULTS,
        loops=2,
        queued_polls=2,
        statuses=["searching"],
        polls_per_status=1,
    )
    job_id = client.research.create(query="What is new?", compute_units=2).id
    seen, job = wait(client, job_id)
    # who sends compute_units reads the form of 2025-08-08, which has no other running status
    assert seen == ["queued", "queued", "researching", "completed"]
    assert job.content == "Much [1]."
    assert [(one.title, one.citation_index) for one in job.results] == [("A", 1), ("B", None)]
    assert job.results[0].score == 0.5
    content = client.research.results.retrieve_content(job.results[0].id, id=job_id)
    assert content.content == "<p>"
    caesar_mock.assert_requested(times=4, **POLL)


def test_a_failure(caesar_mock: CaesarMock, client: caesar.Caesar) -> None:
    caesar_mock.on().reply(error={"message": "Out of luck"})
    _, job = wait(client, client.research.create(query="Why?").id)
    assert (job.status, job.error) == ("failed", "Out of luck")


def test_three_pages(client: caesar.Caesar) -> None:
    ids = [client.research.create(query=f"{number}?").id for number in range(7)]
    assert [job.id for job in client.research.list(limit=3)] == ids[::-1]


def test_429_is_tried_again_and_is_one_call(caesar_mock: CaesarMock, client: caesar.Caesar) -> None:
    caesar_mock.on(path="/research").fail_first(1, status=429, retry_after_s=0)
    caesar_mock.on(**POLL).fail_first(2, status=503, retry_after_s=0.001)
    job_id = client.research.create(query="Why?").id
    assert wait(client, job_id)[0] == ["completed"]
    assert [[entry.status for entry in group] for group in caesar_mock.journal.attempts()] == [
        [429, 200],
        [503, 503, 200],
    ]
    refused = caesar_mock.requests[0]
    assert refused.headers["retry-after"] == "0"


ERRORS = {
    400: caesar.BadRequestError,
    401: caesar.AuthenticationError,
    402: caesar.APIStatusError,
    404: caesar.NotFoundError,
    429: caesar.RateLimitError,
    500: caesar.InternalServerError,
}


@pytest.mark.parametrize("status", ERRORS)
def test_error_classes(caesar_mock: CaesarMock, client: caesar.Caesar, status: int) -> None:
    caesar_mock.on(path="/research").fail(status, message="No.")
    with pytest.raises(ERRORS[status]) as caught:
        client.with_options(max_retries=0).research.create(query="Why?")
    assert caught.value.body == {"error": "No."}


def test_what_the_server_itself_refuses(client: caesar.Caesar) -> None:
    with pytest.raises(caesar.BadRequestError):
        client.research.create(query=" ")
    with pytest.raises(caesar.NotFoundError):
        client.research.retrieve("unknown")


@pytest.mark.parametrize("kind", ["reset", "half_headers"])
def test_a_connection_that_breaks_is_tried_again(
    caesar_mock: CaesarMock, client: caesar.Caesar, kind: str
) -> None:
    job_id = client.research.create(query="Why?").id
    caesar_mock.on(**POLL).fault(kind).times(1)
    assert client.research.retrieve(job_id).status == "completed"
    _, *polls = caesar_mock.wait_for(3, finished=True)
    assert [entry.ended for entry in polls] == [f"fault:{kind}", "completed"]


def test_a_poll_that_hangs_times_out(caesar_mock: CaesarMock, client: caesar.Caesar) -> None:
    job_id = client.research.create(query="Why?").id
    caesar_mock.on(**POLL).fault("hang")
    with pytest.raises(caesar.APITimeoutError):
        client.with_options(max_retries=0).research.retrieve(job_id, timeout=0.2)


def test_a_body_that_is_cut_off(caesar_mock: CaesarMock, client: caesar.Caesar) -> None:
    job_id = client.research.create(query="Why?").id
    caesar_mock.on(**POLL).fault("connection_reset", after_chunks=20)
    with pytest.raises(caesar.APIConnectionError):
        client.with_options(max_retries=0).research.retrieve(job_id)


def test_strict(caesar_mock: CaesarMock, client: caesar.Caesar) -> None:
    caesar_mock.strict = True
    with pytest.raises(caesar.NotFoundError, match="No rule of the scope"):
        client.research.create(query="Why?")
    assert list(client.research.list()) == []


def test_a_stream_of_events_can_stall(caesar_mock: CaesarMock, client: caesar.Caesar) -> None:
    caesar_mock.on().reply("So.", progress=["one", "two"])
    caesar_mock.on(path="/research/{id}/events", stream=True).fault("stall", after_chunks=2)
    job_id = client.research.create(query="Why?").id
    url = f"{caesar_mock.base_url}/research/{job_id}/events"
    got = b""
    with (
        pytest.raises(httpx.ReadTimeout),
        httpx.stream(
            "GET", url, headers={"Accept": "text/event-stream"}, timeout=2.0, trust_env=False
        ) as response,
    ):
        for part in response.iter_raw():
            got += part
    assert (b'"one"' in got, b'"two"' in got) == (True, False)


def test_an_asynchronous_client_in_many_scopes_at_once() -> None:
    async def use(mock: CaesarMock) -> list[str]:
        async with caesar.AsyncCaesar(base_url=mock.base_url, api_key="test") as client:
            ids = [(await client.research.create(query=mock.name)).id for _ in range(3)]
            listed = [job async for job in client.research.list(limit=2)]
            assert [job.id for job in listed] == ids[::-1]
            return [str(job.content) for job in listed]

    async def use_all() -> None:
        async with mock_server() as mock:
            scopes = [mock.scope(f"s{number}") for number in range(10)]
            found = await asyncio.gather(*map(use, scopes))
            assert found == [[scope.name] * 3 for scope in scopes]

    asyncio.run(use_all())


def test_by_environment(caesar_mock: CaesarMock, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in caesar_mock.env.items():
        monkeypatch.setenv(name, value)
    with caesar.Caesar() as client:
        assert client.research.create(query="Why?").status == "queued"
