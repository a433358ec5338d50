"""What holds for every test of this repository, the server's and the backends'.

* Under ``CI=true`` a skipped test fails: what a test needs must be installed there.
* A test ends its threads: see :func:`no_thread_left`.
* Tests may run in several processes, in any order: ``make test``.
* Settings, keys and proxies of whoever runs the tests do not reach them.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

#: The most processes that share the tests; each takes a while to collect them.
MAX_PROCESSES = 8
#: The folders whose tests take longest, in this order.
LONG = (
    "tests/release",
    "tests/crash",
    "tests/live",
    "tests/cli",
    "tests/ops",
    "tests/docs",
    "tests/examples",
    "tests/files",
    "tests/clients",
)
#: How long a thread that was told to end may take, in seconds.
END_WITHIN_S = 60.0
#: What the names of the server's threads begin with, and those of caesar_server.testing.
OWN_THREADS = ("caesar-", "live-")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--dist-dir",
        type=Path,
        metavar="DIR",
        help="let tests/release look at the packages in DIR instead of building them",
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """Return how many processes ``-n auto`` means: two a core, as tests of servers mostly wait.

    None if the variable of pytest-xdist says it.
    """
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    return min(MAX_PROCESSES, 2 * (os.cpu_count() or 1))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let the folders whose tests take longest come first in each process, for an even end.

    ``--dist worksteal`` gives each process an equal part of the list, in its order; who has done
    its part takes from the end of another's.
    """
    worker = getattr(config, "workerinput", None)
    if worker is None:
        return
    parts: list[list[pytest.Item]] = [[] for _ in range(worker["workercount"])]
    for number, folder in enumerate(LONG):
        # back and forth, so that the first process has not always the longer one
        turn, place = divmod(number, len(parts))
        own = parts[place if turn % 2 == 0 else -1 - place]
        own += [item for item in items if item.path.is_relative_to(config.rootpath / folder)]
    long = {id(item) for part in parts for item in part}
    rest = [item for item in items if id(item) not in long]
    ordered: list[pytest.Item] = []
    for number, part in enumerate(parts, start=1):
        count = max(0, len(items) * number // len(parts) - len(ordered) - len(part))
        ordered += part + rest[:count]
        del rest[:count]
    items[:] = ordered + rest


def pytest_configure() -> None:
    # speed is asserted nowhere, least of all where processes share the cores
    settings.register_profile(
        "shared-cores",
        settings(
            deadline=None,
            suppress_health_check={*settings().suppress_health_check, HealthCheck.too_slow},
        ),
    )
    settings.load_profile("shared-cores")
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


@pytest.fixture
def threads_before() -> set[threading.Thread]:
    """The threads that ran before this test and its fixtures."""
    return _running()


@pytest.fixture
def new_threads(
    threads_before: set[threading.Thread],
) -> Callable[[str], list[threading.Thread]]:
    """Return the threads of this test whose names begin with a text.

    Tests run in any order, so a server that others share may have such threads as well.
    """

    def new(name: str) -> list[threading.Thread]:
        return [one for one in _running() - threads_before if one.name.startswith(name)]

    return new


@pytest.fixture(autouse=True)
def no_thread_left(threads_before: set[threading.Thread]) -> Iterator[None]:
    """Fail a test that leaves a thread of the server, or one that would keep Python from ending.

    While a server of a module's or the session's fixture runs, its pool may grow during any test;
    its threads are judged at the end, by :func:`no_server_thread_left`.
    """
    shared_server = any(map(_is_own, threads_before))
    yield
    new = _running() - threads_before
    if shared_server:
        new = {thread for thread in new if not _is_own(thread)}
    left = _end({thread for thread in new if _is_own(thread) or not thread.daemon})
    if left:
        pytest.fail(f"threads left by this test: {', '.join(left)}")
