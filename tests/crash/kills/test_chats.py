"""Follow-up questions over HTTP while the server's workers are killed."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from caesar_server.contract.sse import SseDecoder

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

QUESTIONS, CLIENTS = 24, 4
WITHIN_S = 60.0
#: Reached once each, in this order, by whichever worker comes there first.
POINTS = (
    "before-creation",
    "after-creation",
    "after-progress_noted",
    "inside-a-batch",
    "before-announcement",
    "after-the-checkpoint",
    "after-content_delta",
    "before-the-end",
    "before-the-end-is-told",
)
#: What happens to a client whose worker is killed.
CUT_OFF = (OSError, http.client.HTTPException, ValueError)


@dataclass(frozen=True)
class Heard:
    """What a client had of a question: the id of its answer, and its text as it was streamed."""

    content: str
    message_id: str
    text: str


class Client:
    """Asks about a job and hears each answer; may be used by several threads."""

    def __init__(self, farm: Any, job_id: str) -> None:
        self._farm = farm
        self._chat = f"/research/{job_id}/chat"
        self._lock = threading.Lock()
        self.cut_off = 0

    def ask(self, number: int) -> Heard:
        """Ask a question until it is taken, and hear its answer until it is whole."""
        content = f"question {number}"
        message_id = self._until(lambda tries: self._ask(content, tries))
        text = self._until(lambda _: self._hear(message_id))
        return Heard(content, message_id, text)

    def _until(self, act: Callable[[int], str | None]) -> str:
        """Act again and again until something comes of it."""
        until, tries = time.monotonic() + WITHIN_S, 0
        while True:
            try:
                done = act(tries)
            except CUT_OFF:
                done = None
                with self._lock:
                    self.cut_off += 1
            if done is not None:
                return done
            assert time.monotonic() < until, self._farm.fired()
            tries += 1
            threading.Event().wait(0.05)

    def _ask(self, content: str, tries: int) -> str | None:
        """Ask as Caesar's SDKs do; return the id of the answer, or None if it was not taken."""
        headers = {"x-stainless-retry-count": str(tries)}
        with self._farm.client.post(self._chat, {"content": content}, headers=headers) as response:
            if response.status == 503:
                return None
            assert response.status == 200, response.read()
            message = response.json()
        assert message["role"] == "assistant"
        return str(message["id"])

    def _hear(self, message_id: str) -> str | None:
        """Return a whole streamed text, or None if the stream was cut off."""
        texts: list[str] = []
        with self._farm.client.get(f"{self._chat}/{message_id}/stream") as response:
            if response.status == 503:
                return None
            assert response.status == 200, response.read()
            decoder = SseDecoder()
            for chunk in response.chunks():
                for event in decoder.feed(chunk):
                    if event.data == "[DONE]":
                        return "".join(texts)
                    frame = json.loads(event.data)
                    if "error" in frame:
                        assert frame["error"]["code"] == "shutting_down", frame
                        return None
                    texts.append(frame["choices"][0]["delta"].get("content", ""))
        return None


def get(farm: Any, path: str) -> Any:
    with farm.client.get(path) as response:
        assert response.status == 200, response.read()
        return response.json()


def completed_job(farm: Any) -> str:
    """Return the id of a job that can be asked about."""
    with farm.client.post("/research", {"query": "q", "model": "finding"}) as response:
        assert response.status == 200, response.read()
        job_id = str(response.json()["id"])
    farm.wait_for(lambda: farm.store.job(job_id).status == "completed")
    return job_id


def test_kills_lose_and_double_no_question_and_no_answer(farm: Any, kills: Any) -> None:
    farm.serve("--job-threads", "2")
    parent_id = completed_job(farm)
    client = Client(farm, parent_id)
    # a history has no more of them
    all_heard = kills.run(POINTS, client.ask, times=QUESTIONS, most=100, clients=CLIENTS)
    assert [fired.point for fired in farm.fired()] == list(POINTS)
    assert client.cut_off > 0
    jobs = {job.id: job for job in farm.wait_until_ended()}
    farm.check_whole(jobs.pop(parent_id))
    assert len(all_heard) >= QUESTIONS
    # what was acknowledged is there, and a question that was repeated is there once
    assert sorted(heard.message_id for heard in all_heard) == sorted(jobs)
    history = get(farm, f"/research/{parent_id}/chat")["data"]
    answers = {one["id"]: one for one in history if one["role"] == "assistant"}
    questions = [one["content"] for one in history if one["role"] == "user"]
    assert sorted(questions) == sorted(heard.content for heard in all_heard)
    for heard in all_heard:
        job = jobs[heard.message_id]
        farm.check_whole(job)
        assert job.parent_id == parent_id
        shown = answers[heard.message_id]
        assert (shown["status"], shown["error_message"]) == ("completed", None)
        assert shown["content"] == heard.text == job.checkpoint["text"]
        assert get(farm, f"/research/{parent_id}/chat/{heard.message_id}") == shown
    assert get(farm, f"/research/{parent_id}")["status"] == "completed"
