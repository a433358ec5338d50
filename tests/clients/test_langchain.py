"""langchain-openai against a real server: its text completions class and its chat class."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import openai
import pytest
from langchain_core.exceptions import ModelInvalidRequestError
from langchain_openai import ChatOpenAI, OpenAI

Make = Callable[..., Any]
kinds = pytest.mark.parametrize("make", ["completions", "chat"], indirect=True)
CITED = "Much is new [1].\n\n## References\n\n[1] [News](https://a.example/)"


@pytest.fixture
def settings(server) -> Iterator[dict[str, Any]]:
    """What both classes are given; the class's own HTTP clients are never closed, ours are."""
    with openai.DefaultHttpxClient() as http:
        yield {
            "base_url": server.base_url,
            "api_key": "unused",
            "model": "caesar-research",
            "max_retries": 0,
            "http_client": http,
        }


@pytest.fixture
def make(request, settings) -> Make:
    kind = {"completions": OpenAI, "chat": ChatOpenAI}[request.param]
    return lambda **more: kind(**{**settings, **more})


def text_of(answer: Any) -> str:
    return answer if isinstance(answer, str) else answer.content


@kinds
def test_a_plain_answer(make):
    assert text_of(make().invoke("capital?")) == "The capital is Paris."


@kinds
def test_a_stream(make):
    pieces = [text_of(piece) for piece in make().stream("capital?")]
    assert pieces[:4] == ["The", " capital", " is", " Paris."]
    assert "".join(pieces) == "The capital is Paris."


@kinds
def test_references(make):
    assert text_of(make().invoke("research")) == CITED
    assert "".join(map(text_of, make().stream("research"))) == CITED


def test_progress_is_nowhere_in_a_chat(settings):
    chunks = list(ChatOpenAI(**settings).stream("research"))
    assert "Reading" not in "".join(chunk.model_dump_json() for chunk in chunks)


def test_many_prompts_are_one_completions_request(settings):
    sent = []
    with openai.DefaultHttpxClient(event_hooks={"request": [sent.append]}) as http:
        model = OpenAI(**{**settings, "http_client": http})
        result = model.generate(["capital?", "two"])
        assert len(sent) == 1
        assert model.batch(["capital?", "two"]) == ["The capital is Paris.", "One answer."]
        assert len(sent) == 2
    assert [choices[0].text for choices in result.generations] == [
        "The capital is Paris.",
        "One answer.",
    ]
    assert result.llm_output["token_usage"]["total_tokens"] == 8


def test_usage_of_a_chat(settings):
    chat = ChatOpenAI(**settings)
    usage = {"input_tokens": 1, "output_tokens": 4, "total_tokens": 5}
    assert usage.items() <= chat.invoke("capital?").usage_metadata.items()
    assert [chunk.usage_metadata for chunk in chat.stream("capital?") if chunk.usage_metadata] == []
    (counted,) = (
        chunk.usage_metadata
        for chunk in chat.stream("capital?", stream_usage=True)
        if chunk.usage_metadata
    )
    assert usage.items() <= counted.items()


def test_a_completions_stream_takes_the_usage_chunk_but_does_not_show_it(settings):
    pieces = list(OpenAI(**settings).stream("capital?", stream_options={"include_usage": True}))
    assert "".join(pieces) == "The capital is Paris."
    assert all(type(piece) is str for piece in pieces)


@kinds
def test_an_error_before_the_answer_is_raised_with_its_words(make):
    with pytest.raises(openai.BadRequestError, match="Not that") as caught:
        make().invoke("refused")
    assert caught.value.code == "bad_idea"
    with pytest.raises(openai.BadRequestError, match="Not that"):
        next(make().stream("refused"))


def test_an_error_of_a_chat_is_one_of_langchain_too(settings):
    with pytest.raises(ModelInvalidRequestError):
        ChatOpenAI(**settings).invoke("refused")


@kinds
def test_an_error_in_mid_stream_is_raised_after_the_text_so_far(make):
    pieces = []
    with pytest.raises(openai.APIError, match="Gone") as caught:
        for piece in make().stream("breaks"):
            pieces.append(text_of(piece))
    assert "".join(pieces) == "Half an"
    assert caught.value.code == "lost"


@kinds
def test_a_limit_is_retried_after_the_delay_that_it_names(make, server, request):
    prompt = f"langchain limited {request.node.callspec.id}"
    assert text_of(make(model="limited", max_retries=2).invoke(prompt)) == "At last."
    first, second = server.attempts(prompt)
    assert second - first >= server.retry_after_s


@kinds
def test_a_job_that_had_begun_is_not_tried_again(make, server, request):
    prompt = f"langchain lost {request.node.callspec.id}"
    with pytest.raises(openai.InternalServerError, match="Gone"):
        make(model="lost", max_retries=2).invoke(prompt)
    assert len(server.attempts(prompt)) == 1


@kinds
def test_metadata_goes_into_extra_body(make):
    extra = {"metadata": {"reasoning_loops": 4, "exclude_social": True}}
    parameters = json.loads(text_of(make(model="mirror", extra_body=extra).invoke("x")))[
        "parameters"
    ]
    assert parameters["auto"] is False
    assert parameters["reasoning_loops"] == 4
    assert parameters["exclude_social"] is True


@kinds
def test_the_class_s_own_metadata_is_not_sent(make):
    own = make(model="mirror", metadata={"reasoning_loops": 4}).invoke("x")
    assert json.loads(text_of(own))["parameters"]["auto"] is True


def test_the_completions_class_sends_a_limit_and_a_temperature_of_its_own(settings):
    make_mirror = partial(OpenAI, **{**settings, "model": "mirror"})
    sampling = json.loads(make_mirror().invoke("x"))["sampling"]
    assert (sampling["max_tokens"], sampling["temperature"]) == (256, 0.7)
    assert json.loads(make_mirror(max_tokens=9).invoke("x"))["sampling"]["max_tokens"] == 9


@kinds
def test_a_client_that_closes_early_ends_the_run(make, server, request):
    prompt = f"langchain left {request.node.callspec.id}"
    stream = make(model="endless").stream(prompt)
    assert text_of(next(stream)) == "tick "
    stream.close()
    # The completions class leaves the SDK's stream behind, in a cycle that only this finds.
    gc.collect()
    assert server.wait_for_end_of(prompt)


@kinds
def test_the_asynchronous_side(make, server, request):
    prompt = f"langchain left async {request.node.callspec.id}"

    async def talk() -> None:
        async with openai.DefaultAsyncHttpxClient() as http:
            model = make(http_async_client=http)
            assert text_of(await model.ainvoke("capital?")) == "The capital is Paris."
            pieces = [text_of(piece) async for piece in model.astream("capital?")]
            assert "".join(pieces) == "The capital is Paris."
            with pytest.raises(openai.APIError, match="Gone"):
                async for _ in model.astream("breaks"):
                    pass
            endless = make(model="endless", http_async_client=http).astream(prompt)
            await anext(endless)
            await endless.aclose()

    asyncio.run(talk())
    assert server.wait_for_end_of(prompt)
