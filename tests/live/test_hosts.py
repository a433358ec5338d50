"""The same answers on every host, to OpenAI's own client; and what is particular to some."""

from __future__ import annotations

import json
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest

HOSTS = ["gthread", "gevent", "granian"]
GRACE = ("--graceful-timeout-s", "3")

on_every_host = pytest.mark.parametrize("host", HOSTS)
on_gevent = pytest.mark.parametrize("host", ["gevent"])
on_granian = pytest.mark.parametrize("host", ["granian"])


def openai_client(server: Any) -> openai.OpenAI:
    url = f"http://127.0.0.1:{server.port}/compat"
    return openai.OpenAI(base_url=url, api_key="none", max_retries=0)


@on_every_host
def test_openai_python_gets_answers_streams_and_errors(start):
    server = start("--default-backend", "mock")
    with openai_client(server) as client:
        plain = client.completions.create(model="mock", prompt="To be, or not to be")
        with client.completions.create(
            model="mock", prompt="To be, or not to be", stream=True
        ) as stream:
            texts = [choice.text for chunk in stream for choice in chunk.choices]
        assert len(texts) > 2
        assert "".join(texts) == plain.choices[0].text
        chat = client.chat.completions.create(
            model="mock", messages=[{"role": "user", "content": "To be"}]
        )
        assert chat.choices[0].message.content
        with pytest.raises(openai.BadRequestError) as refused:
            client.completions.create(model="mock", prompt="x", temperature=9)
        assert refused.value.param == "temperature"
        assert refused.value.request_id


@on_every_host
def test_a_stream_arrives_as_it_is_made_and_ends_with_its_client(start):
    server = start()
    with openai_client(server) as client:
        stream = client.completions.create(model="ticks", prompt="left", stream=True)
        assert [next(stream).choices[0].text for _ in range(5)] == ["tick "] * 5
        stream.close()
    server.wait(lambda: any("ended left" in line for line in server.journal))


@on_every_host
def test_a_silent_stream_ends_with_its_client(start):
    server = start("--heartbeat-s", "0.2")
    sock = server.send("silent", "quiet", stream=True)
    server.wait(lambda: "began quiet" in "".join(server.journal))
    sock.close()
    server.wait(lambda: any("ended quiet" in line for line in server.journal))


def begun_on(server: Any) -> set[str]:
    return {line.split()[2] for line in server.journal if line.split()[1] == "began"}


@on_every_host
def test_many_answers_at_once_are_each_their_own(start):
    server = start()
    with ThreadPoolExecutor(30, thread_name_prefix="live-client") as pool:
        asked = [pool.submit(server.ask, "steps", f"p{number}") for number in range(30)]
        # none can end before all have begun
        server.wait(lambda: {f"p{number}" for number in range(30)} <= begun_on(server))
        for number in range(3):
            (server.folder / f"step-{number}").touch()
        answers = [one.result() for one in asked]
    assert [status for status, _ in answers] == [200] * 30
    assert {body["choices"][0]["text"] for _, body in answers} == {"step 0step 1step 2"}
    assert len({body["id"] for _, body in answers}) == 30


@on_every_host
def test_http_1_0_needs_no_host(start):
    server = start()
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as sock:
        sock.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert sock.makefile("rb").readline().split()[1] == b"200"


@on_granian
def test_granian_ends_streams_with_a_last_frame_and_closes_the_backends(start, read):
    server = start(*GRACE)
    stream = server.send("ticks", "stream", stream=True)
    silent = server.send("silent", "silent", stream=True)
    server.wait(lambda: len([line for line in server.journal if "began" in line]) == 2)
    server.signal(signal.SIGTERM)
    for sock in (stream, silent):
        raw = read(sock)
        assert b'"code":"shutting_down"' in raw
        assert b"data: [DONE]\n\n" in raw
        assert raw.endswith(b"0\r\n\r\n")
    assert server.exit_code() == 0
    assert any("closed silent" in line for line in server.journal)
    assert "Traceback" not in server.log


@on_granian
def test_granian_reads_the_settings_again_on_sighup_and_ends_streams_properly(start, read):
    server = start(*GRACE)
    assert server.ask("slow", "x", tenths=0)[1]["usage"]["total_tokens"] > 0
    stream = server.send("ticks", "stream", stream=True)
    server.wait(lambda: any("began stream" in line for line in server.journal))
    (server.folder / "caesar-server.toml").write_text('compat_usage = "zero"\n')
    server.signal(signal.SIGHUP)
    raw = read(stream)
    assert b'"code":"shutting_down"' in raw
    assert b"data: [DONE]\n\n" in raw

    def counts_nothing() -> bool:
        try:
            return server.ask("slow", "x", tenths=0)[1]["usage"]["total_tokens"] == 0
        except OSError:
            return False  # nobody listens until granian's next worker does

    server.wait(counts_nothing)


