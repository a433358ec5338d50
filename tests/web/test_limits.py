"""Refusals at once, and places that are given back in every ending."""

from __future__ import annotations

import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from caesar_server.contract import (
    BackendUnavailableError,
    ChoiceFinished,
    Completed,
    ContentDelta,
    InvalidRequestError,
)
from caesar_server.errors import OverloadedError, TooManyRequestsError
from caesar_server.testing import Gate, LiveServer
from caesar_server.web.access.keys import KeyLimits
from caesar_server.web.limiting.places import Places, most_streams

TEXT = "Too many requests - rate limit exceeded."
RATE_HEADERS = (
    "x-ratelimit-limit-requests",
    "x-ratelimit-remaining-requests",
    "x-ratelimit-reset-requests",
)
SLOW = {"heartbeat_s": 0, "first_event_wait_s": 0}


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def check_429(response) -> None:
    """Check a refusal that is the key's own doing."""
    assert response.status_code == 429
    assert response.get_json() == {
        "error": {
            "message": TEXT,
            "type": "rate_limit_error",
            "param": None,
            "code": "rate_limit_exceeded",
        }
    }
    check_retry(response)


def check_503(response) -> None:
    """Check a refusal because the server is full."""
    assert response.status_code == 503
    assert response.get_json()["error"]["code"] == "overloaded"
    check_retry(response)


def check_retry(response) -> None:
    assert response.headers["x-should-retry"] == "true"
    seconds, milliseconds = (
        int(response.headers["Retry-After"]),
        int(response.headers["retry-after-ms"]),
    )
    assert 0 < milliseconds <= seconds * 1000 < milliseconds + 1000
    assert seconds <= 60


def slow_ones(request):
    """Answer the prompt ``slow`` with a first word and then nothing, all others at once."""
    if request.prompts[0] == "slow":
        return [ContentDelta("x"), Gate()]
    return is_well()


def slow_stream(served, key: str | None = None):
    """Open a stream that lasts until it is closed."""
    response = served.complete(key, prompt="slow", stream=True)
    assert response.status_code == 200
    return response


def wait_until(condition) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def places_of(served) -> Places:
    return served.app.extensions["caesar_server"].places


def test_places_count_requests_and_streams() -> None:
    places = Places(requests=2, streams=1)
    first, second = places.enter(), places.enter()
    with pytest.raises(OverloadedError, match="limit of 2 answers"):
        places.enter()
    first.open_stream("a", None)
    with pytest.raises(OverloadedError, match="limit of 1 streams"):
        second.open_stream("a", None)
    assert (places.requests, places.streams) == (2, 1)
    for place in (first, first, second, second):
        place.give_back()
    assert (places.requests, places.streams) == (0, 0)


def test_a_keys_own_streams_are_told_before_those_of_all() -> None:
    places = Places(requests=9, streams=1)
    places.enter().open_stream("a", 1)
    with pytest.raises(TooManyRequestsError):
        places.enter().open_stream("a", 1)
    with pytest.raises(OverloadedError):
        places.enter().open_stream("b", 1)


def test_requests_a_minute_of_a_key(serve_app, key_maker) -> None:
    key = key_maker.make(limits=KeyLimits(requests_per_minute=2))
    other = key_maker.make()
    served = serve_app()
    for remaining in ("1", "0"):
        good = served.complete(key)
        assert good.status_code == 200
        assert good.headers["x-ratelimit-limit-requests"] == "2"
        assert good.headers["x-ratelimit-remaining-requests"] == remaining
        assert good.headers["x-ratelimit-reset-requests"].endswith("s")
    refused = served.complete(key)
    check_429(refused)
    assert refused.headers["x-ratelimit-remaining-requests"] == "0"
    assert int(refused.headers["Retry-After"]) > 50
    assert served.backend.script.runs == 2
    # not another key's doing, and only what begins work counts
    assert not set(RATE_HEADERS) & {*served.complete(other).headers.keys()}
    assert served.client.get("/compat/models", headers=bearer(key)).status_code == 200


def test_every_alias_counts_and_so_do_streams_and_bad_requests(serve_app, key_maker) -> None:
    key = key_maker.make(limits=KeyLimits(requests_per_minute=4))
    served = serve_app()
    stream = served.complete(key, stream=True)
    assert stream.headers["x-ratelimit-remaining-requests"] == "3"
    stream.close()
    assert served.complete(key, path="/v1/completions").status_code == 200
    bad = served.complete(key, n="many")
    assert (bad.status_code, bad.headers["x-ratelimit-remaining-requests"]) == (400, "1")
    assert served.complete(key, path="/compat/nowhere").status_code == 404
    check_429(served.complete(key))
    check_429(served.complete(key, stream=True))


