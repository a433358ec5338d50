"""A file of jobs that cannot be written: clients get a clear error, and nothing else is lost."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from caesar_server.testing import SseClient

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

#: The most that the file may grow to.
BYTES = 3_000_000
#: A client's patience.
SOON_S = 15.0
UNAVAILABLE = "The server cannot store jobs now; try again in a moment"
NOBODY = 65534
#: Runs a command as a user who may read every file and write only its own.
AS_NOBODY = (
    *("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"),
    *("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"),
)


def ask(farm: Any, prompt: str) -> tuple[int, Any]:
    """Ask once for a JSON answer; return status and body, or 0 if none comes soon."""
    body = {"model": "finding", "prompt": prompt}
    client = SseClient(farm.server_url, timeout_s=SOON_S)
    try:
        with client.post("/compat/completions", body) as response:
            return response.status, response.json()
    except TimeoutError:
        return 0, None


def readiness(farm: Any) -> int:
    with farm.client.get("/readyz") as response:
        return int(response.status)


def check_unavailable(status: int, body: Any) -> None:
    assert (status, body["error"]["code"]) == (503, "store_unavailable"), body
    assert body["error"]["message"] == UNAVAILABLE


def limit(farm: Any, bytes_: int) -> None:
    """Set how large files of the server's processes may become."""
    for pid in farm.server_pids():
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (bytes_, resource.RLIM_INFINITY))


def test_a_full_disk_is_told_and_nothing_acknowledged_is_lost(
    make_farm: Callable[..., Any], tmp_path: Path
) -> None:
    farm = make_farm(f"sqlite:///{tmp_path / 'jobs.sqlite3'}")
    farm.serve()
    limit(farm, BYTES)
    answers = {}
    while True:
        prompt = f"job {len(answers)} " + "x" * 10_000
        status, body = ask(farm, prompt)
        if status != 200:
            break
        answers[body["id"]] = body["choices"][0]["text"]
    assert len(answers) > 3
    # the job was stored or was not; if it was, its run goes on when there is room again
    if status:
        check_unavailable(status, body)
    check_unavailable(*ask(farm, "another " + "x" * 500_000))
    assert "has no room" in farm.log or "the disk is full" in farm.log
    limit(farm, 20 * BYTES)
    for job in farm.wait_until_ended():
        farm.check_whole(job)
        if job.id in answers:
            assert answers.pop(job.id) == job.checkpoint["text"]
    assert answers == {}
    assert ask(farm, "one more")[0] == 200


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may look into."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        path.chmod(0o755)
        yield path


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a server as another user")
@pytest.mark.parametrize(("command", "mode"), [("serve", 0o444), ("worker", 0o600)])
def test_a_file_of_another_user_is_refused_at_the_start(
    make_farm: Callable[..., Any], open_folder: Path, command: str, mode: int
) -> None:
    path = open_folder / "jobs.sqlite3"
    farm = make_farm(f"sqlite:///{path}", prefix=AS_NOBODY)
    assert farm.store.jobs() == []
    path.chmod(mode)
    done = farm.run(command)
    assert done.returncode == 2, done.stderr
    assert f"store: the file {path}" in done.stderr
    assert "right to write" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a server as another user")
def test_a_file_that_becomes_read_only_is_told(
    make_farm: Callable[..., Any], open_folder: Path
) -> None:
    """What is open stays so; a process that comes later may only read."""
    path = open_folder / "jobs.sqlite3"
    os.chown(open_folder, NOBODY, NOBODY)
    farm = make_farm(f"sqlite:///{path}", prefix=AS_NOBODY)
    farm.serve(workers=1)
    status, body = ask(farm, "job")
    assert status == 200
    for file in open_folder.iterdir():
        os.chown(file, 0, 0)
        file.chmod(0o444)
    open_folder.chmod(0o555)
    os.kill(farm.server_pids()[-1], signal.SIGKILL)
    farm.wait_for(lambda: farm.log.count("Booting worker") >= 2)
    check_unavailable(*ask(farm, "another job"))
    assert "right to write" in farm.log
    assert readiness(farm) == 503
    open_folder.chmod(0o755)
    for file in open_folder.iterdir():
        os.chown(file, NOBODY, NOBODY)
        file.chmod(0o600)
    os.kill(farm.server_pids()[-1], signal.SIGKILL)
    farm.wait_for(lambda: farm.log.count("Booting worker") >= 3)
    farm.wait_for(lambda: ask(farm, "a third job")[0] == 200)
    assert readiness(farm) == 200
    assert farm.store.job(body["id"]).checkpoint["text"] == body["choices"][0]["text"]


def test_a_damaged_file_is_told(make_farm: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "jobs.sqlite3"
    farm = make_farm(f"sqlite:///{path}")
    farm.serve(workers=1)
    for number in range(20):
        assert ask(farm, f"job {number}")[0] == 200
    farm.end()
    kept = tmp_path / "kept"
    shutil.copy(path, kept)
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(random.Random(1).randbytes(size - 4096))
    damaged = make_farm(farm.url)
    try:
        damaged.serve(workers=1)
    except AssertionError:
        pass
    else:
        check_unavailable(*ask(damaged, "job"))
        damaged.end()
    assert f"the file {path}: it is damaged" in damaged.log
    assert "Traceback" not in damaged.log
    shutil.copy(kept, path)
    again = make_farm(farm.url)
    again.serve(workers=1)
    assert len(again.jobs()) == 20
    assert ask(again, "job")[0] == 200