@on_granian
def test_granian_lets_jobs_end_that_no_client_waits_for(start, tmp_path):
    store = ("--store", f"sqlite:///{tmp_path}/jobs.sqlite3")
    server = start("--graceful-timeout-s", "20", *store)
    _, job = server.request("POST", "/research", {"query": "x", "model": "slow"})
    server.wait(lambda: any("began" in line for line in server.journal))
    server.signal(signal.SIGTERM)
    assert server.process.wait(15) == 0
    status, body = start(*store).request("GET", f"/research/{job['id']}")
    assert (status, body["status"]) == (200, "completed")


@on_granian
def test_granian_refuses_bad_settings_in_one_line(start, tmp_path):
    with pytest.raises(AssertionError, match="the server ended with"):
        start("--heartbeat-s", "soon", "--cors-origins", "here")
    log = (tmp_path / "log").read_text()
    assert "caesar-server: " in log
    assert "heartbeat_s" in log
    assert "Traceback" not in log


@on_gevent
def test_gevent_refuses_a_default_backend_that_computes(start, tmp_path):
    with pytest.raises(AssertionError, match="keeps a core busy"):
        start("--default-backend", "busy")
    log = (tmp_path / "log").read_text()
    assert "worker_class" in log
    assert "--worker-class gthread" in log
    assert "Traceback" not in log


@on_gevent
def test_gevent_refuses_any_backend_that_computes_under_strict_plugins(start):
    with pytest.raises(AssertionError, match="keeps a core busy"):
        start("--default-backend", "mock", "--strict-plugins")


@on_gevent
def test_gevent_answers_503_for_another_backend_that_computes(start):
    server = start("--default-backend", "mock")
    status, body = server.ask("busy", "x")
    assert status == 503
    assert "'busy' could not be loaded" in body["error"]["message"]
    assert "keeps a core busy" in server.log
    assert server.ask("mock", "x")[0] == 200


@on_gevent
def test_gevent_that_is_not_installed_is_told_with_the_line_that_installs_it(
    start, tmp_path, monkeypatch
):
    (tmp_path / "gevent.py").write_text("raise ModuleNotFoundError(\"No module named 'gevent'\")")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(AssertionError, match="the server ended with 2"):
        start()
    log = (tmp_path / "log").read_text()
    assert "pip install 'caesar-server[gevent]'" in log
    assert "Traceback" not in log


@on_gevent
@pytest.mark.usefixtures("long_waits")
def test_gevent_lets_idle_connections_go_at_the_end(start):
    server = start("--graceful-timeout-s", "600")
    # one whose request is half there, and one whose request was answered
    half = socket.create_connection(("127.0.0.1", server.port))
    half.sendall(b"GET /healthz HTTP/1.1\r\n")
    with half, socket.create_connection(("127.0.0.1", server.port)) as idle:
        idle.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert idle.recv(65536).startswith(b"HTTP/1.1 200")
        server.signal(signal.SIGTERM)
        assert server.exit_code() == 0
        while received := idle.recv(65536):
            assert b"HTTP/1.1" not in received


@on_gevent
def test_gevent_bears_with_a_slow_reader_that_goes_on_reading(start, read):
    server = start("--write-timeout-s", "1.5", "--max-answer-chars", "40000000")
    # More than the system's buffers hold, so that one write lasts as long as the reader takes.
    stream = server.send("slow", "big", tenths=0, megabytes=30)
    received, waits = 0, 0
    while part := stream.recv(256 * 1024):
        received += len(part)
        if received > waits * 1_000_000:
            waits += 1
            threading.Event().wait(0.1)
    stream.close()
    assert received > 30_000_000


@on_gevent
def test_gevent_answers_what_is_no_request_with_openais_error_object(start, read):
    server = start()
    with socket.create_connection(("127.0.0.1", server.port)) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nbad header\r\n\r\n")
        head, _, body = read(sock).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400")
    assert json.loads(body)["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("host", ["gthread", "gevent"])
def test_a_client_that_sends_all_of_a_refused_body_still_hears_why(start, read):
    server = start("--max-body-bytes", "100000")
    for _ in range(5):
        # blocks until the server has taken nearly all of it, whatever it has said meanwhile
        refused = read(server.send_raw(b" " * 12_000_000))
        assert refused.startswith(b"HTTP/1.1 413 ")
        assert b'"code":"body_too_large"' in refused.replace(b": ", b":")
