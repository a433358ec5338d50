"""An answer to a follow-up as a stream, over a real socket."""

from __future__ import annotations

import pytest

from caesar_server.contract import ChoiceFinished, Completed, ContentDelta, ResultFound
from caesar_server.contract.errors import BackendError
from caesar_server.testing import Gate

IONS = {"id": "ions", "title": "Ion traps", "url": "https://ions.example/a", "citation_index": 1}
OWN = ResultFound("own", "Own", "https://own.example", citation_index=4)
SAID = (
    OWN,
    ContentDelta("thinking", channel="reasoning"),
    ContentDelta("It is "),
    ContentDelta("slow [1]"),
    ContentDelta(""),
    ContentDelta(" [4]."),
    ChoiceFinished(),
    Completed(),
)


def stream_path(job_id, message):
    return f"/research/{job_id}/chat/{message['id']}/stream"


def texts(frames):
    return [frame["choices"][0]["delta"].get("content") for frame in frames]


def test_chunks_are_openais_and_the_last_has_the_results(serve):
    served = serve()
    served.stage.steps["follow_up"] = SAID
    job_id = served.research()
    message = served.ask(job_id)
    with served.live().get(stream_path(job_id, message)) as response:
        assert response.status == 200
        assert response.headers["Content-Type"].startswith("text/event-stream")
        frames = response.frames()
    assert texts(frames) == ["It is ", "slow [1]", " [4].", None]
    job = served.ended(message["id"])
    for frame in frames:
        assert (frame["id"], frame["object"]) == (message["id"], "chat.completion.chunk")
        assert frame["created"] == int(job.created_at)
        assert frame["model"] == job.model
        assert [choice["index"] for choice in frame["choices"]] == [0]
    assert [frame["choices"][0]["delta"].get("role") for frame in frames] == [
        "assistant",
        *(None for _ in frames[1:]),
    ]
    ends = [frame["choices"][0]["finish_reason"] for frame in frames]
    assert ends == [None, None, None, "stop"]
    assert ["results" in frame for frame in frames] == [False, False, False, True]
    own = {"id": "own", "title": "Own", "url": "https://own.example", "citation_index": 4}
    assert frames[-1]["results"] == [IONS, own]
    # the same as the poll, and the same again
    polled = served.client.get(f"/research/{job_id}/chat/{message['id']}").get_json()
    assert polled["results"] == frames[-1]["results"]
    assert polled["content"] == "".join(text or "" for text in texts(frames))
    assert served.live().get(stream_path(job_id, message)).frames() == frames


def test_a_character_in_two_halves_is_one_and_a_lone_half_a_mark(serve):
    served = serve()
    halves = ("a\ud83d", "\ude00b", "\ud83d", "c\ud83d")
    served.stage.steps["follow_up"] = (*map(ContentDelta, halves), ChoiceFinished(), Completed())
    job_id = served.research()
    message = served.ask(job_id)
    frames = served.live().get(stream_path(job_id, message)).frames()
    streamed = "".join(text or "" for text in texts(frames))
    polled = served.client.get(f"/research/{job_id}/chat/{message['id']}").get_json()
    assert streamed == polled["content"] == "a\N{GRINNING FACE}b\ufffdc\ufffd"


def test_it_is_live_with_heartbeats_while_nothing_comes(serve):
    served = serve(heartbeat_s=0.02)
    before, between = Gate(), Gate()
    served.stage.steps["follow_up"] = (before, ContentDelta("a"), between, *SAID)
    job_id = served.research()
    message = served.ask(job_id)
    with served.live().get(stream_path(job_id, message)) as response:
        chunks = response.chunks()
        while response.raw.count(b": keep-alive\n\n") < 2:
            next(chunks)
        assert b"data:" not in response.raw
        before.open()
        while b'"content":"a"' not in response.raw:
            next(chunks)
        assert b"[DONE]" not in response.raw
        between.open()
        assert texts(response.frames()) == ["a", "It is ", "slow [1]", " [4].", None]


def test_a_reader_that_leaves_does_not_end_the_answer(serve):
    served = serve(heartbeat_s=0.02)
    gate = Gate()
    served.stage.steps["follow_up"] = (ContentDelta("a"), gate, *SAID)
    job_id = served.research()
    message = served.ask(job_id)
    with served.live().get(stream_path(job_id, message)) as response:
        next(response.chunks())
    gate.open()
    assert served.ended(message["id"]).status == "completed"
    assert served.backend.script.cancels == 0


@pytest.mark.parametrize("before", [(), (ContentDelta("half"),)])
def test_a_failed_answer_ends_with_openais_error(serve, before):
    served = serve()
    served.stage.steps["follow_up"] = (*before, BackendError("No more tokens"))
    job_id = served.research()
    message = served.ask(job_id)
    for _ in ("live", "replayed"):
        with served.live().get(stream_path(job_id, message)) as response:
            assert response.status == 200
            *chunks, error = response.frames()
        assert texts(chunks) == [delta.text for delta in before]
        assert error["error"]["message"] == "No more tokens"
        assert set(error["error"]) == {"message", "type", "param", "code"}
        served.ended(message["id"])


def test_an_answer_without_text_still_has_a_last_chunk(serve):
    served = serve()
    served.stage.steps["follow_up"] = (ChoiceFinished(reason="length"), Completed())
    job_id = served.research()
    (frame,) = served.live().get(stream_path(job_id, served.ask(job_id))).frames()
    choice = frame["choices"][0]
    assert choice["delta"] == {"role": "assistant", "content": ""}
    assert choice["finish_reason"] == "length"
    assert "results" not in frame


def test_a_users_message_is_no_stream(serve):
    served = serve()
    served.stage.steps["follow_up"] = SAID
    job_id = served.research()
    served.asked(job_id)
    user = served.client.get(f"/research/{job_id}/chat").get_json()["data"][1]
    assert served.client.get(stream_path(job_id, user)).status_code == 404


def test_streams_are_counted(serve, make_key):
    key = make_key()
    served = serve(keys=True, key_streams=1)
    gate = Gate()
    served.stage.steps["follow_up"] = (gate, *SAID)
    job_id = served.research(headers=key)
    message = served.ask(job_id, headers=key)
    path = stream_path(job_id, message)
    client = served.live(headers=key)
    with client.get(path) as response:
        with client.get(path) as refused:
            assert refused.status == 429
        # a question whose stream has no room is not asked
        with client.post(f"/agents/research/{job_id}/chat?stream=1", {"content": "?"}) as refused:
            assert refused.status == 429
        assert len(served.store.jobs(parent_id=job_id)) == 1
        gate.open()
        assert response.frames()
    with client.get(path) as response:
        assert response.status == 200
        response.read()


def test_another_process_goes_on_with_an_answer(serve):
    durable = {"durable": True}
    first = serve(store="sqlite", capabilities=durable)
    gate = Gate()
    first.stage.steps["follow_up"] = (gate, *SAID)
    job_id = first.research()
    message = first.ask(job_id)
    gate.wait_until_reached()
    assert first.store.job(message["id"]).durable
    first.parts.close()
    second = serve(store="sqlite", capabilities=durable)
    second.stage.steps["follow_up"] = SAID
    frames = second.live().get(stream_path(job_id, message)).frames()
    assert texts(frames) == ["It is ", "slow [1]", " [4].", None]
    job = second.store.job(message["id"])
    assert job.attempt > 1
    # the first may have claimed it once more before it heard of its own end, and given it back
    assert job.attempt - job.released == 1
