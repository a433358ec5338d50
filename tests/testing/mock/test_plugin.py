"""The pytest plugin, in suites of its own: fixtures, marker, report, what it leaves alone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

RunSuite = Callable[..., subprocess.CompletedProcess[str]]

#: The plugins of others take several seconds to load.
QUIETLY = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
ALONE = ("-p", "caesar_server.testing.mock.plugin")
#: Those of them that are installed for other tests.
OTHERS = ("langsmith_plugin", "schemathesis", "hypothesispytest", "anyio")
#: The tester's program: no SDK, so that a suite starts quickly.
ASK = """
import json
import urllib.request

import pytest


def ask(mock, prompt="Hi"):
    body = json.dumps({"model": "any", "prompt": prompt}).encode()
    url, headers = f"{mock.base_url}/compat/completions", {"Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=60) as answer:
        return json.load(answer)["choices"][0]["text"]
"""


@pytest.fixture
def run_suite(tmp_path: Path) -> RunSuite:
    """Run pytest on tests, in a folder and a process of its own; gives the finished process."""

    def run(
        code: str, *arguments: str, files: dict[str, str] | None = None, failed: bool = False
    ) -> subprocess.CompletedProcess[str]:
        for name, text in {**(files or {}), "test_it.py": ASK + code}.items():
            (tmp_path / name).write_text(text)
        command = ["-m", "pytest", "--strict-markers", "-W", "error", "-p", "no:cacheprovider"]
        result = subprocess.run(
            [sys.executable, *command, "--rootdir", tmp_path, *(arguments or ALONE)],
            cwd=tmp_path,
            env={name: value for name, value in os.environ.items() if name != "CI"} | QUIETLY,
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert result.returncode == (1 if failed else 0), result.stdout + result.stderr
        return result

    return run


def test_each_test_has_a_mock_of_its_own_on_one_server(run_suite):
    run_suite(
        """
seen = []

@pytest.mark.parametrize("text", ["one", "two"])
def test_it(caesar_mock, caesar_mock_server, text):
    assert caesar_mock.requests == () and caesar_mock.rules == ()
    caesar_mock.on().reply(text)
    assert ask(caesar_mock) == text
    assert caesar_mock.base_url.startswith(caesar_mock_server.base_url + "/t/test_it-" + text)
    caesar_mock.assert_requested(times=1)
    seen.append(caesar_mock_server)

def test_there_was_one_server():
    assert len(seen) == 2 and seen[0] is seen[1]
"""
    )


def test_the_marker_sets_the_mock_of_a_test_and_the_nearest_one_wins(run_suite):
    run_suite(
        """
from urllib.error import HTTPError

pytestmark = pytest.mark.caesar_mock(seed=3, fallback={"text": "Whatever"})

def test_the_module(caesar_mock):
    assert (caesar_mock.seed, ask(caesar_mock)) == (3, "Whatever")

@pytest.mark.caesar_mock(seed=4, strict=True)
def test_its_own(caesar_mock):
    assert caesar_mock.seed == 4
    with pytest.raises(HTTPError, match="404"):
        ask(caesar_mock)

@pytest.mark.caesar_mock(fixtures="answers.json")
def test_a_file(caesar_mock):
    assert ask(caesar_mock) == "from the file"

@pytest.mark.caesar_mock(fixtures=["answers.json", "others.json"])
def test_files(caesar_mock):
    assert [ask(caesar_mock), ask(caesar_mock, "Ho")] == ["from the file", "from another"]
""",
        files={
            "answers.json": '{"Hi": "from the file"}',
            "others.json": '{"Ho": "from another"}',
        },
    )


@pytest.mark.parametrize(
    ("marker", "words"),
    [
        ("sed=3", "not sed"),
        ("True", "named values only"),
        ("fallback='shrug'", "fallback"),
        ("fixtures=3", "fixtures: expected a path, or a list of paths, got 3"),
    ],
)
def test_a_wrong_marker_is_an_error_of_the_test(run_suite, marker, words):
    code = f"@pytest.mark.caesar_mock({marker})\ndef test_it(caesar_mock): pass\n"
    assert words in run_suite(code, failed=True).stdout


@pytest.mark.parametrize("asked", ["-p", "conftest"])
def test_it_is_asked_for_by_its_name(run_suite, asked):
    code = "def test_it(caesar_mock): assert ask(caesar_mock) == 'Hi'"
    conftest = "" if asked == "-p" else 'pytest_plugins = ["caesar_mock"]'
    arguments = ("-p", "caesar_mock") if asked == "-p" else ("-q",)
    run_suite(code, *arguments, files={"conftest.py": conftest})


@pytest.mark.skipif(sys.platform == "win32", reason="there is one clock of this kind alone")
def test_the_clock_of_the_process_may_stand_before_the_mock_is_loaded(run_suite):
    run_suite(
        """
import time

@pytest.fixture(scope="session", autouse=True)
def frozen():
    now = time.monotonic()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "monotonic", lambda: now)
        yield

