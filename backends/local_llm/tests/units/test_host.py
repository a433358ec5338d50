"""A model's life, with a clock that is turned by hand and models that are none."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from caesar_backend_local_llm.engine.failures import ModelLoadError
from caesar_backend_local_llm.hosting.host import ModelHost
from caesar_backend_local_llm.options import ModelPlan
from caesar_server.contract import BackendUnavailableError
from caesar_server.testing import FakeClock, make_context


class Loads:
    """Stands for the loading of a model."""

    def __init__(self) -> None:
        self.count = 0
        self.closed = 0
        self.failure: Exception | None = None

    def __call__(self, plan: ModelPlan, progress: Any) -> Any:
        self.count += 1
        if self.failure is not None:
            raise self.failure

        def close() -> None:
            self.closed += 1

        return SimpleNamespace(name=plan.name, plan=plan, instances=(object(),), close=close)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def loads() -> Loads:
    return Loads()


@pytest.fixture
def host(clock: FakeClock, loads: Loads):
    made = ModelHost(ModelPlan(name="m", path="/x/m.gguf", unload_after_s=60), clock, loads)
    yield made
    made.close()


def use(host: ModelHost) -> Any:
    with host.in_use():
        return list_end(host)


def list_end(host: ModelHost) -> Any:
    events = host.ready(make_context())
    while True:
        try:
            next(events)
        except StopIteration as end:
            return end.value


def wait_for(condition) -> None:
    pause = threading.Event()
    for _ in range(10_000):
        if condition():
            return
        pause.wait(0.001)
    pytest.fail("it did not happen")


def test_it_is_loaded_once(host: ModelHost, loads: Loads) -> None:
    first = use(host)
    assert use(host) is first
    assert loads.count == 1


def test_it_is_unloaded_after_idle_time_and_loaded_again(
    host: ModelHost, loads: Loads, clock: FakeClock
) -> None:
    use(host)
    clock.wait_for_waiters()
    clock.advance(59)
    use(host)
    clock.advance(59)
    assert (host.state, loads.closed) == ("ready", 0)
    clock.advance(1)
    wait_for(lambda: loads.closed == 1)
    assert host.state == "not loaded"
    use(host)
    assert loads.count == 2


def test_it_is_not_unloaded_while_it_is_used(
    host: ModelHost, loads: Loads, clock: FakeClock
) -> None:
    with host.in_use():
        list_end(host)
        clock.wait_for_waiters()
        clock.advance(1000)
        assert host.state == "ready"
    clock.wait_for_waiters()
    clock.advance(59)
    assert host.state == "ready"
    clock.advance(1)
    wait_for(lambda: loads.closed == 1)


def test_a_failure_is_told_and_tried_again_later(
    host: ModelHost, loads: Loads, clock: FakeClock
) -> None:
    loads.failure = ModelLoadError("/x/m.gguf is cut")
    for _ in range(3):
        with pytest.raises(BackendUnavailableError, match=r"m\.gguf is cut") as caught:
            use(host)
        assert "/x/" not in str(caught.value)
    assert loads.count == 1
    assert (host.state, host.describe()) == ("failed", "not loaded: /x/m.gguf is cut")
    loads.failure = None
    clock.advance(10)
    use(host)
    assert loads.count == 2


def test_what_nobody_expected_stays_in_the_log(host: ModelHost, loads: Loads, caplog) -> None:
    loads.failure = RuntimeError("secret")
    with pytest.raises(BackendUnavailableError) as caught:
        use(host)
    assert "secret" not in str(caught.value)
    assert "secret" in caplog.text


def test_nothing_is_loaded_once_it_is_closed(host: ModelHost, loads: Loads) -> None:
    host.close()
    host.start_loading()
    with pytest.raises(BackendUnavailableError):
        use(host)
    assert loads.count == 0
