"""Programs that ask a vision model, against the mock."""

from __future__ import annotations

import base64

import openai
import pytest

from caesar_server.testing import contains

PICTURE = f"data:image/png;base64,{base64.b64encode(bytes(range(256))).decode()}"
SOUND = base64.b64encode(b"RIFF" * 50).decode()
CONTENT = [
    {"type": "text", "text": "What is in"},
    {"type": "image_url", "image_url": {"url": PICTURE, "detail": "low"}},
    {"type": "input_audio", "input_audio": {"data": SOUND, "format": "wav"}},
    {"type": "text", "text": "this picture?"},
]


@pytest.mark.parametrize("path", ["/v1", "/compat"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_picture_and_a_sound_are_taken_and_kept(caesar_mock, path: str, stream: bool) -> None:
    caesar_mock.on(prompt="What is in\nthis picture?").reply("A cat.")
    messages = [{"role": "user", "content": CONTENT}]
    with openai.OpenAI(base_url=caesar_mock.base_url + path, api_key="k") as client:
        asked = {"model": "gpt-4o", "messages": messages}
        if stream:
            chunks = client.chat.completions.create(**asked, stream=True)
            told = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        else:
            told = client.chat.completions.create(**asked).choices[0].message.content
    assert told == "A cat."
    caesar_mock.assert_requested(times=1, prompt=contains("picture"))
    (entry,) = caesar_mock.requests
    assert entry.call.body["messages"] == messages


def test_a_picture_alone_has_no_text_to_repeat(caesar_mock) -> None:
    with openai.OpenAI(base_url=caesar_mock.base_url + "/v1", api_key="k") as client:
        messages = [{"role": "user", "content": [CONTENT[1]]}]
        completion = client.chat.completions.create(model="m", messages=messages)
    assert completion.choices[0].message.content == ""
    assert completion.usage.prompt_tokens == 0


def test_a_wrong_part_is_named_to_the_program(caesar_mock) -> None:
    messages = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": SOUND}}]}]
    with (
        openai.OpenAI(base_url=caesar_mock.base_url + "/v1", api_key="k") as client,
        pytest.raises(openai.BadRequestError) as caught,
    ):
        client.chat.completions.create(model="m", messages=messages)
    assert caught.value.param == "messages[0].content[0].image_url.url"
