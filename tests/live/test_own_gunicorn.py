"""A gunicorn of the host's own: what the manual says to type works on a new machine."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

DEADLINE_S = 60.0
PAGE = Path(__file__).parents[2] / "docs" / "hosting.rst"


def commands_of_the_page() -> list[list[str]]:
    """Return the commands that start the app by its factory."""
    (block,) = re.findall(r"and the factory needs neither::\n\n((?: .*\n)+)", PAGE.read_text())
    lines = block.replace("\\\n", " ").splitlines()
    return [shlex.split(line) for line in lines]


def status_of(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=DEADLINE_S) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_the_factory_answers_on_a_new_machine(tmp_path: Path) -> None:
    scripts = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    # the tests' own variable keeps jobs in memory; here they go where they go by default
    env = {**os.environ, "CAESAR_SERVER_STORE": "", "XDG_STATE_HOME": str(tmp_path)}
    env["PATH"] = scripts
    *before, gunicorn = commands_of_the_page()
    for command in before:
        subprocess.run(command, cwd=tmp_path, env=env, check=True)
    log_path = tmp_path / "log"
    with log_path.open("wb") as log:
        server = subprocess.Popen(
            [*gunicorn, "--bind", "127.0.0.1:0"], cwd=tmp_path, env=env, stdout=log, stderr=log
        )
    try:
        deadline = time.monotonic() + DEADLINE_S
        while not (found := re.search(r"Listening at: (\S+)", log_path.read_text())):
            assert server.poll() is None, log_path.read_text()
            assert time.monotonic() < deadline, log_path.read_text()
        # waits until the worker is there, or is refused once the server has given up
        while (status := status_of(f"{found[1]}/readyz")) != 200:
            # on a busy machine a first look may take longer than it is waited for
            assert status == 503
            assert time.monotonic() < deadline, log_path.read_text()
    finally:
        server.terminate()
        assert server.wait(DEADLINE_S) == 0, log_path.read_text()