def test_native_paths_say_it_with_a_string(serve_app, key_maker) -> None:
    key = key_maker.make(limits=KeyLimits(requests_per_minute=1))
    served = serve_app()
    served.complete(key)
    response = served.client.post("/research", json={"query": "q"}, headers=bearer(key))
    assert response.status_code == 429
    assert response.get_json() == {"error": TEXT}
    check_retry(response)


def test_settings_limit_keys_without_limits_of_their_own(serve_app, key_maker) -> None:
    plain, own = key_maker.make(), key_maker.make(limits=KeyLimits(requests_per_minute=5))
    served = serve_app(key_requests_per_minute=1)
    assert served.complete(plain).headers["x-ratelimit-limit-requests"] == "1"
    check_429(served.complete(plain))
    assert served.complete(own).headers["x-ratelimit-limit-requests"] == "5"


def test_without_keys_nobody_is_limited(serve_app) -> None:
    served = serve_app(key_requests_per_minute=1, key_streams=1)
    for _ in range(3):
        response = served.complete()
        assert response.status_code == 200
        assert not set(RATE_HEADERS) & {*response.headers.keys()}


def test_50_requests_at_once_get_exactly_what_is_allowed(serve_app, key_maker) -> None:
    key = key_maker.make(limits=KeyLimits(requests_per_minute=20))
    # as many jobs at a time as there are: that is another limit
    served = serve_app(account_jobs_in_progress=0)
    with ThreadPoolExecutor(50) as pool:
        responses = list(
            pool.map(
                lambda _: served.app.test_client().post(
                    "/compat/completions",
                    json={"model": "m", "prompt": "p"},
                    headers=bearer(key),
                ),
                range(50),
            )
        )
    statuses = [response.status_code for response in responses]
    assert (statuses.count(200), statuses.count(429)) == (20, 30)
    good = [r.headers["x-ratelimit-remaining-requests"] for r in responses if r.status_code == 200]
    assert sorted(map(int, good)) == list(range(20))


def test_streams_of_a_key(serve_app, key_maker) -> None:
    key, other = key_maker.make(limits=KeyLimits(streams=1)), key_maker.make()
    served = serve_app(slow_ones)
    first = slow_stream(served, key)
    check_429(served.complete(key, stream=True))
    # answers that are no streams, and other keys, are free of it
    assert served.complete(key).status_code == 200
    slow_stream(served, other).close()
    first.close()
    slow_stream(served, key).close()


def test_streams_of_the_process(serve_app) -> None:
    served = serve_app(slow_ones, max_streams=1)
    first = slow_stream(served)
    check_503(served.complete(stream=True))
    assert served.complete().status_code == 200
    first.close()
    slow_stream(served).close()


@pytest.mark.parametrize("requests", [*range(2, 70), 4092])
def test_streams_leave_room_for_short_answers(requests) -> None:
    streams = most_streams(requests)
    assert 1 <= streams < requests
    assert streams >= requests * 7 // 8 - 1


def test_streams_alone_do_not_fill_a_server(serve_app) -> None:
    served = serve_app(slow_ones, threads=20)  # sixteen places
    streams = [slow_stream(served) for _ in range(14)]
    refused = served.complete(stream=True)
    check_503(refused)
    assert "limit of 14 streams at a time" in refused.get_json()["error"]["message"]
    # polls, creations and answers without a stream find a place
    assert served.client.get("/research").status_code == 200
    assert served.client.post("/research", json={"query": "q"}).status_code == 200
    assert served.complete().status_code == 200
    for stream in streams:
        stream.close()


def test_a_full_server_refuses_but_its_operator_is_answered(serve_app, key_maker) -> None:
    key = key_maker.make(limits=KeyLimits(requests_per_minute=100))
    served = serve_app(slow_ones, threads=8, max_streams=4)
    streams = [slow_stream(served, key) for _ in range(4)]
    refused = served.complete(key)
    check_503(refused)
    # a refusal for which the key can do nothing does not count
    assert refused.headers["x-ratelimit-remaining-requests"] == "96"
    check_503(served.client.get("/compat/models", headers=bearer(key)))
    for path in ("/healthz", "/health", "/readyz"):
        assert served.client.get(path).status_code == 200
    # without a key nobody learns that it is full
    assert served.complete().status_code == 401
    streams[0].close()
    # its run, which was cancelled, takes a moment to end
    wait_until(lambda: served.complete(key).status_code == 200)
    for stream in streams:
        stream.close()


