"""How workers and streams end: told to, reloaded, replaced, killed."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from typing import Any

import pytest

GRACE = ("--graceful-timeout-s", "3")


#: Every test here holds under both workers.
pytestmark = pytest.mark.parametrize("host", ["gthread", "gevent"])


def in_background(call: Any) -> Any:
    """Run ``call`` in a thread; return a function that waits for its result."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(call()), name="live-client")
    thread.start()

    def result() -> Any:
        thread.join(60)
        return results[0]

    return result


def is_proper_end(raw: bytes) -> bool:
    """Return whether a stream ends with the shutdown's frame, ``[DONE]`` and the last chunk."""
    return b'"code":"shutting_down"' in raw and raw.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")


def test_sigterm_lets_short_answers_finish_and_gives_streams_a_last_frame(start, read):
    server = start(*GRACE)
    stream = server.send("ticks", "stream", stream=True)
    answer = in_background(lambda: server.ask("slow", "answer", tenths=10))
    server.wait(lambda: len(server.journal) == 2)
    server.signal(signal.SIGTERM)
    status, body = answer()
    assert (status, body["choices"][0]["text"][:5]) == (200, "from ")
    assert is_proper_end(read(stream))
    assert server.exit_code() == 0
    assert "SIGABRT" not in server.log
    assert "Traceback" not in server.log
    assert any("ended stream" in line for line in server.journal)


def test_sigterm_without_work_ends_at_once(start):
    server = start("--graceful-timeout-s", "600")
    server.signal(signal.SIGTERM)
    assert server.exit_code() == 0


def test_sighup_reads_the_settings_again_while_streams_go_on(start, read):
    settings = "caesar-server.toml"
    server = start(*GRACE)
    assert server.ask("slow", "x", tenths=0)[1]["usage"]["total_tokens"] > 0
    stream = server.send("ticks", "stream", stream=True)
    server.wait(lambda: any("began stream" in line for line in server.journal))
    (old,) = server.workers()
    (server.folder / settings).write_text('compat_usage = "zero"\n')
    server.signal(signal.SIGHUP)
    server.wait(lambda: server.ask("slow", "x", tenths=0)[1]["usage"]["total_tokens"] == 0)
    assert stream.recv(10)
    assert is_proper_end(read(stream))
    server.wait(lambda: old not in server.workers())
    (server.folder / settings).write_text('compat_usage = "wrong"\n')
    server.signal(signal.SIGHUP)
    server.wait(lambda: "the settings stay as they were" in server.log)
    assert "compat_usage" in server.log
    server.wait(server.answers)
    assert server.ask("slow", "x", tenths=0)[1]["usage"]["total_tokens"] == 0


def test_max_requests_replaces_a_worker_without_losing_a_request(start, read):
    server = start(*GRACE, "--max-requests", "20")
    stream = server.send("ticks", "stream", stream=True)
    server.wait(lambda: any("began stream" in line for line in server.journal))
    workers: set[str] = set()

    def third_worker_answers() -> bool:
        status, body = server.ask("slow", "x", tenths=0)
        assert status == 200
        workers.add(body["choices"][0]["text"])
        return len(workers) == 3

    server.wait(third_worker_answers)
    assert is_proper_end(read(stream))
    assert "SIGABRT" not in server.log


#: A worker begins only as long as there is no file ``shut``.
BEGIN_LATE = """
import os, time
from caesar_server.cli import gunicorn_options
begin_work = gunicorn_options.begin_work
def begin_late(worker):
    begin_work(worker)
    while os.path.exists("shut"):
        time.sleep(0.01)
gunicorn_options.begin_work = begin_late
"""


