"""Requests to durable backends: their jobs outlive clients and processes; repeats find them."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from caesar_server.app import create_app
from caesar_server.contract import (
    Backend,
    BackendUnavailableError,
    ChoiceFinished,
    Completed,
    ContentDelta,
    Failed,
    Started,
)
from caesar_server.contract.errors import ErrorInfo
from caesar_server.registry import Registry
from caesar_server.settings import Settings
from caesar_server.store.base import Job, Store, StoreError
from caesar_server.store.memory import MemoryStore
from caesar_server.store.opening import open_store, prepare_store
from caesar_server.store.quotas import Quota
from caesar_server.testing import Gate, LiveServer, SseClient, scripted_backend
from caesar_server.testing.sse_client import SseResponse
from caesar_server.web.services import services_of

WITHIN_S = 60.0
PATH = "/compat/completions"
ANSWER = [ContentDelta("two "), ContentDelta("words"), ChoiceFinished(), Completed()]


class Served:
    """One process's server: its app behind a real socket."""

    def __init__(self, backend: type[Backend], store: Store, settings: Settings) -> None:
        self.backend: Any = backend
        self.store = store
        self.app = create_app(settings, Registry.of({"b": backend}, settings), store=store)
        self.server = LiveServer(self.app)

    @property
    def client(self) -> SseClient:
        return self.server.client(timeout_s=WITHIN_S)

    def ask(self, *, stream: bool = False, retry: str | None = None, **body: Any) -> SseResponse:
        """Send a completion request."""
        headers = {} if retry is None else {"x-stainless-retry-count": retry}
        path = body.pop("path", PATH)
        data = {"model": "m", "prompt": "p", "stream": stream, **body}
        return self.client.post(path, data, headers=headers)

    def jobs(self) -> list[Job]:
        return list(self.store.jobs())

    def wait_for(self, condition: Callable[[Job], object]) -> Job:
        """Return the newest job once a condition holds of it."""
        deadline = time.monotonic() + WITHIN_S
        while not (jobs := self.jobs()) or not condition(jobs[0]):
            assert time.monotonic() < deadline, jobs
            time.sleep(0.001)
        return jobs[0]


@pytest.fixture(scope="module")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a SQLite database with the store's tables, to be copied: making it is slow."""
    path = tmp_path_factory.mktemp("database") / "empty.sqlite3"
    prepare_store(Settings(store=f"sqlite:///{path}"))
    return path


@pytest.fixture(params=["memory", "sqlite"])
def serve(
    request: pytest.FixtureRequest, empty_database: Path, tmp_path: Path
) -> Iterator[Callable[..., Served]]:
    """Start servers over the same jobs, each with its own view of them, as processes have."""
    name = "memory"
    if request.param == "sqlite":
        name = f"sqlite:///{shutil.copy(empty_database, tmp_path / 'jobs.sqlite3')}"
    shared = MemoryStore()
    with ExitStack() as stack:

        def start(script: Any, *, durable: bool = True, **settings: Any) -> Served:
            if not isinstance(script, type):
                script = scripted_backend(script, durable=durable)
            values = Settings(**{"default_backend": "b", "store": name, **settings})
            store = shared if name == "memory" else open_store(values)
            served = Served(script, store, values)
            stack.enter_context(served.server)
            return served

        yield start


def text_of(response: SseResponse) -> str:
    """Return the text of an answer, streamed or not."""
    if response.headers["Content-Type"] == "application/json":
        return str(response.json()["choices"][0]["text"])
    return "".join(frame["choices"][0]["text"] for frame in response.frames())


def leave(served: Served, *, stream: bool) -> None:
    """Send a request, and be gone before its answer is complete."""
    if stream:
        with served.ask(stream=True) as response:
            next(response.chunks())
    else:
        with closing(HTTPConnection("127.0.0.1", served.server.port)) as connection:
            body = json.dumps({"model": "m", "prompt": "p", "stream": False})
            connection.request("POST", PATH, body, {"Content-Type": "application/json"})
            served.wait_for(lambda job: True)


# The answer is the same


@pytest.mark.parametrize("stream", [False, True])
def test_a_durable_backend_answers_as_any_other(serve, stream):
    served = serve([Started({"upstream": "gpu-1"}), *ANSWER])
    with served.ask(stream=stream) as response:
        assert response.status == 200
        assert response.headers["x-caesar-upstream"] == "gpu-1"
        assert text_of(response) == "two words"
    job = served.wait_for(lambda job: job.finished_at)
    assert (job.status, job.detached, job.durable, job.last_seq) == ("completed", True, True, 6)


