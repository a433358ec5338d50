"""Numbers and log lines of a server of several processes."""

from __future__ import annotations

import http.client
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError

import pytest

TICKS = {"model": "ticks", "prompt": "ticks", "stream": True}


def scrape(server: Any) -> str:
    """Return what ``/metrics`` says, from whichever worker answers."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=60) as reply:
        assert reply.status == 200
        return str(reply.read().decode())


def value(text: str, name: str, **labels: str) -> float:
    """Return the sum over all series with these labels among theirs."""
    found = re.findall(rf"^{name}(?:{{(.*)}})? (\S+)$", text, re.MULTILINE)
    wanted = {f'{label}="{one}"' for label, one in labels.items()}
    return sum(float(number) for given, number in found if wanted <= set(given.split(",")))


def look(server: Any, name: str, **labels: str) -> float:
    """Return what a number is, or -1 if the worker that was asked is gone before it answered."""
    try:
        return value(scrape(server), name, **labels)
    except HTTPError:
        raise  # that is an answer
    except (ConnectionError, URLError, http.client.IncompleteRead):
        return -1


def completed(server: Any) -> float:
    return value(scrape(server), "caesar_runs_total", backend="slow", outcome="completed")


def ask_until_all_answered(server: Any, count: int) -> int:
    """Send requests until ``count`` workers have answered one; return how many were sent."""
    seen: set[str] = set()
    before, sent = completed(server), 0
    deadline = time.monotonic() + 60
    with ThreadPoolExecutor(6) as pool:
        while len(seen) < count:
            assert time.monotonic() < deadline
            # Several at once, or the same worker may take them all.
            replies = list(pool.map(lambda _: server.ask("slow", "p", tenths=1), range(6)))
            sent += 6
            assert [status for status, _ in replies] == [200] * 6
            seen |= {body["choices"][0]["text"] for _, body in replies}
    # a run is counted when it is over: the client may know sooner
    server.wait(lambda: completed(server) == before + sent)
    return sent


def folder_of(server: Any) -> Path:
    """Return the folder that the workers share: they have its files in their memory."""
    (worker, *_) = server.workers()
    maps = Path(f"/proc/{worker}/maps").read_text()
    found = re.search(r" (/\S+/caesar-server-metrics-[^/]+)/", maps)
    assert found, maps
    return Path(found[1])


def test_every_worker_answers_with_the_sum_of_all(start: Callable[..., Any]) -> None:
    server = start("--workers=2")
    sent = ask_until_all_answered(server, 2)
    # whichever worker answers
    assert {completed(server) for _ in range(12)} == {sent}
    asked = {"endpoint": "create_completion", "status": "200"}
    # counted when it has been sent: the client may be quicker
    server.wait(lambda: value(scrape(server), "caesar_requests_total", **asked) == sent)
    assert value(scrape(server), "caesar_build_info") == 1


def test_killed_worker_leaves_its_numbers_and_takes_its_streams(start: Callable[..., Any]) -> None:
    server = start("--workers=2")
    sent = ask_until_all_answered(server, 2)
    streams = [server.send(**TICKS) for _ in range(6)]
    server.wait(lambda: value(scrape(server), "caesar_open_streams") == 6)
    server.wait(lambda: value(scrape(server), "caesar_running_jobs") == 6)
    owners = [int(line.split()[0]) for line in server.journal if line.endswith("began ticks")]
    victim = owners[0]
    os.kill(victim, signal.SIGKILL)
    left = 6 - owners.count(victim)
    server.wait(lambda: look(server, "caesar_open_streams") == left)
    server.wait(lambda: look(server, "caesar_running_jobs") == left)
    assert completed(server) == sent
    server.wait(lambda: len(server.workers() - {victim}) == 2)
    sent += ask_until_all_answered(server, 2)
    assert completed(server) == sent
    for stream in streams:
        stream.close()
    server.wait(lambda: value(scrape(server), "caesar_open_streams") == 0)
    server.wait(lambda: value(scrape(server), "caesar_running_jobs") == 0)


def replace_workers(server: Any, number: signal.Signals) -> None:
    """Send a signal to the master, or SIGKILL to each worker, and wait for two others."""
    old = server.workers()
    if number == signal.SIGKILL:
        for pid in old:
            os.kill(pid, number)
    else:
        server.signal(number)
    server.wait(lambda: len(server.workers() - old) == 2 and not server.workers() & old)
    server.wait(server.answers)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP])
def test_a_folder_that_somebody_removes_takes_no_more_than_numbers_along(
    start: Callable[..., Any], number: signal.Signals
) -> None:
    """As who empties /tmp does."""
    server = start("--workers=2")
    ask_until_all_answered(server, 2)
    shutil.rmtree(folder_of(server))
    # a label that the worker has not had yet
    assert server.request("GET", "/nowhere")[0] == 404
    replace_workers(server, number)
    assert completed(server) == 0
    sent = ask_until_all_answered(server, 2)
    assert completed(server) == sent


def test_counters_never_go_back_while_workers_come_and_go(start: Callable[..., Any]) -> None:
    server = start("--workers=2")
    sent = ask_until_all_answered(server, 2)
    folder = folder_of(server)
    over = threading.Event()
    seen: list[float] = []

    def watch() -> None:
        while not over.is_set():
            count = look(server, "caesar_runs_total", backend="slow", outcome="completed")
            if count >= 0:
                seen.append(count)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        for number in range(4):
            replace_workers(server, signal.SIGHUP if number % 2 else signal.SIGKILL)
            sent += ask_until_all_answered(server, 2)
    finally:
        over.set()
        watcher.join()
    assert seen == sorted(seen)
    assert completed(server) == sent
    # numbers that somebody reads are not moved; now nobody does
    replace_workers(server, signal.SIGKILL)
    assert completed(server) == sent
    # dead processes leave one file of each kind, however many they were
    pids = {str(pid) for pid in server.workers()}
    strays = {
        path.name for path in folder.iterdir() if not set(re.split(r"[_.]", path.name)) & pids
    }
    assert strays == {"counter_gone.db", "histogram_gone.db", "lock"}


def test_folder_is_gone_when_the_server_has_ended(start: Callable[..., Any]) -> None:
    server = start()
    folder = folder_of(server)
    assert folder.stat().st_mode & 0o777 == 0o700
    server.end()
    assert server.process.returncode == 0
    assert not folder.exists()


def test_folder_of_a_killed_server_is_removed_by_the_next_and_that_of_a_living_one_is_not(
    start: Callable[..., Any],
) -> None:
    killed, living = start(), start()
    left, used = folder_of(killed), folder_of(living)
    workers = killed.workers()
    killed.process.kill()
    killed.process.wait()
    for pid in workers:
        os.kill(pid, signal.SIGKILL)
    # the kernel lets go of the lock when the last of them is really gone
    living.wait(lambda: not any(Path(f"/proc/{pid}/fd").exists() for pid in workers))
    start()
    assert not left.exists()
    assert used.exists()


def test_all_that_is_logged_is_json_without_a_terminal(start: Callable[..., Any]) -> None:
    server = start("--workers=2", "--log-level=debug")
    ask_until_all_answered(server, 2)
    server.request("GET", "/nothing?api_key=XYZZY")
    with server.send(**TICKS) as stream:
        assert stream.recv(20).startswith(b"HTTP/1.1 200 OK")
    server.wait(lambda: '"client_gone"' in server.log)
    server.end()
    lines = [json.loads(line) for line in server.log.splitlines()]
    loggers = {line["logger"] for line in lines}
    assert {"gunicorn.error", "caesar_server.access", "caesar_server.cli.startup"} <= loggers
    assert all({"time", "level", "process", "message"} <= set(line) for line in lines)
    (gone,) = [line for line in lines if line.get("outcome") == "client_gone"]
    assert (gone["backend"], gone["stream"], gone["status"]) == ("ticks", True, 200)
    (refused,) = [line for line in lines if line.get("status") == 404]
    assert (refused["path"], refused["code"]) == ("/nothing", "not_found")


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """Return both ends of a terminal: the person's and the program's."""
    ours, theirs = pty.openpty()
    yield ours, theirs
    os.close(ours)


def test_all_that_is_logged_is_text_on_a_terminal(
    terminal: tuple[int, int], tmp_path: Path
) -> None:
    ours, theirs = terminal
    command = [sys.executable, "-m", "caesar_server", "serve", "--port", "0"]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    text = ""
    try:
        while "Booting worker" not in text:
            text += os.read(ours, 65536).decode()
        url = re.search(r"Serving on (\S+) \(default backend: \w+\)\r\n", text)
        assert url, text
        with urllib.request.urlopen(f"{url[1]}/healthz", timeout=60) as reply:
            assert reply.status == 200
        while "GET /healthz 200" not in text:
            text += os.read(ours, 65536).decode()
    finally:
        process.terminate()
        process.wait(60)
    (line,) = [line for line in text.splitlines() if "GET /healthz" in line]
    assert re.fullmatch(
        r"\[[-0-9]+ [:0-9]+ [+0-9]+\] \[\d+\] \[INFO\] caesar_server\.access: GET /healthz 200 "
        r"request_id=[0-9a-f]{32} method=GET path=/healthz status=200 bytes=\d+ duration_ms=\S+ "
        r"time_to_first_byte_ms=\S+",
        line,
    )
    assert re.search(r"\] \[INFO\] gunicorn\.error: Listening at: http://", text)
