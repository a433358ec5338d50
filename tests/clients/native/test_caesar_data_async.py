"""The official SDK's asynchronous client: the same surface."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import caesar
import pytest

JOBS, LIMIT = 25, 10
WITHIN_S = 60.0

Scenario = Callable[[caesar.AsyncCaesar], Coroutine[Any, Any, None]]


@pytest.fixture
def run(native: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Run a scenario with a client that is found by its environment variables alone."""

    def run(scenario: Scenario, account: str = "acme", key: str | None = None) -> None:
        monkeypatch.setenv("CAESAR_BASE_URL", native.url)
        monkeypatch.setenv("CAESAR_API_KEY", key or native.keys[account])

        async def with_client() -> None:
            async with caesar.AsyncCaesar(max_retries=0, timeout=WITHIN_S) as client:
                await asyncio.wait_for(scenario(client), WITHIN_S)

        asyncio.run(with_client())

    return run


async def finished(client: caesar.AsyncCaesar, **fields: Any) -> Any:
    """Begin a job and return it once it has ended."""
    job = await client.research.create(**fields)
    assert job.status == "queued"
    while (found := await client.research.retrieve(job.id)).status not in ("completed", "failed"):
        await asyncio.sleep(0.02)
    return found


async def raised(call: Awaitable[Any]) -> caesar.APIStatusError:
    with pytest.raises(caesar.APIStatusError) as caught:
        await call
    return caught.value


def test_jobs_at_once_from_their_creation_to_their_answers(run) -> None:
    async def scenario(client: caesar.AsyncCaesar) -> None:
        fields = {"query": "research", "compute_units": 3, "system_prompt": "As JSON"}
        for job in await asyncio.gather(*(finished(client, **fields) for _ in range(4))):
            assert (job.status, job.query) == ("completed", "research")
            assert job.content == "Much is new [1], and more [2]."
            assert json.loads(job.transformed_content)["confidence"] == 7
            assert [one.citation_index for one in job.results] == [1, 2, None]
            assert job.results[0].score == 0.75
        contents = client.research.results
        found = await contents.retrieve_content(job.results[0].id, id=job.id)
        assert found.content == "<h1>News</h1>"

    run(scenario)


def test_every_job_and_file_is_on_one_of_three_pages(run) -> None:
    async def scenario(client: caesar.AsyncCaesar) -> None:
        before = [job.id async for job in client.research.list(limit=200)]
        made = [(await client.research.create(query="capital?")).id for _ in range(JOBS)]
        listed = [job.id async for job in client.research.list(limit=LIMIT)]
        assert listed == made[::-1] + before
        page = await client.research.list(limit=LIMIT)
        second = await page.get_next_page()
        assert [job.id for job in second.data] == listed[10:20]
        uploads = [(f"{number}.txt", b"text") for number in range(JOBS)]
        files = [(await client.research.files.create(file=one)).id for one in uploads]
        found = [file.id async for file in client.research.files.list(limit=LIMIT)]
        assert found[:JOBS] == files[::-1]

    run(scenario, "lists-async")  # its jobs would be on the pages of another test


def test_files_in_a_job(run, tmp_path) -> None:
    async def scenario(client: caesar.AsyncCaesar) -> None:
        path = tmp_path / "notes.txt"
        path.write_text("Paris is a capital.")
        file = await client.research.files.create(file=path)
        assert (file.file_name, file.content_type) == ("notes.txt", "text/plain")
        job = await finished(client, query="Read", files=[file.id], extra_body={"model": "reading"})
        assert job.content == "notes.txt text/plain 'Paris is a capital.'\n"

    run(scenario)


def test_classes_of_errors(run) -> None:
    async def scenario(client: caesar.AsyncCaesar) -> None:
        unknown = await raised(client.research.retrieve("3b0c2b1e-0000-4000-8000-000000000000"))
        assert isinstance(unknown, caesar.NotFoundError)
        bad = await raised(client.research.create(query="capital?", compute_units=0))
        assert isinstance(bad, caesar.BadRequestError)
        assert "compute_units" in bad.body["error"]  # type: ignore[index]

    async def stranger(client: caesar.AsyncCaesar) -> None:
        error = await raised(client.research.create(query="capital?"))
        assert isinstance(error, caesar.AuthenticationError)
        assert error.body == {"error": "Invalid API key"}

    run(scenario)
    run(stranger, key="csk-nobody-has-this-key")


def test_an_account_that_has_no_room_for_a_job(run) -> None:
    async def scenario(client: caesar.AsyncCaesar) -> None:
        first = await client.research.create(query="takes long")
        refused = await raised(client.research.create(query="capital?"))
        assert isinstance(refused, caesar.RateLimitError)
        assert refused.body == {"error": "Too many requests - rate limit exceeded."}
        await client.post(f"/research/{first.id}/cancel", cast_to=object)
        while (await client.research.retrieve(first.id)).status != "failed":
            await asyncio.sleep(0.02)
        assert (await finished(client, query="capital?")).status == "completed"

    run(scenario, "waits")


def test_a_refusal_with_retry_after_0_is_tried_again_by_the_sdk(caesar_mock) -> None:
    caesar_mock.on(path="/research").fail_first(1, status=429, retry_after_s=0).reply("At last.")

    async def scenario() -> str:
        async with caesar.AsyncCaesar(base_url=caesar_mock.base_url, api_key="unused") as client:
            return (await client.research.create(query="Why?")).status

    assert asyncio.run(scenario()) == "queued"
    assert [entry.status for entry in caesar_mock.requests] == [429, 200]
