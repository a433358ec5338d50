"""The checks of the root conftest.py, on a small suite of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

RunSuite = Callable[..., subprocess.CompletedProcess[str]]

#: The plugins of others take several seconds to load.
QUIETLY = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


@pytest.fixture
def run_suite(root: Path, tmp_path: Path) -> RunSuite:
    conftest = (root / "conftest.py").read_text()
    impatient = conftest.replace("END_WITHIN_S = 60.0", "END_WITHIN_S = 0.3")
    assert impatient != conftest
    (tmp_path / "conftest.py").write_text(impatient)

    def run(code: str, **env: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "test_it.py").write_text(code)
        clean = {name: value for name, value in os.environ.items() if name != "CI"}
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", tmp_path],
            cwd=tmp_path,
            env=clean | env | QUIETLY,
            capture_output=True,
            text=True,
            timeout=60,
        )

    return run


THREAD = """
import threading
import pytest

@pytest.fixture(scope="module")
def stop():
    event = threading.Event()
    yield event
    event.set()

def test_it(stop):
    threading.Thread(target=stop.wait, name={name!r}, daemon={daemon}).start()
    {end}
"""


@pytest.mark.parametrize(("name", "daemon"), [("caesar-pool-1", True), ("other", False)])
def test_a_leaked_thread_fails_its_test(run_suite: RunSuite, name: str, daemon: bool) -> None:
    result = run_suite(THREAD.format(name=name, daemon=daemon, end=""))
    assert result.returncode == 1
    assert f"threads left by this test: {name}" in result.stdout


@pytest.mark.parametrize(("name", "daemon"), [("caesar-pool-1", True), ("other", False)])
def test_a_thread_that_ends_is_none(run_suite: RunSuite, name: str, daemon: bool) -> None:
    result = run_suite(THREAD.format(name=name, daemon=daemon, end="stop.set()"))
    assert result.returncode == 0, result.stdout


SHARED = """
import threading
import pytest

stop = threading.Event()

def start(name):
    threading.Thread(target=stop.wait, name=name, daemon=True).start()

@pytest.fixture(scope="module")
def server():
    start("caesar-server")
    yield
    {end}

def test_it(server):
    start("caesar-pool-1")
"""


@pytest.mark.parametrize(("end", "code"), [("stop.set()", 0), ("pass", 1)])
def test_a_shared_server_is_judged_at_the_end(run_suite: RunSuite, end: str, code: int) -> None:
    result = run_suite(SHARED.format(end=end))
    assert result.returncode == code, result.stdout
    left = "threads of the server left at the end: caesar-pool-1, caesar-server"
    assert (left in result.stdout) == bool(code)


SKIPS = {
    "mark": "import pytest\n@pytest.mark.skip(reason='no tool')\ndef test_it(): pass\n",
    "call": "import pytest\ndef test_it(): pytest.skip('no tool')\n",
    "module": "import pytest\npytest.skip('no tool', allow_module_level=True)\n",
}


@pytest.mark.parametrize("kind", SKIPS)
def test_a_skip_fails_under_ci_and_only_there(run_suite: RunSuite, kind: str) -> None:
    assert run_suite(SKIPS[kind]).returncode in (0, 5)  # 5: nothing left to run
    result = run_suite(SKIPS[kind], CI="true")
    assert result.returncode != 0
    assert result.returncode != 5
    assert "a skip counts as a failure under CI=true: " in result.stdout
    assert "no tool" in result.stdout


def test_an_expected_failure_is_no_skip(run_suite: RunSuite) -> None:
    code = "import pytest\n@pytest.mark.xfail\ndef test_it(): raise ValueError\n"
    result = run_suite(code, CI="true")
    assert result.returncode == 0, result.stdout


def test_settings_of_the_person_who_runs_the_tests_do_not_reach_them(run_suite: RunSuite) -> None:
    code = "import os\ndef test_it(): assert 'CAESAR_SERVER_PORT' not in os.environ\n"
    assert run_suite(code, CAESAR_SERVER_PORT="1").returncode == 0
