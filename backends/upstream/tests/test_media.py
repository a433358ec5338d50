"""Images and audio go upstream as they came, or nowhere."""

from __future__ import annotations

import base64

import pytest

from caesar_backend_upstream import UpstreamBackend
from caesar_backend_upstream.keys import Scrubber
from caesar_backend_upstream.wire.failures import said_by
from caesar_server.app import create_app
from caesar_server.registry import Registry
from caesar_server.settings import Settings

DATA = base64.b64encode(bytes(range(256)) * 8).decode()
IMAGE = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA}"}}
LINK = {"type": "image_url", "image_url": {"url": "https://a.example/\u00e4?b#c", "detail": "high"}}
AUDIO = {"type": "input_audio", "input_audio": {"data": DATA, "format": "mp3"}}
TEXT = {"type": "text", "text": "What is this?"}
MESSAGES = [
    {"role": "user", "content": [IMAGE]},
    {"role": "assistant", "content": "A cat."},
    {"role": "user", "content": [TEXT, LINK, AUDIO]},
]


@pytest.fixture
def post():
    """Send messages to a server whose backend has these upstream servers."""
    apps = []

    def post(*servers, messages=MESSAGES, per_server=({},)):
        tables = {
            f"s{number}": {"url": server.url, **options}
            for number, (server, options) in enumerate(zip(servers, per_server, strict=True))
        }
        options = {"servers": tables, "models_ttl_s": 0, "retries": 0}
        values = Settings(default_backend="upstream", backends={"upstream": options})
        apps.append(create_app(values, Registry.of({"upstream": UpstreamBackend}, values)))
        client = apps[-1].test_client()
        return client.post("/v1/chat/completions", json={"model": "m", "messages": messages})

    yield post
    for app in apps:
        app.extensions["caesar_server"].close()


@pytest.mark.parametrize("endpoint", ["same", "chat"])
def test_a_chat_goes_through_as_it_came(raw, wire, post, endpoint: str) -> None:
    chunk = {"choices": [wire.delta({"content": "Yes"}, reason="stop")]}
    server = raw(wire.head() + wire.frame(chunk) + wire.frame("[DONE]"))
    reply = post(server, per_server=[{"endpoint": endpoint}])
    assert reply.status_code == 200, reply.text
    (asked,) = server.asked
    assert asked.path == "/v1/chat/completions"
    assert asked.body["messages"] == MESSAGES


def test_a_server_that_has_completions_only_is_not_asked(raw, wire, post) -> None:
    server = raw(wire.hello())
    reply = post(server, per_server=[{"endpoint": "completions"}])
    assert (reply.status_code, reply.json["error"]["param"]) == (400, "messages[0].content[0]")
    assert reply.json["error"]["code"] == "unsupported_parameter"
    assert server.asked == []


def test_of_several_servers_those_with_chats_are_asked(raw, wire, post) -> None:
    completions, chats = raw(wire.hello()), raw(wire.hello())
    reply = post(completions, chats, per_server=[{"endpoint": "completions"}, {}])
    assert reply.status_code == 200, reply.text
    assert (len(completions.asked), len(chats.asked)) == (0, 1)


def test_a_model_of_a_server_without_chats_is_refused(raw, wire, post) -> None:
    completions, chats = raw(wire.hello()), raw(wire.hello())
    only = [{"endpoint": "completions"}, {"models": ["another"]}]
    reply = post(completions, chats, per_server=only, messages=MESSAGES[1:])
    error = reply.json["error"]
    assert (reply.status_code, error["param"]) == (400, "messages[1].content[1]")
    assert "leave this part out" in error["message"]
    assert completions.asked == chats.asked == []


def test_without_images_such_a_server_is_asked_as_before(raw, wire, post) -> None:
    server = raw(wire.hello())
    words = [{"role": "user", "content": [TEXT]}]
    assert post(server, per_server=[{"endpoint": "completions"}], messages=words).status_code == 200
    assert server.asked[0].body["prompt"] == "User: What is this?\n\nAssistant:"


def test_an_image_that_a_server_quotes_is_told_to_nobody() -> None:
    url = IMAGE["image_url"]["url"]
    said = said_by({"error": {"message": f"cannot read '{url}' (image 1)"}}, Scrubber(()))
    assert said.message == "cannot read 'data:...' (image 1)"