def test_max_requests_lets_a_worker_answer_until_another_one_does(start, tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text(BEGIN_LATE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    server = start("--max-requests", "5")
    (old,) = server.workers()

    def answered_by() -> str:
        status, body = server.ask("slow", "x", tenths=0)
        assert status == 200
        return body["choices"][0]["text"]

    (tmp_path / "shut").touch()
    # the answer of a run may be there before the run is over, and one that runs is not disturbed
    server.wait(lambda: answered_by() and len(server.workers()) == 2)
    assert {answered_by() for _ in range(20)} == {f"from {old}"}
    (tmp_path / "shut").unlink()
    server.wait(lambda: answered_by() != f"from {old}")
    server.wait(lambda: old not in server.workers())
    assert len(server.workers()) in (1, 2)
    assert "Traceback" not in server.log


def ended_job(server: Any, job_id: str) -> Any:
    """Return a job once it has ended."""

    def look() -> Any:
        with contextlib.suppress(OSError):  # between two workers
            _, job = server.request("GET", f"/research/{job_id}")
            return job["status"] in ("completed", "failed") and job
        return None

    return server.wait(look)


def begin_job(server: Any) -> str:
    """Begin a job that takes a second, without a connection that waits for it; return its id."""
    _, job = server.request("POST", "/research", {"query": "x", "model": "slow"})
    server.wait(lambda: any("began" in line for line in server.journal))
    return job["id"]


def test_sighup_lets_jobs_end_that_no_client_waits_for(start, tmp_path):
    server = start("--graceful-timeout-s", "20", "--store", f"sqlite:///{tmp_path}/jobs.sqlite3")
    job_id = begin_job(server)
    (old,) = server.workers()
    server.signal(signal.SIGHUP)
    job = ended_job(server, job_id)
    assert (job["status"], job["content"]) == ("completed", f"from {old}")
    server.wait(lambda: old not in server.workers())


def test_sigterm_lets_jobs_end_that_no_client_waits_for(start, tmp_path):
    store = ("--store", f"sqlite:///{tmp_path}/jobs.sqlite3")
    server = start("--graceful-timeout-s", "20", *store)
    job_id = begin_job(server)
    server.signal(signal.SIGTERM)
    assert server.process.wait(15) == 0
    job = ended_job(start(*store), job_id)
    assert job["status"] == "completed"


def test_max_requests_does_not_cost_a_job(start, tmp_path):
    store = ("--store", f"sqlite:///{tmp_path}/jobs.sqlite3")
    server = start("--graceful-timeout-s", "20", "--max-requests", "5", *store)
    (old,) = server.workers()
    job_id = begin_job(server)
    for _ in range(6):
        server.request("GET", f"/research/{job_id}")
    assert server.workers() == {old}, "it would have been told to end"
    assert ended_job(server, job_id)["status"] == "completed"
    server.wait(lambda: server.answers() and old not in server.workers())


def test_a_killed_worker_is_replaced_and_the_streams_of_the_other_live_on(start):
    server = start(*GRACE, "--workers", "2")
    server.wait(lambda: len(server.workers()) == 2)
    streams: dict[int, Any] = {}
    held = []
    while len(streams) < 2:
        prompt = f"s{len(held)}"
        held.append(server.send("ticks", prompt, stream=True))
        line = server.wait(
            lambda prompt=prompt: [x for x in server.journal if x.endswith(f"began {prompt}")]
        )
        streams[int(line[0].split()[0])] = held[-1]
    victim, survivor = streams
    os.kill(victim, signal.SIGKILL)
    server.wait(lambda: len(server.workers() - {victim}) == 2)
    for _ in range(20):
        assert b"tick" in streams[survivor].recv(65536)
    assert server.ask("slow", "x", tenths=0)[0] == 200
    for sock in held:
        sock.close()
    prompts = [line.split()[2] for line in server.journal if line.startswith(f"{survivor} began s")]
    server.wait(lambda: all(any(f"ended {p} " in x for x in server.journal) for p in prompts))


def test_a_reader_that_takes_nothing_is_cut_and_its_run_cancelled(start):
    server = start("--write-timeout-s", "0.5", "--feed-events", "8")
    with server.send("ticks", "unread", stream=True, words=1000, hurry=True):
        server.wait(lambda: any("ended unread" in line for line in server.journal))


def test_a_client_that_leaves_a_silent_json_answer_ends_its_run(start):
    server = start()
    server.send("ticks", "json", stream=False).close()
    server.wait(lambda: any("ended json" in line for line in server.journal))
