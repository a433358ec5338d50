"""What backends count themselves, and how it is kept within bounds."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from caesar_server.app import create_app
from caesar_server.contract import ChoiceFinished, Completed, CompletionRequest, ContentDelta
from caesar_server.registry import Registry
from caesar_server.settings import Settings
from caesar_server.testing import scripted_backend
from caesar_server.web.observing import backend_metrics
from caesar_server.web.observing.backend_metrics import MAX_NAMES, MAX_SERIES, BackendMetrics

LOGGER = "caesar_server.web.observing.backend_metrics"


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def metrics(registry: CollectorRegistry) -> BackendMetrics:
    return BackendMetrics("up-stream", registry)


def series(registry: CollectorRegistry) -> list[Any]:
    return [
        sample
        for family in registry.collect()
        for sample in family.samples
        if sample.name.endswith(("_total", "_count"))
    ]


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(f"caesar_backend_up_stream_{name}", labels)


def test_counts_and_observes_under_the_backends_name(
    metrics: BackendMetrics, registry: CollectorRegistry
) -> None:
    metrics.count("retries")
    metrics.count("retries", 2.5)
    metrics.count("calls", provider="a", kind="chat")
    metrics.count("calls", kind="chat", provider="a")
    metrics.observe("wait_s", 0.2)
    metrics.observe("bytes", 5000, kind="chat")
    assert value(registry, "retries_total") == 3.5
    assert value(registry, "calls_total", provider="a", kind="chat") == 2
    assert value(registry, "wait_s_sum") == 0.2
    assert value(registry, "wait_s_bucket", le="0.5") == 1
    assert value(registry, "bytes_bucket", le="10000.0", kind="chat") == 1


def test_label_values_beyond_the_bound_are_other_with_one_warning(
    metrics: BackendMetrics, registry: CollectorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, LOGGER)
    for number in range(MAX_SERIES * 3):
        metrics.count("calls", query=f"q{number}")
    assert value(registry, "calls_total", query="other") == MAX_SERIES * 2
    assert len(series(registry)) == MAX_SERIES + 1
    assert len(caplog.records) == 1
    assert "up-stream" in caplog.text


def test_long_label_values_are_cut(metrics: BackendMetrics, registry: CollectorRegistry) -> None:
    metrics.count("calls", query="x" * 1000)
    assert value(registry, "calls_total", query="x" * backend_metrics.MAX_VALUE_CHARS) == 1


def test_names_beyond_the_bound_are_dropped(
    metrics: BackendMetrics, registry: CollectorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, LOGGER)
    for number in range(MAX_NAMES * 3):
        metrics.count(f"name{number}")
    assert len(series(registry)) == MAX_NAMES
    assert 0 < len(caplog.records) <= MAX_NAMES


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("Retries", {}),
        ("re-tries", {}),
        ("", {}),
        ("x" * 61, {}),
        ("calls", {"le": "1"}),
        ("calls", {"Kind": "1"}),
        ("calls", {"__x": "1"}),
        ("calls", {f"l{number}": "1" for number in range(5)}),
    ],
)
def test_what_prometheus_cannot_take_is_dropped_with_one_warning(
    metrics: BackendMetrics,
    registry: CollectorRegistry,
    caplog: pytest.LogCaptureFixture,
    name: str,
    labels: dict[str, str],
) -> None:
    caplog.set_level(logging.WARNING, LOGGER)
    for _ in range(3):
        metrics.count(name, **labels)
        metrics.observe(name, 1, **labels)
    assert series(registry) == []
    assert len(caplog.records) == 1


def test_a_name_keeps_its_kind_and_its_labels(
    metrics: BackendMetrics, registry: CollectorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, LOGGER)
    metrics.count("calls", kind="a")
    metrics.observe("calls", 1, kind="a")
    metrics.count("calls")
    metrics.count("calls", provider="a")
    assert [sample.value for sample in series(registry)] == [1]
    assert len(caplog.records) == 1


@pytest.mark.parametrize("amount", [-1, float("nan"), float("inf")])
def test_amounts_that_would_spoil_a_counter_are_dropped(
    metrics: BackendMetrics, registry: CollectorRegistry, amount: float
) -> None:
    metrics.count("retries")
    metrics.count("retries", amount)
    metrics.observe("sizes", float("nan"))
    assert value(registry, "retries_total") == 1
    assert len(series(registry)) == 1


def test_names_that_are_one_for_prometheus_do_not_break_a_run(
    registry: CollectorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, LOGGER)
    BackendMetrics("a-b", registry).count("calls")
    BackendMetrics("a_b", registry).count("calls")
    assert len(series(registry)) == 1
    assert "a_b" in caplog.text


def test_many_threads_count_right(metrics: BackendMetrics, registry: CollectorRegistry) -> None:
    def work() -> None:
        for number in range(500):
            metrics.count("calls", kind=str(number % 7))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(sample.value for sample in series(registry)) == 2000


def test_called_backend_counts_for_itself() -> None:
    def inner(context: Any) -> None:
        context.metrics.count("seen")

    def outer(context: Any) -> Any:
        context.metrics.count("seen", 10)
        called = context.call("inner", CompletionRequest(prompts=("p",)))
        return [event for event in called if isinstance(event, ContentDelta)]

    done = (ChoiceFinished(), Completed())
    settings = Settings(default_backend="outer")
    backends = {
        "outer": scripted_backend((outer, *done)),
        "inner": scripted_backend((inner, ContentDelta("x"), *done)),
    }
    app = create_app(settings, Registry.of(backends, settings))
    client = app.test_client()
    for streamed in (False, True):
        body = {"model": "m", "prompt": "p", "stream": streamed}
        assert client.post("/compat/completions", json=body).data
    text = client.get("/metrics").text
    app.extensions["caesar_server"].close()
    assert "\ncaesar_backend_outer_seen_total 20.0\n" in text
    assert "\ncaesar_backend_inner_seen_total 2.0\n" in text
