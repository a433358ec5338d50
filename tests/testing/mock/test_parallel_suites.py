"""200 tests at once under pytest-xdist: on a server for each worker, and on one for all of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

COUNT = 200
WORKERS = 4
#: The plugins of others take several seconds to load, in each worker.
PLUGINS = ("-p", "xdist", "-p", "caesar_server.testing.mock.plugin")
QUIETLY = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}

BY_FIXTURE = """
import json
import urllib.error
import urllib.request

import pytest

def ask(url):
    body = json.dumps({"model": "any", "prompt": "Hi"}).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/compat/completions", body, headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)["choices"][0]["text"]

@pytest.mark.parametrize("number", range(COUNT))
def test_it(caesar_mock, number):
    caesar_mock.on(prompt="Hi").fail_first(1, status=503).reply(f"I am {number}")
    with pytest.raises(urllib.error.HTTPError, match="503"):
        ask(caesar_mock.base_url)
    assert ask(caesar_mock.base_url) == f"I am {number}"
    caesar_mock.assert_requested(times=2)
"""

ON_ONE_SERVER = """
import json
import os
import urllib.error
import urllib.request

import pytest

SERVER = os.environ["MOCK_SERVER"]

def call(method, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(SERVER + path, data, headers, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read() or b"null")

@pytest.mark.parametrize("number", range(COUNT))
def test_it(number):
    own, asked = f"/t/test-{number}", {"model": "any", "prompt": "Hi"}
    when = {"prompt": "Hi"}
    call("POST", f"{own}/_mock/rules", {"when": when, "reply": f"I am {number}"})
    fault = {"kind": "status", "status": 503}
    call("POST", f"{own}/_mock/rules", {"when": when, "times": 1, "fault": fault})
    with pytest.raises(urllib.error.HTTPError, match="503"):
        call("POST", f"{own}/compat/completions", asked)
    answer = call("POST", f"{own}/compat/completions", asked)
    assert answer["choices"][0]["text"] == f"I am {number}"
    assert len(call("GET", f"{own}/_mock/journal")["entries"]) == 2
"""


def run_in_parallel(folder: Path, code: str, **variables: str) -> None:
    (folder / "test_it.py").write_text(code.replace("COUNT", str(COUNT)))
    result = subprocess.run(
        [sys.executable, "-m", "pytest", *PLUGINS, "-q", "-n", str(WORKERS)],
        cwd=folder,
        env={**os.environ, **QUIETLY, **variables},
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"{COUNT} passed" in result.stdout


def test_a_server_for_each_worker(tmp_path):
    run_in_parallel(tmp_path, BY_FIXTURE)


def test_one_server_for_all(tmp_path, serve):
    def command(port: int) -> list[str]:
        return [sys.executable, "-m", "caesar_server", "mock", "--port", str(port)]

    with serve(command, tmp_path) as port:
        run_in_parallel(tmp_path, ON_ONE_SERVER, MOCK_SERVER=f"http://127.0.0.1:{port}")
