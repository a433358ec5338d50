"""What tests of the server, of its plugins and of its clients are written with.

The names are loaded when they are first used, so that importing this package costs nothing and
needs neither Flask nor pytest.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from caesar_server.mock.matching import (
        absent,
        anything,
        contains,
        exact,
        glob,
        predicate,
        regex,
    )
    from caesar_server.testing.clock import FakeClock
    from caesar_server.testing.conformance import check_backend
    from caesar_server.testing.durable import DurableBackend, durable_backend
    from caesar_server.testing.live import LiveServer
    from caesar_server.testing.mock.caesar_mock import CaesarMock
    from caesar_server.testing.mock.server import MockServer, mock_server
    from caesar_server.testing.mock.unittest_case import CaesarMockMixin
    from caesar_server.testing.pytest_conformance import BackendConformance
    from caesar_server.testing.runs import collect_events, make_context
    from caesar_server.testing.scripted import Gate, Script, ScriptedBackend, scripted_backend
    from caesar_server.testing.sse_client import (
        SseClient,
        SseResponse,
        decode_events,
        decode_frames,
    )

__all__ = [
    "BackendConformance",
    "CaesarMock",
    "CaesarMockMixin",
    "DurableBackend",
    "FakeClock",
    "Gate",
    "LiveServer",
    "MockServer",
    "Script",
    "ScriptedBackend",
    "SseClient",
    "SseResponse",
    "absent",
    "anything",
    "check_backend",
    "collect_events",
    "contains",
    "decode_events",
    "decode_frames",
    "durable_backend",
    "exact",
    "glob",
    "make_context",
    "mock_server",
    "predicate",
    "regex",
    "scripted_backend",
]

_HOMES = {
    "BackendConformance": "pytest_conformance",
    "CaesarMock": "mock.caesar_mock",
    "CaesarMockMixin": "mock.unittest_case",
    "DurableBackend": "durable",
    "FakeClock": "clock",
    "Gate": "scripted",
    "LiveServer": "live",
    "MockServer": "mock.server",
    "Script": "scripted",
    "ScriptedBackend": "scripted",
    "SseClient": "sse_client",
    "SseResponse": "sse_client",
    "absent": "mock.matchers",
    "anything": "mock.matchers",
    "check_backend": "conformance",
    "collect_events": "runs",
    "contains": "mock.matchers",
    "decode_events": "sse_client",
    "decode_frames": "sse_client",
    "durable_backend": "durable",
    "exact": "mock.matchers",
    "glob": "mock.matchers",
    "make_context": "runs",
    "mock_server": "mock.server",
    "predicate": "mock.matchers",
    "regex": "mock.matchers",
    "scripted_backend": "scripted",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return list(__all__)