def test_it(caesar_mock):
    caesar_mock.on().reply("Ho", pacing={"first_chunk_s": 0.01})
    assert ask(caesar_mock) == "Ho"
"""
    )


def test_ids_are_the_same_in_each_run(run_suite):
    code = """
def test_it(caesar_mock):
    ask(caesar_mock)
    print("ID", caesar_mock.requests[0].id, caesar_mock.wait_for(1, finished=True)[0].body)
"""
    first, second = (re.search("ID.*", run_suite(code, "-s", *ALONE).stdout) for _ in range(2))
    assert first is not None
    assert first[0] == second[0]


def test_a_failed_test_shows_the_requests(run_suite):
    result = run_suite(
        """
def test_it(caesar_mock):
    caesar_mock.on(prompt="Hi").named("greeting").reply("Hello")
    assert ask(caesar_mock) == "Good morning"

def test_another(caesar_mock):
    ask(caesar_mock, "unseen")
""",
        failed=True,
    )
    _, _, shown = result.stdout.partition("Requests to caesar_mock")
    assert "POST /compat/completions  'Hi'  200  rule 'greeting' (test_it.py:" in shown
    assert "unseen" not in shown


def test_a_fixture_that_fails_shows_the_requests(run_suite):
    result = run_suite(
        """
@pytest.fixture
def before(caesar_mock):
    ask(caesar_mock, "in the setup")
    raise ValueError

@pytest.fixture
def after(caesar_mock):
    yield
    raise ValueError

def test_setup(before):
    pass

def test_teardown(caesar_mock, after):
    ask(caesar_mock, "in the call")

def test_both(caesar_mock, after):
    ask(caesar_mock, "shown once")
    assert False
""",
        failed=True,
    )
    for prompt in ("in the setup", "in the call", "shown once"):
        assert result.stdout.count(f"POST /compat/completions  '{prompt}'  200") == 1


def test_mocks_of_other_fixtures_show_their_requests(run_suite):
    result = run_suite(
        """
from caesar_server.testing import CaesarMockMixin

import unittest

@pytest.fixture
def program(caesar_mock_server):
    with caesar_mock_server.scope("") as mock:
        yield mock

@pytest.fixture(scope="class")
def shared(caesar_mock_server):
    with caesar_mock_server.scope("shared") as mock:
        yield mock

@pytest.fixture
def renamed(caesar_mock):
    return caesar_mock

@pytest.fixture
def broken(shared):
    ask(shared, "of the class")
    raise ValueError

def test_of_a_program(program):
    ask(program, "of a program")
    assert False

def test_of_a_class(broken):
    pass

def test_of_two(renamed, program):
    ask(renamed, "of one"), ask(program, "of the other")
    assert False

def test_of_many(program):
    for number in range(60):
        ask(program, f"request {number}")
    assert False

class TestOfAnInstance(CaesarMockMixin, unittest.TestCase):
    def test_it(self):
        ask(self.caesar_mock, "of an instance")
        assert False

def test_without():
    assert False
""",
        failed=True,
    )
    told = result.stdout
    for prompt in ("a program", "the class", "one", "the other", "an instance"):
        assert told.count(f"POST /compat/completions  'of {prompt}'  200") == 1
    assert "Requests to shared" in told
    assert ("'request 9'" in told, "'request 10'" in told) == (False, True)
    assert "10 earlier ones" in told
    assert told.count("Requests to ") == 6


def test_what_other_fixtures_made_is_not_asked_what_it_is(run_suite):
    result = run_suite(
        """
class Proxy:
    @property
    def __class__(self):
        raise RuntimeError("nothing is behind it any more")

@pytest.fixture
def proxy():
    return Proxy()

