"""Follow-up questions over HTTP while the server's workers are killed."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
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


class Load:
    """Clients that ask about a job and hear each answer, while points are armed one by one."""

    def __init__(self, farm: Any, job_id: str) -> None:
        self._farm = farm
        self._chat = f"/research/{job_id}/chat"
        self._points = deque(POINTS)
        self._armed: str | None = None
        self._lock = threading.Lock()
        self._begun = 0
        self.heard: list[Heard] = []
        self.cut_off = 0

    def run(self) -> None:
        with ThreadPoolExecutor(CLIENTS, thread_name_prefix="test-client") as pool:
            for client in [pool.submit(self._client) for _ in range(CLIENTS)]:
                client.result()

    def _client(self) -> None:
        while (number := self._next()) is not None:
            content = f"question {number}"
            message_id = self._until(lambda tries, content=content: self._ask(content, tries))
            text = self._until(lambda _, message_id=message_id: self._hear(message_id))
            self.heard.append(Heard(content, message_id, text))

    def _next(self) -> int | None:
        with self._lock:
            if self._armed is None or not self._farm.is_armed(self._armed):
                self._armed = self._points.popleft() if self._points else None
                if self._armed is not None:
                    self._farm.arm(self._armed)
            if self._begun >= QUESTIONS and self._armed is None:
                return None
            # a history has no more of them
            assert self._begun < 100, f"nobody reaches {self._armed}"
            self._begun += 1
            return self._begun

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


def test_kills_lose_and_double_no_question_and_no_answer(farm: Any) -> None:
    farm.serve("--job-threads", "2")
    parent_id = completed_job(farm)
    load = Load(farm, parent_id)
    load.run()
    assert [fired.point for fired in farm.fired()] == list(POINTS)
    assert load.cut_off > 0
    jobs = {job.id: job for job in farm.wait_until_ended()}
    farm.check_whole(jobs.pop(parent_id))
    assert len(load.heard) >= QUESTIONS
    # what was acknowledged is there, and a question that was repeated is there once
    assert sorted(heard.message_id for heard in load.heard) == sorted(jobs)
    history = get(farm, f"/research/{parent_id}/chat")["data"]
    answers = {one["id"]: one for one in history if one["role"] == "assistant"}
    questions = [one["content"] for one in history if one["role"] == "user"]
    assert sorted(questions) == sorted(heard.content for heard in load.heard)
    for heard in load.heard:
        job = jobs[heard.message_id]
        farm.check_whole(job)
        assert job.parent_id == parent_id
        shown = answers[heard.message_id]
        assert (shown["status"], shown["error_message"]) == ("completed", None)
        assert shown["content"] == heard.text == job.checkpoint["text"]
        assert get(farm, f"/research/{parent_id}/chat/{heard.message_id}") == shown
    assert get(farm, f"/research/{parent_id}")["status"] == "completed"
