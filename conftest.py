"""What holds for every test of this repository, the server's and the backends'.

* Under ``CI=true`` a skipped test fails: what a test needs must be installed there.
* A test ends its threads: see :func:`no_thread_left`.
* Settings, keys and proxies of whoever runs the tests do not reach them.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

#: How long a thread that was told to end may take, in seconds.
END_WITHIN_S = 5.0
#: What the names of the server's threads begin with, and those of caesar_server.testing.
OWN_THREADS = ("caesar-", "live-")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--dist-dir",
        type=Path,
        metavar="DIR",
        help="let tests/release look at the packages in DIR instead of building them",
    )


def pytest_configure() -> None:
    for name in list(os.environ):
        if name.startswith(("CAESAR_SERVER_", "OPENAI_")) or name.lower().endswith("_proxy"):
            del os.environ[name]
    # where nothing can be: the file of keys is looked for below it
    os.environ["XDG_CONFIG_HOME"] = f"{os.devnull}/none"
    # nor are jobs kept where those of the person who runs the tests are
    os.environ["XDG_STATE_HOME"] = f"{os.devnull}/none"
    os.environ["CAESAR_SERVER_STORE"] = "memory"


def _fail_if_skipped(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turn a skip into a failure; an expected failure (xfail) is none."""
    if os.environ.get("CI") == "true" and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid}: a skip counts as a failure under CI=true: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _fail_if_skipped(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _fail_if_skipped(report)
    return report


def _is_own(thread: threading.Thread) -> bool:
    return thread.name.startswith(OWN_THREADS)


def _end(threads: set[threading.Thread]) -> list[str]:
    """Wait for ``threads`` and return the names of those that go on all the same."""
    deadline = time.monotonic() + END_WITHIN_S
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return sorted(thread.name for thread in threads if thread.is_alive())


def _running() -> set[threading.Thread]:
    return set(threading.enumerate()) - {threading.current_thread()}


@pytest.fixture(scope="session", autouse=True)
def no_server_thread_left() -> Iterator[None]:
    """Fail the session if threads of the server outlive every fixture."""
    yield
    left = _end({thread for thread in _running() if _is_own(thread)})
    if left:
        pytest.fail(f"threads of the server left at the end: {', '.join(left)}")


@pytest.fixture(autouse=True)
def no_thread_left() -> Iterator[None]:
    """Fail a test that leaves a thread of the server, or one that would keep Python from ending.

    While a server of a module's or the session's fixture runs, its pool may grow during any test;
    its threads are judged at the end, by :func:`no_server_thread_left`.
    """
    before = _running()
    shared_server = any(map(_is_own, before))
    yield
    new = _running() - before
    if shared_server:
        new = {thread for thread in new if not _is_own(thread)}
    left = _end({thread for thread in new if _is_own(thread) or not thread.daemon})
    if left:
        pytest.fail(f"threads left by this test: {', '.join(left)}")