def test_it(proxy, caesar_mock):
    ask(caesar_mock)
    assert False
""",
        failed=True,
    )
    assert "Requests to caesar_mock" in result.stdout
    assert "INTERNALERROR" not in result.stdout + result.stderr


def test_a_server_of_its_own_shows_requests_only_if_it_got_some(run_suite):
    conftest = """
import pytest
from caesar_server.testing import mock_server

@pytest.fixture(scope="session")
def caesar_mock_server():
    with mock_server() as server:
        yield server
"""
    code = """
def test_other(caesar_mock):
    assert False

def test_asked(caesar_mock_server):
    ask(caesar_mock_server, "the server")
    assert False
"""
    told = run_suite(code, files={"conftest.py": conftest}, failed=True).stdout
    assert told.count("Requests to caesar_mock_server") == 1
    assert "POST /compat/completions  'the server'  200" in told


def test_what_the_test_cannot_see_is_an_error_at_its_end(run_suite):
    result = run_suite(
        """
from urllib.error import HTTPError

def refuse(call):
    assert call.prompt == "Hello", "that was not agreed"

def test_an_assertion_in_a_function(caesar_mock):
    caesar_mock.on().reply(refuse)
    with pytest.raises(HTTPError):
        ask(caesar_mock)

def test_nothing_to_do(caesar_mock):
    caesar_mock.on(prompt="Hi")
""",
        failed=True,
    )
    assert "2 passed, 2 errors" in result.stdout
    assert "that was not agreed" in result.stdout
    assert re.search(r"says when, but not what: test_it\.py:\d+", result.stdout)


@pytest.mark.parametrize("name", ["as server", ""], ids=["mock", "server"])
def test_the_server_can_be_given_other_options(run_suite, name):
    conftest = f"""
import pytest
from caesar_server.testing import mock_server

@pytest.fixture(scope="session")
def caesar_mock_server():
    server = mock_server(seed=5, fallback={{"text": "from the conftest"}})
    with server {name}:
        yield server
"""
    code = """
@pytest.mark.parametrize("time", [1, 2])
def test_it(caesar_mock, time):
    assert (caesar_mock.seed, ask(caesar_mock)) == (5, "from the conftest")
    caesar_mock.assert_requested(times=1)

def test_the_servers_own_scope(caesar_mock, caesar_mock_server):
    with caesar_mock_server.scope("") as mock:
        assert caesar_mock.base_url.startswith(mock.base_url + "/t/test_the")
"""
    run_suite(code, files={"conftest.py": conftest})


def test_one_base_url_for_the_whole_session(run_suite):
    run_suite(
        """
@pytest.fixture
def mock(caesar_mock_server):
    with caesar_mock_server.scope("") as mock:
        yield mock

@pytest.mark.parametrize("text", ["one", "two"])
def test_it(mock, caesar_mock_server, text):
    assert mock.base_url == caesar_mock_server.base_url
    assert mock.rules == ()
    mock.on().reply(text)
    assert ask(mock) == text
    mock.assert_requested(times=1)
"""
    )


QUIET = """
import sys

def loaded():
    return sorted(name for name in sys.modules if name.startswith("caesar_server."))

def test_it():
    own = {"caesar_server.testing", "caesar_server.testing.mock",
           "caesar_server.testing.mock.naming", "caesar_server.testing.mock.plugin"}
    assert set(loaded()) <= own
    assert "flask" not in sys.modules
"""


def test_a_suite_without_the_fixture_does_not_load_the_server(run_suite):
    run_suite(QUIET)


@pytest.mark.slow
def test_pytest_finds_it_by_itself_and_it_can_be_switched_off(run_suite, monkeypatch):
    monkeypatch.setitem(QUIETLY, "PYTEST_DISABLE_PLUGIN_AUTOLOAD", "")
    others = [part for name in OTHERS for part in ("-p", f"no:{name}")]
    code = "def test_it(caesar_mock): assert ask(caesar_mock) == 'Hi'\n"
    run_suite(code, *others)
    result = run_suite(code, *others, "-p", "no:caesar_mock", failed=True)
    assert "fixture 'caesar_mock' not found" in result.stdout


def test_markers_are_described(run_suite):
    assert "@pytest.mark.caesar_mock(strict=" in run_suite("", "--markers", *ALONE).stdout
