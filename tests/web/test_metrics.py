"""What is counted, under which labels."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from caesar_server.contract import (
    BackendUnavailableError,
    Cancelled,
    ChoiceFinished,
    Completed,
    ContentDelta,
    Event,
    InvalidRequestError,
    ProgressNoted,
    UsageCounted,
)
from caesar_server.testing import FakeClock, Gate
from caesar_server.web.observing.metrics import FAMILIES, ServerMetrics, exported_names

HELLO = (ContentDelta("hello"), ChoiceFinished(), Completed())

Series = Mapping[tuple[str, frozenset[tuple[str, str]]], float]


def series_of(text: str) -> Series:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


class Numbers:
    """What ``/metrics`` of an app says."""

    def __init__(self, served: Any) -> None:
        self._served = served

    @property
    def series(self) -> Series:
        reply = self._served.client.get("/metrics")
        assert reply.status_code == 200
        return series_of(reply.text)

    def value(self, name: str, **labels: str) -> float:
        """Return a series' value; 0 for one that is not there."""
        return self.series.get((name, frozenset(labels.items())), 0.0)

    def labels(self, name: str) -> set[frozenset[tuple[str, str]]]:
        return {labels for found, labels in self.series if found == name}


@pytest.fixture
def count(serve_app: Any) -> Callable[..., tuple[Any, Numbers]]:
    """Make an app; gives what serves it and its numbers."""

    def make(*arguments: Any, **settings: Any) -> tuple[Any, Numbers]:
        served = serve_app(*arguments, **settings)
        return served, Numbers(served)

    return make


Count = Callable[..., tuple[Any, Numbers]]


def test_requests_by_surface_view_and_status(count: Count) -> None:
    served, numbers = count()
    for _ in range(3):
        served.complete()
    served.complete(path="/v1/completions")
    served.complete(prompt=None)
    served.client.get("/nothing/at/all")
    served.client.get("/healthz")
    served.client.get("/health")
    request = {"surface": "compat", "endpoint": "create_completion"}
    assert numbers.value("caesar_requests_total", **request, status="200") == 4
    assert numbers.value("caesar_requests_total", **request, status="400") == 1
    other = {"surface": "other", "endpoint": "other"}
    assert numbers.value("caesar_requests_total", **other, status="404") == 1
    health = {"surface": "ops", "endpoint": "show_health"}
    assert numbers.value("caesar_requests_total", **health, status="200") == 2
    assert numbers.value("caesar_request_duration_seconds_count", **request) == 5


def test_durations_are_of_the_whole_answer(count: Count) -> None:
    clock = FakeClock()
    script = (
        lambda context: clock.advance(0.3),
        ContentDelta("a"),
        lambda context: clock.advance(7),
        ChoiceFinished(),
        Completed(),
    )
    served, numbers = count(script, clock=clock)
    for streamed in (False, True):
        assert served.complete(stream=streamed).data
    request = {"surface": "compat", "endpoint": "create_completion"}
    backend = {"backend": "scripted"}
    assert numbers.value("caesar_request_duration_seconds_sum", **request) == pytest.approx(14.6)
    assert numbers.value("caesar_run_duration_seconds_sum", **backend) == pytest.approx(14.6)
    first = "caesar_time_to_first_event_seconds"
    assert numbers.value(f"{first}_sum", **backend) == pytest.approx(0.6)
    assert numbers.value(f"{first}_bucket", **backend, le="0.25") == 0
    assert numbers.value(f"{first}_bucket", **backend, le="0.5") == 2


def test_open_streams_and_running_jobs_go_up_and_down(count: Count) -> None:
    gate = Gate()
    served, numbers = count((ContentDelta("a"), gate, *HELLO))
    replies = [served.complete(stream=True) for _ in range(2)]
    for reply in replies:
        next(iter(reply.response))
        gate.wait_until_reached()
    assert numbers.value("caesar_open_streams") == 2
    assert numbers.value("caesar_running_jobs") == 2
    gate.open()
    assert replies[0].data
    assert numbers.value("caesar_open_streams") == 1
    replies[1].close()
    served.backend.script.wait_for(lambda script: script.ended == 2)
    served.app.extensions["caesar_server"].runner.close()
    assert numbers.value("caesar_open_streams") == 0
    assert numbers.value("caesar_running_jobs") == 0


@pytest.mark.parametrize("streamed", [False, True])
def test_events_by_type_and_tokens(count: Count, streamed: bool) -> None:
    script = (
        ProgressNoted("Reading"),
        *(ContentDelta("x") for _ in range(200)),
        UsageCounted(11, 20),
        UsageCounted(2, 1),
        ChoiceFinished(),
        Completed(),
    )
    served, numbers = count(script)
    assert served.complete(stream=streamed).data
    expected = {
        "status_changed": 1,
        "progress_noted": 1,
        "content_delta": 200,
        "usage_counted": 2,
        "choice_finished": 1,
        "completed": 1,
    }
    assert {name: numbers.value("caesar_events_total", type=name) for name in expected} == expected
    assert numbers.value("caesar_tokens_total", backend="scripted", kind="prompt") == 13
    assert numbers.value("caesar_tokens_total", backend="scripted", kind="completion") == 21


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("step", "outcome", "code"),
    [
        (BackendUnavailableError("no"), "failed", "backend_unavailable"),
        (InvalidRequestError("no", param=None), "failed", "invalid_value"),
        (RuntimeError("no"), "failed", "internal_error"),
        (Cancelled(), "cancelled", None),
        (Cancelled("deadline"), "deadline", "deadline_exceeded"),
        (Completed(), "failed", "internal_error"),
    ],
    ids=lambda value: getattr(value, "type", None) or str(value)[:10] or type(value).__name__,
)
def test_runs_by_outcome_and_errors_by_code(
    count: Count, streamed: bool, step: Any, outcome: str, code: str | None
) -> None:
    served, numbers = count((ContentDelta("a"), step))
    assert served.complete(stream=streamed).data
    assert numbers.value("caesar_runs_total", backend="scripted", outcome=outcome) == 1
    assert (
        sum(value for (name, _), value in numbers.series.items() if name == "caesar_runs_total")
        == 1
    )
    errors = numbers.labels("caesar_errors_total")
    assert errors == ({frozenset({("code", code)})} if code else set())
    assert numbers.labels("caesar_refusals_total") == set()


