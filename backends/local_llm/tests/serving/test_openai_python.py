"""The official Python SDK, two workers, and what users of other servers complain about."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest

SCRIPT = (
    " a time there lived one small server who answered every request with gentle stories about "
    "rivers , lamps and quiet gardens until morning came ."
)
HELLO: Any = [{"role": "user", "content": "hello"}]


@pytest.fixture
def client(server: Any):
    with openai.OpenAI(base_url=server.base_url, api_key="none", max_retries=0) as client:
        yield client


def test_a_completion(client) -> None:
    completion = client.completions.create(model="local_llm/script", prompt="Once upon")
    (choice,) = completion.choices
    assert (choice.text, choice.finish_reason) == (SCRIPT, "stop")
    usage = completion.usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (3, 25, 28)


def test_a_stream_with_usage(client) -> None:
    chunks = list(
        client.completions.create(
            model="local_llm/script",
            prompt="Once upon",
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    assert chunks[-1].usage.completion_tokens == 25
    texts = [chunk.choices[0].text for chunk in chunks[:-1]]
    assert "".join(texts) == SCRIPT
    assert len([text for text in texts if text]) > 1
    assert [c.choices[0].finish_reason for c in chunks[:-1]][-1] == "stop"


def test_chats(client) -> None:
    asked = {"model": "local_llm/script", "messages": HELLO, "max_tokens": 3}
    whole = client.chat.completions.create(**asked)
    assert whole.choices[0].message.content == " Once upon a"
    assert whole.choices[0].finish_reason == "length"
    chunks = list(client.chat.completions.create(**asked, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == " Once upon a"


@pytest.mark.parametrize("stream", [False, True])
def test_every_knob_at_once(client, stream: bool) -> None:
    asked: dict[str, Any] = {
        "model": "local_llm/noise",
        "prompt": [[5, 6, 7], [40, 41]],
        "n": 2,
        "echo": True,
        "logprobs": 2,
        "seed": 3,
        "stop": ["zz"],
        "max_tokens": 9,
    }
    whole = client.completions.create(**asked)
    assert [choice.index for choice in whole.choices] == [0, 1, 2, 3]
    if not stream:
        assert client.completions.create(**asked).choices == whole.choices  # in any worker
        return
    found: dict[int, list[Any]] = {}
    for chunk in client.completions.create(**asked, stream=True):
        for choice in chunk.choices:
            found.setdefault(choice.index, []).append(choice)
    for choice in whole.choices:
        parts = found[choice.index]
        assert "".join(part.text for part in parts) == choice.text
        described = [part.logprobs for part in parts if part.logprobs]
        for name in ("tokens", "token_logprobs", "text_offset"):
            joined = [value for part in described for value in getattr(part, name)]
            assert joined == getattr(choice.logprobs, name)


def test_likelihoods_as_evaluations_ask_for_them(client) -> None:
    """Ids of context and continuation, echoed, and one token more: an entry for each id."""
    context, continuation = [260, 40, 41], [42, 43]
    completion = client.completions.create(
        model="local_llm/noise",
        prompt=[context + continuation],
        echo=True,
        logprobs=1,
        max_tokens=1,
        temperature=0,
        seed=1234,
    )
    found = completion.choices[0].logprobs
    assert len(found.token_logprobs) == 5 + 1
    assert found.token_logprobs[0] is None
    assert all(type(value) is float for value in found.token_logprobs[len(context) : -1])
    assert all(found.top_logprobs[position] for position in range(1, 6))
    assert completion.usage.prompt_tokens == 5


def test_the_text_offsets_lead_to_the_continuation(client) -> None:
    prompt = "Once upon a time"
    completion = client.completions.create(
        model="local_llm/script", prompt=prompt, echo=True, logprobs=1, max_tokens=1
    )
    found = completion.choices[0].logprobs
    for offset, token in zip(found.text_offset, found.tokens, strict=True):
        assert completion.choices[0].text[offset:].startswith(token)
    assert found.text_offset[-1] == len(prompt)


def test_a_prompt_beyond_the_context_is_refused_and_not_cut(client) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="local_llm/script", prompt="Once upon " * 2000)
    assert caught.value.code == "context_length_exceeded"
    assert "4002 tokens leave no room" in str(caught.value)
    assert "2048 tokens" in str(caught.value)


def test_a_schema(client) -> None:
    schema = {"type": "object", "properties": {"pet": {"enum": ["cat", "dog"]}}}
    form: Any = {
        "type": "json_schema",
        "json_schema": {
            "name": "pet",
            "strict": True,
            "schema": {**schema, "required": ["pet"], "additionalProperties": False},
        },
    }
    completion = client.chat.completions.create(
        model="local_llm/noise", messages=HELLO, response_format=form, seed=5
    )
    found = json.loads(completion.choices[0].message.content)
    assert found in ({"pet": "cat"}, {"pet": "dog"})
    assert completion.choices[0].finish_reason == "stop"


def test_eight_at_once_are_as_one_by_one(client) -> None:
    def answer(number: int) -> Any:
        completion = client.completions.create(
            model="local_llm/noise",
            prompt=f"Once upon {'a time ' * number}",
            seed=number,
            max_tokens=60,
            logprobs=1,
        )
        return completion.choices, completion.usage

    alone = [answer(number) for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(2):
            assert list(pool.map(answer, range(8))) == alone
