"""The models that are listed, and the one that is asked where nobody names one."""

from __future__ import annotations

import threading
import time

import pytest

from caesar_backend_upstream import UpstreamBackend
from caesar_server.contract import Model
from caesar_server.contract.options import parse_options

LIST = {
    "object": "list",
    "data": [
        {"id": "llama-3", "created": 7, "owned_by": "meta"},
        {"id": "gpt-5", "created": "x", "owned_by": "\x00"},
        {"id": "llama-3"},
        {"id": 5},
        {"id": "half a \ud83d"},
        {"id": "two\nlines"},
        "odd",
    ],
}


def wait_for_models(ask, count: int) -> list[Model]:
    until = time.monotonic() + 60
    while len(models := ask.backend.models()) < count:
        assert time.monotonic() < until
    return list(models)


def test_before_it_is_open_the_options_tell() -> None:
    servers = {"one": {"url": "http://x", "models": ["llama-3", "gpt-*"]}}
    backend = UpstreamBackend(parse_options(UpstreamBackend.options_schema, {"servers": servers}))
    assert backend.models() == (Model("llama-3"),)


def test_the_servers_lists_are_fetched_and_kept(raw, opened, wire) -> None:
    server = raw(wire.json(LIST))
    ask = opened(server, models_ttl_s=60, per_server={"api_key": "sk-1"})
    models = wait_for_models(ask, 2)
    assert models == [Model("llama-3", 7, "meta"), Model("gpt-5", 0, "upstream")]
    assert ask.backend.models() == tuple(models)
    assert [(asked.method, asked.path) for asked in server.asked] == [("GET", "/v1/models")]
    assert server.asked[0].headers["authorization"] == "Bearer sk-1"


def test_a_list_may_have_no_object_around_it(raw, opened, wire) -> None:
    ask = opened(raw(wire.json(LIST["data"])), models_ttl_s=60)
    assert [model.id for model in wait_for_models(ask, 2)] == ["llama-3", "gpt-5"]


def test_models_that_a_server_is_not_asked_for_are_not_listed(raw, opened, wire) -> None:
    server = raw(wire.json(LIST))
    ask = opened(server, models_ttl_s=60, per_server={"models": ["gpt-*"]})
    assert [model.id for model in wait_for_models(ask, 1)] == ["gpt-5"]


def test_listing_does_not_wait(raw, opened) -> None:
    entered = threading.Event()

    def silent(peer) -> None:
        entered.set()
        peer.hang()

    server = raw(silent)
    ask = opened(server, models_ttl_s=60)
    assert entered.wait(60)
    # the server answers nothing as long as it is asked: to come back at all is not to wait
    assert ask.backend.models() == ()
    assert server.open == 1
    ask.backend.close()  # does not wait either
    server.wait_for(lambda server: server.open == 0)


@pytest.mark.parametrize("reply", ["html", "status", "shape"])
def test_a_list_that_is_none_is_no_list(raw, opened, wire, told, reply, caplog) -> None:
    replies = {
        "html": wire.head("text/html") + b"<html>",
        "status": wire.json(LIST, status="500 No"),
        "shape": wire.json({"models": []}),
    }
    ask = opened(raw(replies[reply], wire.hello()), models_ttl_s=60)
    until = time.monotonic() + 60
    while "no list of models" not in caplog.text:
        assert time.monotonic() < until
    assert ask.backend.models() == ()
    assert told(ask.complete()).text() == "Hello you"


def test_the_first_of_the_list_is_asked_where_none_is_named(raw, opened, wire, told) -> None:
    def reply(peer) -> None:
        peer.send(wire.json(LIST) if peer.asked.method == "GET" else wire.hello())

    server = raw(reply)
    ask = opened(server, models_ttl_s=60)
    assert told(ask.complete(model="")).text() == "Hello you"
    # the list may be asked for once more at any time
    (question,) = (one for one in server.asked if one.method == "POST")
    assert question.body["model"] == "llama-3"


def test_without_a_list_a_name_is_asked_for(raw, opened, wire, told) -> None:
    error = told(opened(raw(wire.hello())).complete(model="")).error
    assert (error.status, error.param) == (400, "model")
    assert "upstream/NAME" in error.message
