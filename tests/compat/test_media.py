"""Images and audio in chats: read, given to those who take them, refused for others by name."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from caesar_backend_echo import EchoBackend
from caesar_server.contract import (
    Audio,
    ChoiceFinished,
    Completed,
    ContentDelta,
    Image,
    Part,
)
from caesar_server.mock.backend import MockBackend

CHAT = "/compat/chat/completions"
SECRET = base64.b64encode(b"the bytes of a picture" * 20).decode()
DATA_URL = f"data:image/png;base64,{SECRET}"
ANSWER = [ContentDelta("A cat."), ChoiceFinished(), Completed()]
TEXT = {"type": "text", "text": "What is this?"}
IMAGE = {"type": "image_url", "image_url": {"url": DATA_URL, "detail": "low"}}
AUDIO = {"type": "input_audio", "input_audio": {"data": SECRET, "format": "wav"}}


def ask(client: Any, *parts: Any, role: str = "user", **more: Any) -> Any:
    messages = [{"role": role, "content": list(parts)}, {"role": "user", "content": "Well?"}]
    return client.post(CHAT, json={"model": "m", "messages": messages, **more})


def image(url: Any, **more: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url, **more}}


def audio(data: Any, **more: Any) -> dict[str, Any]:
    return {"type": "input_audio", "input_audio": {"data": data, **more}}


def test_a_backend_gets_them_in_their_places(make_client):
    seen = []
    client = make_client(lambda request: (seen.append(request), *ANSWER)[1:])
    link = image("HTTPS://cats.example/cat.png", detail=None)
    assert ask(client, TEXT, IMAGE, AUDIO, link).status_code == 200
    (message, _) = seen[0].messages
    assert message.parts == (
        Part(text="What is this?"),
        Part(image=Image(url=DATA_URL, detail="low")),
        Part(audio=Audio(data=SECRET, format="wav")),
        Part(image=Image(url="HTTPS://cats.example/cat.png")),
    )
    assert message.text == "What is this?"
    assert [place for place, _ in seen[0].media] == [f"messages[0].content[{n}]" for n in (1, 2, 3)]


@pytest.mark.parametrize("unknown_fields", ["reject", "ignore"])
@pytest.mark.parametrize(
    ("part", "param"),
    [
        ({"type": "image_url"}, "image_url"),
        ({"type": "image_url", "image_url": DATA_URL}, "image_url"),
        ({"type": "image_url", "image_url": []}, "image_url"),
        ({"type": "image_url", "image_url": {}}, "image_url.url"),
        (image(None), "image_url.url"),
        (image(5), "image_url.url"),
        (image(""), "image_url.url"),
        (image(SECRET), "image_url.url"),
        (image("file:///etc/passwd"), "image_url.url"),
        (image(DATA_URL, detail="ultra"), "image_url.detail"),
        (image(DATA_URL, detail=["low"]), "image_url.detail"),
        ({"type": "input_audio"}, "input_audio"),
        ({"type": "input_audio", "input_audio": SECRET}, "input_audio"),
        (audio(None, format="wav"), "input_audio.data"),
        (audio("", format="wav"), "input_audio.data"),
        (audio("not base64", format="wav"), "input_audio.data"),
        (audio("\u00e4\u00e4\u00e4\u00e4", format="wav"), "input_audio.data"),
        (audio(f"data:audio/wav;base64,{SECRET}", format="wav"), "input_audio.data"),
        (audio(SECRET), "input_audio.format"),
        (audio(SECRET, format="ogg"), "input_audio.format"),
        (audio(SECRET, format={"wav": 1}), "input_audio.format"),
    ],
)
def test_what_is_wrong_is_named_and_not_repeated(make_client, unknown_fields, part, param):
    reply = ask(make_client(ANSWER, unknown_fields=unknown_fields), TEXT, part)
    error = reply.json["error"]
    assert (reply.status_code, error["param"]) == (400, f"messages[0].content[1].{param}")
    assert SECRET[:9] not in error["message"]
    assert len(error["message"]) < 200


@pytest.mark.parametrize("role", ["system", "developer", "assistant", "tool"])
@pytest.mark.parametrize("part", [IMAGE, AUDIO])
def test_only_the_user_has_them(make_client, role, part):
    error = ask(make_client(ANSWER), TEXT, part, role=role).json["error"]
    assert error["param"] == "messages[0].content[1].type"


@pytest.mark.parametrize("part", [IMAGE, AUDIO])
def test_members_that_the_api_does_not_define_are_refused_where_the_host_says_so(make_client, part):
    kind = part["type"]
    more = {"type": kind, kind: {**part[kind], "size": 5}}
    error = ask(make_client(ANSWER, unknown_fields="reject"), TEXT, more).json["error"]
    assert error["code"] == "unknown_parameter"
    assert error["param"] == f"messages[0].content[1].{kind}.size"
    assert ask(make_client(ANSWER), TEXT, more).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("part", "name"), [(IMAGE, "images"), (AUDIO, "audio")])
def test_a_backend_that_does_not_take_them_is_not_asked(make_client, caplog, part, name, stream):
    reply = ask(make_client(EchoBackend), part, stream=stream)
    assert reply.status_code == 400
    assert reply.json["error"] == {
        "message": f"messages[0].content[0]: the backend 'scripted' does not take {name}; leave "
        f"this part out, or name a model of a backend that takes {name}",
        "type": "invalid_request_error",
        "param": "messages[0].content[0]",
        "code": "unsupported_parameter",
    }
    assert SECRET[:9] not in caplog.text


def test_a_body_with_them_may_be_as_large_as_any_other(make_client):
    client = make_client(ANSWER, max_body_bytes=4096)
    assert ask(client, TEXT, IMAGE).status_code == 200
    assert ask(client, TEXT, image(DATA_URL + "A" * 4096)).status_code == 413


leaves = st.sampled_from(
    [None, True, 5, 1.5, "", "x", DATA_URL, SECRET, "https://a.example/b", "low", "wav", "\ud800"]
)
values = leaves | st.lists(leaves, max_size=2)
members = st.sampled_from(["url", "detail", "data", "format", "zzz"])
insides = values | st.dictionaries(members, values, max_size=4)
kinds = st.sampled_from(["image_url", "input_audio", "text", "file", "zzz"]) | leaves
malformed = st.builds(
    lambda kind, more: {"type": kind, **more},
    kinds,
    st.dictionaries(st.sampled_from(["image_url", "input_audio", "text"]), insides, max_size=3),
)


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(parts=st.lists(malformed, min_size=1, max_size=3), role=st.sampled_from(["user", "system"]))
def test_malformed_parts_are_answered_or_refused_by_name(client_of_mock, parts, role):
    messages = [{"role": role, "content": parts}, {"role": "user", "content": "q"}]
    body = json.dumps({"model": "m", "messages": messages})
    reply = client_of_mock.post(CHAT, data=body, content_type="application/json")
    assert reply.status_code in (200, 400), reply.data
    if reply.status_code == 400:
        error = reply.json["error"]
        assert error["param"].startswith("messages[0].content[")
        assert len(error["message"]) < 1200


@pytest.fixture
def client_of_mock(make_client):
    return make_client(MockBackend)
