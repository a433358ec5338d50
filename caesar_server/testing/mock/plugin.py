"""The pytest plugin: fixtures for tests of programs that call the API.

pytest loads this module in every project of an environment in which the server is installed.  So
it imports nothing of the server until a fixture is used: that would cost each run its time, and
hide the server's own lines from coverage.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from caesar_server.testing.mock.naming import scope_name

if TYPE_CHECKING:
    from caesar_server.testing.mock.caesar_mock import CaesarMock
    from caesar_server.testing.mock.server import MockServer

MARKER = "caesar_mock"
#: What the marker may say, for the mock of one test.
_SETTABLE = ("strict", "seed", "fallback", "pacing", "faults")
#: The mock of a test, which may have asked for the fixture only while it ran.
_MOCK = pytest.StashKey["CaesarMock"]()
#: Whether the report of a test has its requests.
_TOLD = pytest.StashKey[bool]()
#: Of those that a mock of a whole session has got, so many are in the report.
_MOST_REQUESTS = 50


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line(
        "markers",
        f"{MARKER}(strict=, seed=, fallback=, pacing=, faults=, fixtures=): how the fixture "
        "caesar_mock answers in this test; fixtures is a path, or a list of paths, from the folder "
        "of the test's file",
    )


@pytest.fixture(scope="session")
def caesar_mock_server() -> Iterator[MockServer]:
    """A mock server of this process: with pytest-xdist each worker has its own.

    Override it to give the server other options::

        @pytest.fixture(scope="session")
        def caesar_mock_server():
            with mock_server(settings={"max_prompts": 4}) as server:
                yield server

    It may yield the :class:`MockServer` itself, too.
    """
    from caesar_server.testing.mock.server import mock_server

    server = mock_server()
    with server:
        yield server


@pytest.fixture
def caesar_mock(
    request: pytest.FixtureRequest, caesar_mock_server: MockServer | CaesarMock
) -> Iterator[CaesarMock]:
    """A mock for this test alone: a scope of the server with rules, requests and time of its own.

    At the end it raises what the test could not see: an assertion that failed in a reply function,
    an ``on(...)`` without a reply.  If the test fails, the report lists the requests.
    """
    from caesar_server.testing.mock.checking import as_paths

    options = _marked(request.node)
    node_id = request.node.nodeid
    name = caesar_mock_server.free_name(scope_name(node_id, node_id.rpartition("::")[2]))
    with caesar_mock_server.scope(name) as mock:
        fixtures = options.pop("fixtures", None)
        if fixtures is not None:
            folder = Path(request.node.path).parent
            mock.load(*(folder / path for path in as_paths("fixtures", fixtures)))
        for option, value in options.items():
            setattr(mock, option, value)
        request.node.stash[_MOCK] = mock
        yield mock


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, Any, None]:
    """Add the requests to the report of a test that failed: the client saw only its own side.

    So it is if another fixture fails, or the mock's own at its end; once is enough.
    """
    outcome = yield
    if call.when == "setup":  # some plugins run a test again
        item.stash[_TOLD] = False
    report = outcome.get_result()
    if report.failed and not item.stash.get(_TOLD, False):
        item.stash[_TOLD] = True
        for name, mock in _mocks_of(item):
            report.sections.append((f"Requests to {name}", _latest(mock)))


def _mocks_of(item: pytest.Item) -> Iterator[tuple[str, CaesarMock]]:
    """Yield the mocks of a test with their names: its fixtures, and what its instance holds."""
    loaded = sys.modules.get("caesar_server.testing.mock.caesar_mock")
    if loaded is None:
        return  # then there is none
    held: dict[str, Any] = dict(getattr(item, "funcargs", None) or {})
    held.update(getattr(getattr(item, "instance", None), "__dict__", {}))
    # what a server of one's own yields is seldom what is asked
    server = held.pop("caesar_mock_server", None)
    if _MOCK in item.stash:
        held["caesar_mock"] = item.stash[_MOCK]
    if isinstance(server, loaded.CaesarMock) and server.requests:
        held["caesar_mock_server"] = server
    told: set[int] = set()
    for name, value in held.items():
        # not isinstance(), which asks for __class__: a proxy would begin to work then, or fail
        if issubclass(type(value), loaded.CaesarMock) and id(value) not in told:
            told.add(id(value))
            yield name, value


def _latest(mock: CaesarMock) -> str:
    lines = mock.describe_requests().splitlines()
    left_out = len(lines) - _MOST_REQUESTS
    return "\n".join(
        [f"{left_out} earlier ones", *lines[-_MOST_REQUESTS:]] if left_out > 0 else lines
    )


def _marked(item: pytest.Item) -> dict[str, Any]:
    """Return what markers say, the nearest one first; refuse what none may say."""
    found: dict[str, Any] = {}
    for mark in item.iter_markers(MARKER):
        if mark.args:
            raise pytest.UsageError(f"{item.nodeid}: {MARKER} takes named values only: strict=True")
        _check_names(item, mark.kwargs)
        found = {**mark.kwargs, **found}
    return found


def _check_names(item: pytest.Item, given: Mapping[str, object]) -> None:
    known = (*_SETTABLE, "fixtures")
    unknown = [name for name in given if name not in known]
    if unknown:
        raise pytest.UsageError(
            f"{item.nodeid}: {MARKER} takes {', '.join(known)}, not {', '.join(unknown)}"
        )