def test_the_answers_id_is_the_jobs(serve):
    served = serve(ANSWER)
    body = served.ask().json()
    (job,) = served.jobs()
    assert (body["id"], body["created"]) == (job.id, int(job.created_at))


def test_a_backend_that_is_not_durable_has_no_part_in_this(serve):
    served = serve(ANSWER, durable=False)
    for stream in (False, True):
        assert text_of(served.ask(stream=stream, retry="1")) == "two words"
    first, second = served.jobs()
    assert first.id != second.id
    assert {(job.detached, job.durable, job.fingerprint) for job in (first, second)} == {
        (False, False, None)
    }


@pytest.mark.parametrize("stream", [False, True])
def test_what_fails_at_once_has_its_own_status(serve, stream):
    served = serve([BackendUnavailableError("The model is loading")])
    with served.ask(stream=stream) as response:
        assert response.status == 503
        assert response.headers["x-should-retry"] == "true"
        assert response.json()["error"]["code"] == "backend_unavailable"


def test_what_fails_later_is_not_to_be_repeated(serve):
    failure = Failed(ErrorInfo("no more", "broken", status=502, transient=True))
    served = serve([ContentDelta("a"), failure])
    with served.ask() as response:
        assert (response.status, response.headers["x-should-retry"]) == (502, "false")
    frames = served.ask(stream=True).frames()
    assert frames[-1]["error"]["code"] == "broken"


def test_a_stream_does_not_wait_for_ever_for_the_first_event(serve):
    gate = Gate()
    served = serve([gate, *ANSWER], first_event_wait_s=0.01, heartbeat_s=0.05)
    with served.ask(stream=True) as response:
        assert response.status == 200
        gate.wait_until_reached()
        assert next(response.chunks()).startswith(b":")
        gate.open()
        assert text_of(response) == "two words"


# The client leaves


@pytest.mark.parametrize("stream", [False, True])
def test_the_job_goes_on_without_its_client(serve, stream):
    gate = Gate()
    served = serve([ContentDelta("one "), gate, *ANSWER], first_event_wait_s=0)
    leave(served, stream=stream)
    gate.wait_until_reached()
    watch = services_of(served.app).runner._detached._watch
    deadline = time.monotonic() + WITHIN_S
    while watch.followed:
        assert time.monotonic() < deadline, "the follower is still there"
        time.sleep(0.001)
    gate.open()
    job = served.wait_for(lambda job: job.finished_at)
    assert job.status == "completed"
    assert served.backend.script.cancels == 0


# Repeats


@pytest.mark.parametrize("stream", [False, True])
def test_a_repeat_is_answered_by_the_job_that_runs(serve, stream):
    gate = Gate()
    served = serve([ContentDelta("one "), gate, *ANSWER], first_event_wait_s=0)
    leave(served, stream=stream)
    gate.wait_until_reached()
    job = served.wait_for(lambda job: job.last_seq)
    gate.open()
    with served.ask(stream=stream, retry="1") as again:
        assert again.status == 200
        assert text_of(again) == "one two words"
        assert job.id.encode() in again.read()
    assert served.backend.script.runs == 1


def test_a_repeat_of_a_finished_answer_gets_it_again(serve):
    served = serve(ANSWER)
    first = served.ask().json()
    assert served.ask(retry="2").json() == first
    assert served.backend.script.runs == 1


def test_a_repeat_finds_the_job_in_another_process(serve):
    gate = Gate()
    backend = scripted_backend([ContentDelta("one "), gate, *ANSWER], durable=True)
    first, second = serve(backend), serve(backend)
    with first.ask(stream=True) as left:
        gate.wait_until_reached()
        with second.ask(stream=True, retry="1") as again:
            gate.open()
            assert text_of(again) == text_of(left) == "one two words"
    assert backend.script.runs == 1


@pytest.mark.parametrize(
    ("retry", "changed"),
    [
        (None, {}),
        ("0", {}),
        ("-1", {}),
        ("x", {}),
        ("1", {"prompt": "q"}),
        ("1", {"path": "/v1/completions"}),
        ("1", {"user": "somebody"}),
    ],
)
def test_what_is_no_repeat_has_a_job_of_its_own(serve, retry, changed):
    served = serve(ANSWER)
    first = served.ask().json()
    assert served.ask(retry=retry, **changed).json()["id"] != first["id"]
    assert served.backend.script.runs == 2