def fails_at_once():
    return [InvalidRequestError("no", param="prompt")]


def fails_later():
    return [ContentDelta("x"), BackendUnavailableError("gone")]


def raises_later():
    return [ContentDelta("x"), ZeroDivisionError()]


def is_well():
    return [ContentDelta("x"), ChoiceFinished(), Completed()]


STATUS = {is_well: 200, fails_at_once: 400, fails_later: 503, raises_later: 500}


@pytest.mark.parametrize("script", STATUS)
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("read", [True, False], ids=["read", "never begun"])
def test_places_are_given_back_in_every_ending(serve_app, script, stream, read) -> None:
    served = serve_app(script(), threads=8)
    for _ in range(10):
        response = served.complete(stream=stream)
        assert response.status_code == STATUS[script] or stream
        if read:
            assert response.data
        response.close()
    assert (places_of(served).requests, places_of(served).streams) == (0, 0)


@pytest.mark.parametrize(
    "request_of",
    [
        {"path": "/compat/nowhere"},
        {"n": "many"},
        {"stream": True, "n": "many"},
        {"stream": True, "model": "broken"},
        {"stream": True, "prompt": []},
    ],
    ids=str,
)
def test_places_are_given_back_after_a_refusal(serve_app, request_of) -> None:
    served = serve_app(unknown_model="reject")
    assert served.complete(**{"model": "scripted", **request_of}).status_code in (400, 404)
    assert (places_of(served).requests, places_of(served).streams) == (0, 0)


def test_a_stream_that_the_runner_refuses_gives_its_place_back(serve_app) -> None:
    served = serve_app()
    served.app.extensions["caesar_server"].runner.close()
    response = served.complete(stream=True)
    assert response.get_json()["error"]["code"] == "shutting_down"
    assert (places_of(served).requests, places_of(served).streams) == (0, 0)


def test_a_stream_is_over_before_its_client_can_see_the_end(serve_app) -> None:
    served = serve_app()
    response = served.complete(stream=True)
    body = b""
    for chunk in response.response:
        body += chunk
        if body.endswith(b"data: [DONE]\n\n"):
            assert places_of(served).streams == 0
            break
    else:
        pytest.fail("no end")


def test_a_long_answer_keeps_its_place_until_it_is_written(serve_app) -> None:
    served = serve_app([ContentDelta("x" * 100_000), ChoiceFinished(), Completed()])
    response = served.complete()
    assert places_of(served).requests == 1
    assert len(response.data) > 100_000
    response.close()
    assert places_of(served).requests == 0


def test_a_client_that_leaves_gives_its_stream_back(serve_app, key_maker) -> None:
    key = key_maker.make(limits=KeyLimits(streams=1))
    gate = Gate()
    served = serve_app([gate, *is_well()], clock=None, **SLOW)
    body = {"model": "m", "prompt": "p", "stream": True}
    with LiveServer(served.app) as server:
        client = server.client(headers=bearer(key))
        with client.post("/compat/completions", body) as stream:
            gate.wait_until_reached()
            with client.post("/compat/completions", body) as second:
                assert second.status == 429
            stream.close()
        served.backend.script.wait_for(lambda script: script.ended == 1)
        gate.open()
        wait_until(lambda: places_of(served).streams == 0)
        with client.post("/compat/completions", body) as third:
            assert third.status == 200
            third.read()


def test_a_slow_body_takes_a_place_and_no_more(serve_app) -> None:
    served = serve_app(threads=8)
    head = (
        b"POST /compat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        b"Content-Type: application/json\r\nContent-Length: 32\r\n\r\n"
    )
    places = places_of(served)
    with LiveServer(served.app) as server:
        slow = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(4)]
        for client in slow:
            client.sendall(head)
        client = server.client()
        wait_until(lambda: places.requests == 4)
        with client.get("/compat/models") as refused:
            assert refused.status == 503
            assert json.loads(refused.read())["error"]["code"] == "overloaded"
        with client.get("/healthz") as health:
            assert health.status == 200
        for one in slow:
            one.close()
        wait_until(lambda: places.requests == 0)
        with client.get("/compat/models") as models:
            assert models.status == 200
