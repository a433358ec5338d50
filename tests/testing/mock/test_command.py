"""``caesar-server mock`` as a program: what it prints, answers and refuses, and how it ends."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from caesar_server.cli import main

WITHIN_S = 60


class Mock:
    """The program, once it has printed its line."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self.process = process
        self._log = log
        assert process.stdout is not None
        self.line = process.stdout.readline()
        assert self.line, self.log

    @property
    def log(self) -> str:
        return self._log.read_text()

    @property
    def port(self) -> int:
        found = re.search(r"(\d+)\n$", self.line)
        assert found, self.line
        return int(found[1])

    def call(self, path: str, body: object = None, method: str | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            data,
            {"Content-Type": "application/json", "Authorization": "Bearer any"},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=WITHIN_S) as answer:
            return json.loads(answer.read() or b"null")

    def ask(self, prompt: str, scope: str = "") -> str:
        answer = self.call(f"{scope}/compat/completions", {"model": "any", "prompt": prompt})
        return answer["choices"][0]["text"]

    def end(self) -> tuple[int, str]:
        """Return the exit status, and what else was printed on the standard output."""
        rest, _ = self.process.communicate(timeout=WITHIN_S)
        return self.process.returncode, rest


Start = Callable[..., Mock]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start ``caesar-server mock`` with these flags, in an empty folder."""
    processes = []

    def begin(*flags: str, cwd: Path = tmp_path, closed: str = "", **variables: str) -> Mock:
        log = tmp_path / f"log-{len(processes)}"
        with log.open("w") as stderr:
            process = subprocess.Popen(
                [
                    *("sh", "-c", f'exec "$@" {closed}', "sh"),
                    *(sys.executable, "-m", "caesar_server", "mock", "--port", "0", *flags),
                ],
                cwd=cwd,
                env={**os.environ, **variables},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                start_new_session=True,
            )
        processes.append(process)
        return Mock(process, log)

    yield begin
    for process in processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdin.close()
        process.stdout.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_prints_one_line_when_it_is_ready_and_ends_at_a_signal(start, number):
    mock = start("--print-port")
    assert re.fullmatch(r"\d+\n", mock.line)
    assert mock.ask("Hi") == "Hi"
    mock.process.send_signal(number)
    assert mock.end() == (0, "")
    assert "Traceback" not in mock.log


@pytest.mark.parametrize("closed", ["2>&-", "<&- 2>&-"])
def test_streams_that_are_closed_are_not_missed(start, closed):
    mock = start(closed=closed)
    assert mock.ask("Hi") == "Hi"
    mock.process.send_signal(signal.SIGTERM)
    assert mock.end() == (0, "")


def test_without_the_flag_the_line_is_for_people(start):
    assert re.fullmatch(r"Ready on http://127\.0\.0\.1:\d+\n", start().line)


def test_what_hangs_does_not_keep_it_from_ending(start):
    mock = start()
    mock.call("/_mock/rules", {"faults": [{"kind": "hang"}]})
    client = http.client.HTTPConnection("127.0.0.1", mock.port, timeout=WITHIN_S)
    headers = {"Content-Type": "application/json"}
    client.request("POST", "/compat/completions", '{"model": "any", "prompt": "Hi"}', headers)
    while not mock.call("/_mock/journal")["entries"]:
        continue  # each look is a request of its own, so this waits
    mock.process.terminate()
    assert mock.end()[0] == 0
    client.close()


def test_a_hangup_takes_no_rule_away(start):
    mock = start()
    mock.call("/_mock/rules", {"when": {"prompt": "Hi"}, "reply": "from the rule"})
    mock.process.send_signal(signal.SIGHUP)
    while "SIGHUP changes nothing in a mock" not in mock.log:
        assert mock.ask("Hi") == "from the rule"
    assert mock.ask("Hi") == "from the rule"
    mock.process.terminate()
    assert mock.end()[0] == 0


def test_it_ends_with_its_standard_input(start):
    mock = start("--until-stdin-ends")
    assert mock.ask("Hi") == "Hi"
    mock.process.stdin.close()
    assert mock.process.wait(WITHIN_S) == 0


def test_fixtures_strictness_and_seed(start, tmp_path):
    (tmp_path / "answers").mkdir()
    (tmp_path / "answers" / "one.json").write_text('{"Hi": "from the file"}')
    mock = start("--fixtures", "answers", "--strict", "--seed", "7")
    for scope in ("", "/t/blue"):
        assert mock.ask("Hi", scope) == "from the file"
        with pytest.raises(urllib.error.HTTPError) as caught:
            mock.ask("Ho", scope)
        error = json.load(caught.value)["error"]
        assert (caught.value.code, error["code"]) == (404, "no_fixture_match")


def test_rules_change_with_their_file(start, tmp_path):
    path = tmp_path / "answers.json"
    path.write_text('{"Hi": "first"}')
    mock = start("--fixtures", str(path))
    assert mock.ask("Hi") == "first"
    path.write_text('{"Hi": "second"}')
    while (told := mock.ask("Hi")) == "first":
        continue  # it looks five times a second, when it is asked
    assert told == "second"


def test_a_worker_of_greenlets(start):
    pytest.importorskip("gevent")
    mock = start("--worker-class", "gevent")
    assert mock.ask("Hi") == "Hi"
    mock.process.terminate()
    assert mock.end()[0] == 0


def test_files_and_keys_of_the_user_do_not_matter(start, tmp_path):
    keys = tmp_path / "home" / "caesar-server"
    keys.mkdir(parents=True)
    path = str(keys / "keys.json")
    assert CliRunner().invoke(main, ["keys", "create", "--keys-file", path]).exit_code == 0
    (tmp_path / "caesar-server.toml").write_text('default_backend = "nobody"\n')
    mock = start(XDG_CONFIG_HOME=str(tmp_path / "home"))
    assert mock.ask("Hi") == "Hi"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--workers", "2"], ["command line: workers: a mock is one process", "--workers 1"]),
        (["--max-requests", "5"], ["max_requests", "--max-requests 0"]),
        (["--host", "0.0.0.0"], ["--insecure"]),
        (["--fixtures", "nowhere.json"], ["nowhere.json"]),
        (["--until-stdin-ends", "--worker-class", "gevent"], ["needs gthread"]),
        (["--fallback", "shrug"], ["mock_fallback", "echo"]),
    ],
)
def test_what_it_refuses_before_it_listens(flags, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["mock", "--port", "0", *flags])
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    for word in words:
        assert word in result.stderr


def test_its_help_tells_its_own_defaults():
    def told(command: str) -> str:
        return " ".join(CliRunner().invoke(main, [command, "--help"]).output.split())

    assert "at once. [8 to 4096; default: 256]" in told("mock")
    assert "told to stop. [1 to 3600; s; default: 1.0]" in told("mock")
    assert "a URL; unset: memory." in told("mock")
    assert "API keys; unset: none." in told("mock")
    assert "at once. [8 to 4096; default: 64]" in told("serve")