def test_refusals_by_code(count: Count) -> None:
    gate = Gate()
    served, numbers = count((gate, *HELLO), threads=8, max_streams=4)
    served.client.post("/compat/completions", data="{", content_type="application/json")
    served.client.put("/compat/completions")
    streams = [served.complete(stream=True, model=f"m{n}") for n in range(4)]
    assert served.complete().status_code == 503
    # the numbers are told all the same
    assert numbers.value("caesar_open_streams") == 4
    gate.open()
    for reply in streams:
        assert reply.data
    for code in ("overloaded", "malformed_body", "method_not_allowed"):
        assert numbers.value("caesar_refusals_total", code=code) == 1, code
    assert numbers.labels("caesar_errors_total") == set()


def test_a_client_that_left_is_no_error_and_its_run_is_cancelled(count: Count) -> None:
    gate = Gate()
    served, numbers = count((ContentDelta("a"), gate, *HELLO))
    reply = served.complete(stream=True)
    next(iter(reply.response))
    gate.wait_until_reached()
    reply.close()
    served.app.extensions["caesar_server"].runner.close()
    assert numbers.value("caesar_runs_total", backend="scripted", outcome="cancelled") == 1
    assert numbers.labels("caesar_errors_total") == set()


def test_labels_hold_nothing_that_a_client_or_a_backend_made_up(count: Count) -> None:
    def steps(request: Any) -> Iterator[Event | BaseException]:
        yield ContentDelta("a")
        yield BackendUnavailableError("no", code=f"code-{request.prompts[0]}")

    served, numbers = count(steps)
    for number in range(30):
        name = f"made-up-{number}"
        served.complete(model=name, prompt=name, user=name)
        served.client.get(f"/{name}", headers={"x-request-id": name})
        served.client.get(f"/compat/models/{name}")
        served.client.open("/healthz", method=f"M{number}")
    assert not [key for key in numbers.series if "made" in str(key) or "code-" in str(key)]
    assert numbers.value("caesar_errors_total", code="other") == 30
    assert len(numbers.labels("caesar_requests_total")) <= 8


def test_build_is_told(count: Count) -> None:
    _, numbers = count()
    (labels,) = numbers.labels("caesar_build_info")
    assert {name for name, _ in labels} == {"version", "python"}


def test_two_apps_of_one_process_count_for_themselves(count: Count) -> None:
    first, numbers = count()
    _, others = count()
    first.complete()
    run = {"backend": "scripted", "outcome": "completed"}
    assert numbers.value("caesar_runs_total", **run) == 1
    assert others.value("caesar_runs_total", **run) == 0


def test_every_name_that_is_exported_is_defined(count: Count) -> None:
    clock = FakeClock()
    served, numbers = count((UsageCounted(1, 1), *HELLO), clock=clock)
    served.complete(stream=True).get_data()
    served.complete(prompt=None)
    failing, others = count((RuntimeError("no"),))
    failing.complete()
    exported = {name for name, _ in (*numbers.series, *others.series)}
    assert exported == exported_names()


def test_families_have_help_and_standard_names() -> None:
    for family in FAMILIES:
        assert family.name.startswith("caesar_")
        assert family.help.endswith(".")
        assert family.name.endswith("_total") == (family.kind == "counter")
        assert family.name.endswith("_seconds") == (family.kind == "histogram")


def test_every_metric_is_documented_with_its_labels(root: Path) -> None:
    page = (root / "docs" / "observing.rst").read_text()
    for family in FAMILIES:
        _, found, row = page.partition(f"   * - ``{family.name}``\n")
        assert found, family.name
        labels = row.partition("\n     - ")[0].removeprefix("     -")
        assert tuple(re.findall("``([a-z]+)``", labels)) == family.labels


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        (None, "text/plain; version=0.0.4; charset=utf-8"),
        ("application/openmetrics-text; version=1.0.0", "application/openmetrics-text"),
    ],
)
def test_form_is_the_one_that_is_asked_for(accept: str | None, content_type: str) -> None:
    metrics = ServerMetrics(lambda settle: settle())
    metrics.refused("not_found")
    text, kind = metrics.exposition(accept)
    assert kind.startswith(content_type)
    assert b'caesar_refusals_total{code="not_found"} 1.0' in text
    assert (b"# EOF" in text) == ("openmetrics" in kind)
    assert b"_created" not in text


def test_counting_needs_no_log(count: Count, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "caesar_server")
    served, numbers = count()
    served.complete()
    assert numbers.value("caesar_runs_total", backend="scripted", outcome="completed") == 1
