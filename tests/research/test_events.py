"""The progress of a job, as a list and as a stream."""

from __future__ import annotations

import json

import pytest

from caesar_server.contract import ChoiceFinished, Completed, ErrorInfo, Failed, ProgressNoted
from caesar_server.testing import Gate, LiveServer
from caesar_server.web.services import services_of

STREAM = {"Accept": "text/event-stream"}
MESSAGES = [
    "The job is waiting to be started",
    "Looking around",
    "Two sources",
    "Reading the sources",
    "Writing the answer",
]


def frames_of(text: str) -> list[tuple[int | None, str]]:
    """Return id and data of each frame."""
    found = []
    for frame in text.split("\n\n"):
        if not frame or frame.startswith(":"):
            continue
        lines = dict(line.split(": ", 1) for line in frame.split("\n"))
        found.append((int(lines["id"]) if "id" in lines else None, lines["data"]))
    return found


def test_each_status_and_note_is_one_item(serve) -> None:
    served = serve()
    job_id = served.create()
    served.ended(job_id)
    items = served.get(f"/research/{job_id}/events")
    assert [item["message"] for item in items] == MESSAGES
    assert all(set(item) == {"message", "created_at"} for item in items)


def test_the_stream_has_the_same_items_then_the_end(serve) -> None:
    served = serve()
    job_id = served.create()
    response = served.client.get(f"/research/{job_id}/events", headers=STREAM)
    assert response.mimetype == "text/event-stream"
    assert "Accept" in response.headers["Vary"]
    frames = frames_of(response.text)
    items = served.get(f"/research/{job_id}/events")
    assert [json.loads(data) for _, data in frames[:-2]] == items
    assert json.loads(frames[-2][1]) == {"status": "completed", "id": job_id}
    assert frames[-1] == (None, "[DONE]")
    numbers = [number for number, _ in frames[:-1]]
    assert numbers == sorted(set(numbers))


def test_the_end_has_a_number_of_its_own(serve) -> None:
    served = serve([Failed(ErrorInfo("no", code="x", type="server_error", status=503))])
    job_id = served.create()
    served.ended(job_id)
    path = f"/research/{job_id}/events"
    frames = frames_of(served.client.get(path, headers=STREAM).text)
    first, end = frames[0], frames[-2]
    assert json.loads(end[1])["status"] == "failed"
    assert None not in (first[0], end[0])
    assert first[0] < end[0]
    # whoever comes back hears of it again
    for after in (first[0], end[0], end[0] + 5):
        text = served.client.get(path, headers={**STREAM, "Last-Event-ID": str(after)}).text
        assert frames_of(text) == [end, (None, "[DONE]")]


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("*/*", "application/json"),
        ("application/json", "application/json"),
        ("", "application/json"),
        ("text/html", "application/json"),
        ("text/event-stream;q=0.5, application/json", "application/json"),
        ("text/event-stream, */*;q=0.1", "text/event-stream"),
        ("Text/Event-Stream; charset=utf-8", "text/event-stream"),
    ],
)
def test_json_unless_a_stream_is_preferred(serve, accept, kind) -> None:
    served = serve()
    job_id = served.create()
    served.ended(job_id)
    response = served.client.get(f"/research/{job_id}/events", headers={"Accept": accept})
    assert response.mimetype == kind
    assert "Accept" in response.headers["Vary"]


def test_a_job_that_waits_says_so_and_the_same_once_it_runs(serve) -> None:
    gate = Gate()
    served = serve([gate, ChoiceFinished(), Completed()], job_threads=1)
    running, waiting = served.create(), served.create()
    gate.wait_until_reached()
    before = served.get(f"/research/{waiting}/events")
    assert [item["message"] for item in before] == MESSAGES[:1]
    gate.open()
    for job_id in (running, waiting):
        served.ended(job_id)
    assert served.get(f"/research/{waiting}/events") == before


def test_a_reader_whose_server_ends_is_not_told_that_the_job_did(serve) -> None:
    gate = Gate()
    served = serve([ProgressNoted("on it"), gate], able={"durable": True})
    job_id = served.create()
    with (
        LiveServer(served.app) as server,
        server.client().get(f"/research/{job_id}/events", headers=STREAM) as response,
    ):
        for _ in response.chunks():
            if b"on it" in response.raw:
                break
        services_of(served.app).runner.close()
        rest = response.read()
    assert b"status" not in rest
    assert b"[DONE]" not in rest


def test_a_reader_goes_on_after_any_event_and_at_the_end(serve) -> None:
    served = serve()
    job_id = served.create()
    served.ended(job_id)
    path = f"/research/{job_id}/events"
    whole = frames_of(served.client.get(path, headers=STREAM).text)
    for place, (number, _) in enumerate(whole[:-1]):
        headers = {**STREAM, "Last-Event-ID": str(number)}
        rest = frames_of(served.client.get(path, headers=headers).text)
        # whoever has the end may hear of it again, but of nothing else
        assert rest == (whole[place + 1 :] if place < len(whole) - 2 else whole[-2:])


@pytest.mark.parametrize("last", ["x", "-1", "1e3", "9" * 18, "\u0663"])
def test_an_id_that_is_none_of_ours_hangs_nothing(serve, last) -> None:
    served = serve()
    job_id = served.create()
    served.ended(job_id)
    headers = {**STREAM, "Last-Event-ID": last.encode().decode("latin-1")}
    frames = frames_of(served.client.get(f"/research/{job_id}/events", headers=headers).text)
    assert frames[-1] == (None, "[DONE]")


def test_a_failed_job_ends_its_stream_as_failed(serve) -> None:
    served = serve([ProgressNoted("on it"), RuntimeError("secret")])
    job_id = served.create()
    frames = frames_of(served.client.get(f"/research/{job_id}/events", headers=STREAM).text)
    assert json.loads(frames[-2][1]) == {"status": "failed", "id": job_id}


def test_items_come_while_the_job_runs_and_the_reader_may_leave(serve) -> None:
    gate = Gate()
    served = serve([ProgressNoted("on it"), gate, ChoiceFinished(), Completed()], heartbeat_s=0.05)
    job_id = served.create()
    with LiveServer(served.app) as server:
        with server.client().get(f"/research/{job_id}/events", headers=STREAM) as response:
            for _ in response.chunks():
                if b"on it" in response.raw and b": keep-alive" in response.raw:
                    break
        gate.open()
        assert served.ended(job_id)["status"] == "completed"
