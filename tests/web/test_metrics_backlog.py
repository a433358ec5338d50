"""What happens is counted in batches, and nothing of it is lost or counted twice."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import pytest
from prometheus_client import CollectorRegistry, Histogram

from caesar_server.web.observing.backlog import MOST, Backlog
from caesar_server.web.observing.histogram import BulkHistogram
from caesar_server.web.observing.metrics import RunEnd, ServerMetrics


class Alarm:
    """Calls back when it is told to."""

    def __init__(self) -> None:
        self.asked: list[Callable[[], None]] = []

    def __call__(self, callback: Callable[[], None]) -> None:
        self.asked.append(callback)

    def ring(self) -> None:
        asked, self.asked = self.asked, []
        for callback in asked:
            callback()


@pytest.fixture
def counted() -> list[Sequence[int]]:
    return []


def test_nothing_is_counted_before_somebody_asks(counted: list[Sequence[int]]) -> None:
    backlog = Backlog(counted.append)
    backlog.add(1)
    backlog.add(2)
    assert counted == []
    backlog.settle()
    backlog.settle()
    assert counted == [[1, 2]]


def test_a_full_backlog_is_counted_where_it_gets_full(counted: list[Sequence[int]]) -> None:
    backlog = Backlog(counted.append)
    for number in range(MOST + 1):
        backlog.add(number)
    assert counted == [list(range(MOST))]


def test_an_alarm_is_set_for_each_batch_once(counted: list[Sequence[int]]) -> None:
    alarm = Alarm()
    backlog = Backlog(counted.append, alarm)
    backlog.add(1)
    backlog.add(2)
    assert len(alarm.asked) == 1
    alarm.ring()
    assert counted == [[1, 2]]
    assert alarm.asked == []
    backlog.add(3)
    assert len(alarm.asked) == 1


def test_a_closed_backlog_counts_at_once(counted: list[Sequence[int]]) -> None:
    alarm = Alarm()
    backlog = Backlog(counted.append, alarm)
    backlog.add(1)
    backlog.close()
    backlog.add(2)
    assert counted == [[1], [2]]
    alarm.ring()
    assert counted == [[1], [2]]


def test_threads_lose_nothing_and_each_fact_has_an_alarm() -> None:
    counted: list[int] = []
    alarm = Alarm()
    backlog: Backlog[int] = Backlog(counted.extend, alarm)
    begin = threading.Barrier(9)

    def add(first: int) -> None:
        begin.wait()
        for number in range(first, first + 3000):
            backlog.add(number)

    def ring() -> None:
        begin.wait()
        while any(thread.is_alive() for thread in threads):
            alarm.ring()

    threads = [threading.Thread(target=add, args=(3000 * place,)) for place in range(8)]
    ringing = threading.Thread(target=ring)
    for thread in (*threads, ringing):
        thread.start()
    for thread in (*threads, ringing):
        thread.join()
    # no settle() here: whatever is left has its alarm
    alarm.ring()
    assert sorted(counted) == list(range(24_000))


def test_many_values_make_the_same_histogram_as_one_after_the_other() -> None:
    values = (0.0, 0.5, 0.5000001, 1.0, 2.0, 1e9, -1.0)
    bounds = (0.5, 1.0)
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    bulk = BulkHistogram("seconds", "h", ("name",), registry=ours, buckets=bounds).labels("a")
    plain = Histogram("seconds", "h", ("name",), registry=theirs, buckets=bounds).labels("a")
    bulk.observe_all(values)
    for value in values:
        plain.observe(value)

    def samples(registry: CollectorRegistry) -> list[tuple[str, str, float]]:
        return [
            (sample.name, str(sample.labels), sample.value)
            for metric in registry.collect()
            for sample in metric.samples
            if not sample.name.endswith("_created")
        ]

    assert samples(ours) == samples(theirs)


def test_who_reads_the_registry_finds_all_that_happened() -> None:
    metrics = ServerMetrics(lambda settle: None)
    metrics.run_began()
    metrics.run_left(RunEnd("echo", "completed", 1.0, None, (("completed", 1), ("x", 2)), 0, 3))
    metrics.request_ended("compat", "create_completion", 200, 0.1)
    labels = {"surface": "compat", "endpoint": "create_completion", "status": "200"}
    value = metrics.registry.get_sample_value
    assert value("caesar_requests_total", labels) == 1
    assert value("caesar_running_jobs") == 0
    assert value("caesar_events_total", {"type": "other"}) == 2
    assert value("caesar_tokens_total", {"backend": "echo", "kind": "completion"}) == 3
    assert value("caesar_time_to_first_event_seconds_count", {"backend": "echo"}) is None


def test_a_batch_tells_backends_outcomes_and_statuses_apart() -> None:
    metrics = ServerMetrics(lambda settle: None)
    for _ in range(5):
        metrics.run_began()
    told = (("content_delta", 2), ("x", 1))
    metrics.run_left(RunEnd("echo", "completed", 1.0, 0.5, told, 1, 2))
    metrics.run_left(RunEnd("echo", "failed", 3.0, None, told, 0, 0))
    metrics.run_left(RunEnd("other", "completed", 5.0, 2.0, (("y", 4),), 0, 0))
    metrics.run_left(None)
    for status, duration_s in ((200, 1.0), (404, 2.0), (200, 4.0)):
        metrics.request_ended("compat", "view", status, duration_s)
    value = metrics.registry.get_sample_value

    def counted(name: str, **labels: str) -> float | None:
        return value(f"caesar_{name}", labels)

    view = {"surface": "compat", "endpoint": "view"}
    assert counted("running_jobs") == 1
    assert counted("requests_total", **view, status="200") == 2
    assert counted("requests_total", **view, status="404") == 1
    assert counted("request_duration_seconds_count", **view) == 3
    assert counted("request_duration_seconds_sum", **view) == 7
    assert counted("runs_total", backend="echo", outcome="completed") == 1
    assert counted("runs_total", backend="echo", outcome="failed") == 1
    assert counted("runs_total", backend="other", outcome="completed") == 1
    assert counted("run_duration_seconds_sum", backend="echo") == 4
    assert counted("time_to_first_event_seconds_count", backend="echo") == 1
    assert counted("time_to_first_event_seconds_sum", backend="other") == 2
    assert counted("events_total", type="content_delta") == 4
    assert counted("events_total", type="other") == 6
    assert counted("tokens_total", backend="echo", kind="prompt") == 1
    assert counted("tokens_total", backend="echo", kind="completion") == 2
    assert counted("tokens_total", backend="other", kind="prompt") is None
