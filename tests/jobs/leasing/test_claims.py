"""Which jobs a process sees that nobody runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from caesar_server.contract import Completed, CompletionRequest
from caesar_server.jobs.context import NoObserver
from caesar_server.jobs.leasing.claims import Claims
from caesar_server.registry import Registry
from caesar_server.store.base import Job
from caesar_server.store.memory import MemoryStore
from caesar_server.testing import FakeClock, scripted_backend


@pytest.mark.parametrize(
    ("fields", "waits"),
    [
        ({"owner": "gone", "attempt": 1}, True),
        ({"owner": "gone", "attempt": 1, "backend": "another"}, False),
        ({"owner": "alive", "attempt": 1}, False),
        ({"owner": None, "attempt": 1}, True),
        ({"owner": None, "detached": False}, False),
        # they are ended
        ({"owner": "gone", "attempt": 3}, False),
        ({"owner": "gone", "attempt": 1, "detached": False}, False),
    ],
)
def test_what_waits_is_seen_without_a_claim(
    store: MemoryStore,
    clock: FakeClock,
    make_registry: Callable[..., Registry],
    fields: dict[str, Any],
    waits: bool,
) -> None:
    registry = make_registry({"here": scripted_backend([Completed()], durable=True)})
    claims = Claims(
        store, registry, clock, owner=lambda: "me", max_attempts=3, observer=NoObserver()
    )
    values = {"detached": True, "durable": True, "backend": "here", **fields}
    job = Job(
        id="job", created_at=1.0, model="m", request=CompletionRequest(prompts=("p",)), **values
    )
    store.create(job)
    store.renew("alive", 60)
    claims.end_lost()
    assert claims.some_wait() == waits
    if waits:
        assert store.job("job") == job