def test_a_repeat_of_what_failed_begins_anew(serve):
    served = serve([BackendUnavailableError("The model is loading")])
    assert served.ask().status == 503
    assert served.ask(retry="1").status == 503
    assert served.backend.script.runs == 2


# No room, no store


def test_a_full_queue_is_a_429_with_the_time_to_wait(serve):
    gate = Gate()
    served = serve([gate, *ANSWER], job_threads=1, queue_limit=0, first_event_wait_s=0)
    with served.ask(stream=True) as response:
        gate.wait_until_reached()
        for stream in (False, True):
            with served.ask(stream=stream) as refused:
                assert refused.status == 429
                assert refused.headers["Retry-After"] == "5"
                assert refused.headers["x-should-retry"] == "true"
                assert refused.json()["error"]["code"] == "queue_full"
        gate.open()
        assert text_of(response) == "two words"


def test_a_job_that_waits_is_answered_once_it_was_run(serve):
    gate = Gate()
    served = serve([gate, *ANSWER], job_threads=1, first_event_wait_s=0, heartbeat_s=0.05)
    with served.ask(stream=True), served.ask(stream=True) as waiting:
        gate.wait_until_reached()
        assert waiting.status == 200
        assert next(waiting.chunks()).startswith(b":")
        gate.open()
        assert text_of(waiting) == "two words"


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("stream", [False, True])
def test_a_store_that_cannot_be_written_is_a_503_without_its_secrets(stream, durable, caplog):
    class Full(MemoryStore):
        def create(
            self, job: Job, *, wait: bool = True, held: bool = False, quota: Quota | None = None
        ) -> None:
            raise StoreError("/var/secret/jobs.sqlite3: the disk is full")

    settings = Settings(default_backend="b")
    served = Served(scripted_backend(ANSWER, durable=durable), Full(), settings)
    with served.server, served.ask(stream=stream) as response:
        assert response.status == 503
        assert response.headers["x-should-retry"] == "true"
        error = response.json()["error"]
        assert error["code"] == "store_unavailable"
        assert "secret" not in error["message"]
    assert "the disk is full" in caplog.text


class Away(MemoryStore):
    """Cannot be read for a while."""

    away = False

    def records(self, *args: Any, **kwargs: Any) -> Any:
        if self.away:
            raise StoreError("no connection")
        return super().records(*args, **kwargs)


@pytest.mark.parametrize("stream", [False, True])
def test_a_store_that_goes_away_costs_the_client_its_patience_and_not_its_answer(
    stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("caesar_server.jobs.following.follower._PATIENCE_S", 0.0)
    gate, store = Gate(), Away()
    backend = scripted_backend([ContentDelta("one "), gate, *ANSWER], durable=True)
    served = Served(backend, store, Settings(default_backend="b"))
    with served.server, ThreadPoolExecutor(1) as pool:
        asking = pool.submit(served.ask, stream=stream)
        gate.wait_until_reached()
        served.wait_for(lambda job: job.last_seq == 2)
        if stream:
            asking.result(WITHIN_S)  # it has begun
        store.away = True
        gate.open()
        with asking.result(WITHIN_S) as response:
            if stream:
                error = response.frames()[-1]["error"]
            else:
                assert (response.status, response.headers["x-should-retry"]) == (503, "true")
                error = response.json()["error"]
        assert error["code"] == "store_unavailable"
        assert "x-stainless-retry-count" in error["message"]
        store.away = False
        with served.ask(stream=stream, retry="1") as response:
            assert text_of(response) == "one two words"
        assert len(served.jobs()) == 1


# The server ends


def test_the_end_of_the_server_ends_the_stream_and_another_goes_on(serve):
    gate = Gate()
    first = serve([ContentDelta("one "), gate, *ANSWER])
    with first.ask(stream=True) as response:
        gate.wait_until_reached()
        job = first.wait_for(lambda job: job.last_seq == 2)
        services_of(first.app).runner.close()
        frames = response.frames()
        assert frames[-1]["error"]["code"] == "shutting_down"
    assert first.store.job(job.id).owner is None
    second = serve([ContentDelta("one "), *ANSWER])
    job = second.wait_for(lambda job: job.finished_at)
    assert (job.status, job.attempt - job.released) == ("completed", 1)
    with second.ask(stream=True, retry="1") as again:
        assert text_of(again) == "one two words"
