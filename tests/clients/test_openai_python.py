"""The official Python SDK against a real server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

MODEL = "caesar-research"


@pytest.fixture
def client(server: Any) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=server.base_url, api_key="test", max_retries=0) as client:
        yield client


def test_a_completion(client):
    completion = client.completions.create(model=MODEL, prompt="capital?")
    assert completion.object == "text_completion"
    assert completion.choices[0].text == "The capital is Paris."
    assert completion.choices[0].finish_reason == "stop"
    assert completion.usage.model_dump(exclude_none=True) == {
        "prompt_tokens": 1,
        "completion_tokens": 4,
        "total_tokens": 5,
    }
    assert completion._request_id


def test_a_streamed_completion_says_the_same(client):
    chunks = list(client.completions.create(model=MODEL, prompt="capital?", stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == "The capital is Paris."
    assert [chunk.choices[0].finish_reason for chunk in chunks][-2:] == [None, "stop"]
    assert len({(chunk.id, chunk.created) for chunk in chunks}) == 1


def test_usage_of_a_stream(client):
    chunks = list(
        client.completions.create(
            model=MODEL,
            prompt="capital?",
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    assert chunks[-1].choices == []
    assert chunks[-1].usage.total_tokens == 5
    assert all(chunk.usage is None for chunk in chunks[:-1])


def test_n_and_a_list_of_prompts(client):
    completion = client.completions.create(model=MODEL, prompt=["two", "capital?"], n=2)
    assert [(choice.index, choice.text) for choice in completion.choices] == [
        (0, "One answer."),
        (1, "Another."),
        (2, "The capital is Paris."),
        (3, "The capital is Paris."),
    ]


def test_stop_and_max_tokens(client):
    stopped = client.completions.create(model=MODEL, prompt="capital?", stop=[" is Par"])
    assert (stopped.choices[0].text, stopped.choices[0].finish_reason) == ("The capital", "stop")
    cut = client.completions.create(model=MODEL, prompt="capital?", max_tokens=2)
    assert (cut.choices[0].text, cut.choices[0].finish_reason) == ("The capital", "length")


def test_echo_and_seed(client):
    first = client.completions.create(model=MODEL, prompt="capital?", echo=True, seed=7)
    again = client.completions.create(model=MODEL, prompt="capital?", echo=True, seed=7)
    assert first.choices[0].text == "capital?The capital is Paris." == again.choices[0].text


def test_a_chat_plain_and_streamed(client):
    messages: Any = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "capital?"}]},
    ]
    reply = client.chat.completions.create(model=MODEL, messages=messages)
    assert reply.object == "chat.completion"
    assert reply.choices[0].message.role == "assistant"
    assert reply.choices[0].message.content == "The capital is Paris."
    chunks = list(client.chat.completions.create(model=MODEL, messages=messages, stream=True))
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == "The capital is Paris."


def test_the_sdks_own_stream_helper_for_chats(client):
    with client.chat.completions.stream(
        model=MODEL, messages=[{"role": "user", "content": "research"}]
    ) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    assert final.choices[0].message.content == (
        "Much is new [1].\n\n## References\n\n[1] [News](https://a.example/)"
    )


def test_research_metadata_progress_and_references(client):
    extra = {"metadata": {"reasoning_loops": "2", "exclude_social": True}}
    plain = client.completions.create(model=MODEL, prompt="research", extra_body=extra)
    assert "[1] [News](https://a.example/)" in plain.choices[0].text
    chunks = list(
        client.completions.create(model=MODEL, prompt="research", stream=True, extra_body=extra)
    )
    assert "".join(chunk.choices[0].text for chunk in chunks) == plain.choices[0].text
    progress = [chunk.model_extra["caesar"] for chunk in chunks if "caesar" in chunk.model_extra]
    assert [step["status"] for step in progress] == ["searching", "summarizing", "summarizing"]
    assert [step["message"] for step in progress][-1] == "Reading"


@pytest.mark.parametrize("value", [{"reasoning_loops": 4}, {"reasoning_loops": "4"}])
def test_metadata_arrives_at_the_backend(client, value):
    """The SDK has ``metadata`` for chats, of strings only by its types; completions need more."""
    text = client.completions.create(
        model="mirror", prompt="x", extra_body={"metadata": value, "team": "blue"}
    )
    asked = json.loads(text.choices[0].text)
    assert (asked["parameters"]["auto"], asked["parameters"]["reasoning_loops"]) == (False, 4)
    assert asked["extra"] == {"team": "blue"}
    chat = client.chat.completions.create(
        model="mirror", messages=[{"role": "user", "content": "x"}], metadata=value
    )
    asked = json.loads(chat.choices[0].message.content)
    assert (asked["parameters"]["auto"], asked["parameters"]["reasoning_loops"]) == (False, 4)


def test_models(client):
    assert "caesar-research" in [model.id for model in client.models.list()]
    assert client.models.retrieve("mock").owned_by == "caesar-server"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("nobody/knows")


@pytest.mark.parametrize("stream", [False, True])
def test_an_error_before_the_answer_is_raised_with_its_words(client, stream):
    with pytest.raises(openai.BadRequestError, match="Not that") as caught:
        client.completions.create(model=MODEL, prompt="refused", stream=stream)
    assert (caught.value.code, caught.value.type) == ("bad_idea", "invalid_request_error")
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model=MODEL, prompt="x", stream=stream, temperature=3)
    assert caught.value.param == "temperature"
    assert caught.value.request_id


def test_an_error_in_mid_stream_is_raised_after_the_text_so_far(client):
    texts = []
    with pytest.raises(openai.APIError, match="Gone") as caught:
        for chunk in client.completions.create(model=MODEL, prompt="breaks", stream=True):
            texts.append(chunk.choices[0].text)
    assert "".join(texts) == "Half an"
    assert caught.value.code == "lost"


def test_errors_of_a_chat_are_raised_alike(client):
    def ask(prompt: str) -> Any:
        messages: Any = [{"role": "user", "content": prompt}]
        return client.chat.completions.create(model=MODEL, messages=messages, stream=True)

    with pytest.raises(openai.BadRequestError, match="Not that"):
        ask("refused")
    texts = []
    with pytest.raises(openai.APIError, match="Gone") as caught:
        for chunk in ask("breaks"):
            texts.append(chunk.choices[0].delta.content)
    assert texts == ["Half", " an"]
    assert caught.value.code == "lost"


@pytest.mark.parametrize("stream", [False, True])
def test_a_limit_is_retried_after_the_delay_that_it_names(server, stream):
    prompt = f"openai-python limited {stream}"
    with openai.OpenAI(base_url=server.base_url, api_key="test") as client:
        answer = client.completions.create(model="limited", prompt=prompt, stream=stream)
        chunks = list(answer) if stream else [answer]
    assert "".join(chunk.choices[0].text for chunk in chunks) == "At last."
    first, second = server.attempts(prompt)
    assert second - first >= server.retry_after_s


def test_each_attempt_says_which_one_it_is(server):
    attempts: list[str | None] = []
    hooks = {"request": [lambda r: attempts.append(r.headers.get("x-stainless-retry-count"))]}
    with (
        openai.DefaultHttpxClient(event_hooks=hooks) as http,
        openai.OpenAI(
            base_url=server.base_url, api_key="test", max_retries=2, http_client=http
        ) as client,
        pytest.raises(openai.RateLimitError),
    ):
        client.completions.create(model=MODEL, prompt="slow down")
    assert attempts == ["0", "1", "2"]


def test_a_job_that_had_begun_is_not_tried_again(server):
    attempts = []
    with (
        openai.DefaultHttpxClient(event_hooks={"request": [attempts.append]}) as http,
        openai.OpenAI(
            base_url=server.base_url, api_key="test", max_retries=2, http_client=http
        ) as client,
        pytest.raises(openai.InternalServerError),
    ):
        client.completions.create(model=MODEL, prompt="breaks")
    assert len(attempts) == 1


def test_a_client_that_closes_early_ends_the_run(server, client):
    stream = client.completions.create(model="endless", prompt="openai-sync", stream=True)
    for _, chunk in zip(range(3), stream, strict=False):
        assert chunk.choices[0].text == "tick "
    stream.close()
    assert server.wait_for_end_of("openai-sync")


def test_a_plain_call_that_times_out_ends_the_run(server):
    with (
        openai.OpenAI(
            base_url=server.base_url, api_key="test", max_retries=0, timeout=0.5
        ) as client,
        pytest.raises(openai.APITimeoutError),
    ):
        client.completions.create(model="endless", prompt="openai-late")
    assert server.wait_for_end_of("openai-late")


def test_the_asynchronous_client_retries_too(server):
    async def talk() -> None:
        async with openai.AsyncOpenAI(base_url=server.base_url, api_key="test") as client:
            limited = await client.completions.create(
                model="limited", prompt="openai-async limited"
            )
            assert limited.choices[0].text == "At last."
            with pytest.raises(openai.InternalServerError):
                await client.completions.create(model="lost", prompt="openai-async lost")

    asyncio.run(talk())
    first, second = server.attempts("openai-async limited")
    assert second - first >= server.retry_after_s
    assert len(server.attempts("openai-async lost")) == 1


def test_the_asynchronous_client_reads_usage_and_sends_metadata(server):
    async def talk() -> None:
        async with openai.AsyncOpenAI(base_url=server.base_url, api_key="test") as client:
            stream = await client.completions.create(
                model="mirror",
                prompt="x",
                stream=True,
                stream_options={"include_usage": True},
                extra_body={"metadata": {"reasoning_loops": 4}},
            )
            *chunks, last = [chunk async for chunk in stream]
            assert last.usage.prompt_tokens == 1
            asked = json.loads("".join(chunk.choices[0].text for chunk in chunks))
            assert asked["parameters"]["reasoning_loops"] == 4

    asyncio.run(talk())


def test_the_asynchronous_client(server):
    async def talk() -> None:
        async with openai.AsyncOpenAI(
            base_url=server.base_url, api_key="test", max_retries=0
        ) as client:
            plain = await client.completions.create(model=MODEL, prompt="capital?")
            assert plain.choices[0].text == "The capital is Paris."
            stream = await client.completions.create(model=MODEL, prompt="capital?", stream=True)
            assert "".join([c.choices[0].text async for c in stream]) == plain.choices[0].text
            with pytest.raises(openai.BadRequestError):
                await client.completions.create(model=MODEL, prompt="refused", stream=True)
            with pytest.raises(openai.APIError, match="Gone"):
                broken = await client.completions.create(model=MODEL, prompt="breaks", stream=True)
                async for _ in broken:
                    pass
            endless = await client.completions.create(
                model="endless", prompt="openai-async", stream=True
            )
            await anext(aiter(endless))
            await endless.close()
            many = await asyncio.gather(
                *(client.completions.create(model=MODEL, prompt=f"p {i}") for i in range(40))
            )
            assert [c.choices[0].text for c in many] == [f"p {i}" for i in range(40)]

    asyncio.run(talk())
    assert server.wait_for_end_of("openai-async")


@pytest.mark.parametrize("alias", ["/v1", "/compat/v1"])
def test_the_aliases_are_base_urls_too(server, alias):
    with openai.OpenAI(base_url=server.url + alias, api_key="test", max_retries=0) as client:
        assert client.completions.create(model=MODEL, prompt="capital?").choices[0].text
        with pytest.raises(openai.BadRequestError):
            client.completions.create(model=MODEL, prompt="")
