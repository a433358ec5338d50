"""What is recorded of an exchange."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from caesar_server.contract.frames import Recording, read_recordings
from caesar_server.testing import collect_events, make_context


def recordings(folder: Path) -> list[Recording]:
    (file,) = folder.glob("*.jsonl")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    return list(read_recordings(file.read_text().splitlines(keepends=True)))


def test_request_and_frames_are_recorded(raw, opened, wire, told, tmp_path) -> None:
    server = raw(wire.hello())
    folder = tmp_path / "new" / "folder"
    ask = opened(server, record_folder=str(folder), per_server={"api_key": "sk-not-recorded"})
    assert told(ask.complete("x")).text() == "Hello you"
    (recording,) = recordings(folder)
    assert (recording.path, recording.body) == ("completions", server.asked[0].body)
    assert (recording.server, recording.status, recording.end) == ("s1", 200, "complete")
    assert recording.headers == {"content-type": "text/event-stream"}
    assert len(recording.frames) == 4
    assert recording.frames[-1].data == "[DONE]"
    times = [frame.at_s for frame in recording.frames]
    assert times == sorted(times)
    assert recording.headers_at_s <= times[0] <= times[-1] <= recording.end_at_s
    assert "sk-not-recorded" not in next(folder.glob("*.jsonl")).read_text()


def test_each_attempt_of_a_run_is_in_its_file(raw, opened, wire, told, tmp_path) -> None:
    body = {"error": {"message": "no"}}
    server = raw(wire.json(body, status="503 No"), wire.hello())
    ask = opened(server, retries=1, record_folder=str(tmp_path))
    assert told(ask.complete("x")).text() == "Hello you"
    failed, good = recordings(tmp_path)
    assert (failed.status, failed.end) == (503, "failed")
    assert "no" in (failed.content or "")
    assert good.end == "complete"


@pytest.mark.parametrize("end", ["cut", "cancelled"])
def test_how_it_ended_is_recorded(raw, opened, wire, requests_of, tmp_path, end) -> None:
    def reply(peer) -> None:
        peer.send(wire.head(Content_Length="9999") + wire.frame(wire.text("hi")))
        if end == "cancelled":
            peer.hang()

    ask = opened(raw(reply), record_folder=str(tmp_path))
    context = make_context()
    events = ask.backend.run(requests_of.completion("x"), context)
    next(events)
    if end == "cancelled":
        events.close()
    else:
        with pytest.raises(Exception, match="cut its answer off"):
            list(events)
    (recording,) = recordings(tmp_path)
    assert recording.end == end


def test_what_cannot_be_recorded_is_answered_all_the_same(
    raw, opened, wire, told, tmp_path, caplog
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    ask = opened(raw(wire.hello()), record_folder=str(blocked / "folder"))
    assert told(collect_events(ask.backend, _request())).text() == "Hello you"
    assert "not recorded" in caplog.text


def _request():
    from caesar_server.contract import CompletionRequest

    return CompletionRequest(prompts=("x",), model="m")
