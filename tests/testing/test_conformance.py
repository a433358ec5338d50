"""The suite itself: its report, its refusal to hang, and that it agrees with the server."""

from __future__ import annotations

import doctest
import importlib
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caesar_server.contract import (
    Backend,
    Capabilities,
    ChoiceFinished,
    Completed,
    CompletionRequest,
    ContentDelta,
    Context,
    ErrorInfo,
    Event,
    Failed,
    InvalidRequestError,
    ProgressNoted,
    Request,
    Started,
    StatusChanged,
    Told,
    option,
)
from caesar_server.jobs.context import RunContext
from caesar_server.jobs.running.run import run_events
from caesar_server.testing import scripted_backend
from caesar_server.testing.conformance import RULES, Report, Result, check_backend
from caesar_server.testing.conformance.answer import Run
from caesar_server.testing.conformance.rule import Fail
from caesar_server.testing.conformance.rules import event_rules

pytest_plugins = ("pytester",)


class Shouter(Backend):
    """Says louder what another backend says."""

    capabilities = Capabilities(seed=True)

    def run(self, request: Request, context: Context) -> Iterator[Event]:
        if not isinstance(request, CompletionRequest) or not isinstance(request.prompts[0], str):
            raise InvalidRequestError("takes text prompts", param=None)
        for choice, prompt in enumerate(request.prompts):
            for event in context.call("writer", CompletionRequest(prompts=(prompt,))):
                if isinstance(event, ContentDelta):
                    yield ContentDelta(event.text.upper(), choice)
            yield ChoiceFinished(choice)
        yield Completed()


class Small(Backend):
    """The smallest backend that keeps the contract."""

    def run(self, request: Request, context: Context) -> Iterator[Event]:
        if not isinstance(request, CompletionRequest) or not isinstance(request.prompts[0], str):
            raise InvalidRequestError("takes text prompts", param=None)
        for choice in range(request.choices):
            yield ContentDelta("yes", choice)
            yield ChoiceFinished(choice)
        yield Completed()


class AtOnce(Small):
    """The same, with all that is there told together."""

    def run(self, request: Request, context: Context) -> Iterator[Told]:
        yield list(super().run(request, context))


def test_a_backend_may_tell_several_events_at_once() -> None:
    outcomes = [
        {result.rule: result.outcome for result in check_backend(backend).results}
        for backend in (AtOnce, Small)
    ]
    assert outcomes[0] == outcomes[1]


class TooMuch(Small):
    def run(self, request: Request, context: Context) -> Iterator[Told]:
        yield [ContentDelta("yes"), ChoiceFinished(), ContentDelta("no"), Completed()]


def test_events_told_at_once_keep_the_rules_of_single_ones() -> None:
    report = check_backend(TooMuch)
    failed = {one.rule: one.detail for one in report.results if one.outcome == "fail"}
    assert any(
        "ContentDelta after choice 0 was finished" in detail for detail in failed.values()
    ), failed


def test_a_small_backend_passes_and_what_it_does_not_declare_is_skipped() -> None:
    report = check_backend(Small)
    assert not report.failed, str(report)
    skipped = {result.rule for result in report.results if result.outcome == "skip"}
    assert {"sampling.n", "sampling.stop", "usage.counted", "sampling.seed"} <= skipped
    assert "run.refuses" not in skipped


# --- the report ----------------------------------------------------------------------------------


class Rude(Small):
    """Breaks one rule."""

    def run(self, request: Request, context: Context) -> Iterator[Event]:
        for event in super().run(request, context):
            yield event
            if isinstance(event, Completed):
                yield ProgressNoted("one more thing")


def test_a_report_names_every_rule_with_its_sentence_and_reason() -> None:
    report = check_backend(Rude)
    assert [result.rule for result in report.results] == [rule.id for rule in RULES]
    for result in report.results:
        assert result.sentence.endswith(".")
        assert result.reason.endswith(".")
        assert (result.outcome == "pass") == (result.detail == "")


def test_a_failure_says_what_was_seen_and_expected_and_why_it_matters() -> None:
    report = check_backend(Rude)
    assert report.failed
    (failure,) = [result for result in report.results if result.outcome == "fail"]
    assert failure.rule == "events.terminal"
    assert failure.detail == (
        "seen: in a completion run: ProgressNoted after Completed; expected: nothing after it"
    )
    text = str(report)
    assert failure.detail in text
    assert failure.reason in text
    assert text.splitlines()[0].endswith(":Rude")
    assert text.splitlines()[-1].endswith("1 failed")


def test_a_backend_that_calls_another_is_tried_with_what_that_says() -> None:
    def writer(model: str, request: Request, context: Context) -> Iterator[Event]:
        assert model == "writer"
        return Small().run(request, context)

    report = check_backend(Shouter, caller=writer)
    assert not report.failed, str(report)
    outcomes = {one.rule: (one.outcome, one.detail) for one in report.results}
    assert outcomes["sampling.prompts"] == ("pass", "")
    assert outcomes["server.fold_is_stream"] == (
        "skip",
        "it calls other backends, and this server has none",
    )


def test_a_backend_that_calls_another_fails_where_nobody_answers() -> None:
    (accepts,) = (one for one in check_backend(Shouter).results if one.rule == "run.accepts")
    assert accepts.outcome == "fail"
    assert "it calls another backend, and the suite was given no caller" in accepts.detail


@dataclass(frozen=True)
class Place:
    folder: Path = option(Path("/srv"), help="Where it is.")
    words: tuple[str, ...] = option(("a",), help="What it is for.")


@dataclass(frozen=True)
class Places:
    first: Place = option(Place(), help="The first.")
    more: tuple[Place, ...] = option((Place(Path("/opt")),), help="Others.")
    named: Mapping[str, Place] = option(default_factory=lambda: {"a": Place()}, help="By name.")
    share: float = option(1, help="A whole number is a number, too.")
    key: str | None = option(None, help="None.", secret=True)


def test_defaults_of_all_kinds_are_right() -> None:
    placed = type("Placed", (Small,), {"options_schema": Places})
    outcomes = {one.rule: (one.outcome, one.detail) for one in check_backend(placed).results}
    assert outcomes["options.defaults"] == ("pass", "")


def test_a_report_is_json() -> None:
    report = check_backend(Rude)
    data = json.loads(json.dumps(report.to_json()))
    assert data["failed"] is True
    assert data["backend"] == report.backend
    assert [Result(**result) for result in data["results"]] == list(report.results)


def test_the_ids_of_rules_are_unique_and_needs_come_first() -> None:
    seen: set[str] = set()
    for rule in RULES:
        assert rule.id not in seen
        assert set(rule.needs) <= seen
        seen.add(rule.id)


# --- it never hangs ------------------------------------------------------------------------------

RELEASE = threading.Event()


@pytest.fixture(autouse=True)
def release_threads() -> Iterator[None]:
    before = set(threading.enumerate())
    RELEASE.clear()
    yield
    RELEASE.set()
    for thread in set(threading.enumerate()) - before:
        thread.join(60)


def hang(*args: object) -> Any:
    RELEASE.wait()


def hang_in_init(self: Small, options: Any = None) -> None:
    RELEASE.wait()
    Backend.__init__(self, options)


class HangsWhenClosed(Small):
    """Does not come back when its iterator is closed."""

    def run(self, request: Request, context: Context) -> Iterator[Event]:
        try:
            yield from super().run(request, context)
        except GeneratorExit:
            RELEASE.wait()
            raise


@pytest.mark.parametrize(
    ("cls", "rule", "call"),
    [
        (type("A", (Small,), {"__init__": hang_in_init}), "class.init_is_cheap", "__init__()"),
        (type("B", (Small,), {"models": hang}), "models.before_open", "models()"),
        (type("C", (Small,), {"open": hang}), "life.opens", "open()"),
        (type("D", (Small,), {"health": hang}), "health.value", "health()"),
        (type("E", (Small,), {"run": hang}), "run.typed_errors", "run() of a completion request"),
        (HangsWhenClosed, "run.recovers", "run() of a completion request"),
        (type("F", (Small,), {"close": hang}), "life.closes", "close()"),
    ],
)
def test_a_backend_that_hangs_fails_by_name_and_ends_the_suite(
    cls: type[Backend], rule: str, call: str
) -> None:
    report = check_backend(cls, call_timeout_s=2.0)
    (failure,) = [result for result in report.results if result.outcome == "fail"]
    assert failure.rule == rule
    assert f"{call} did not return within 2 s" in failure.detail
    after = report.results[[result.rule for result in report.results].index(rule) + 1 :]
    assert {result.detail for result in after} == {f"the backend hangs since {rule}"}


class Endless(Small):
    """Never comes to an end."""

    def run(self, request: Request, context: Context) -> Iterator[Event]:
        while True:
            yield ProgressNoted("still at it")


def test_a_run_without_end_is_broken_off() -> None:
    report = check_backend(Endless)
    failures = {result.rule: result.detail for result in report.results if result.outcome == "fail"}
    assert "more than 100000 events" in failures["run.typed_errors"]


# --- it agrees with the server -------------------------------------------------------------------

EVENTS: tuple[Event, ...] = (
    Started(),
    StatusChanged("searching"),
    StatusChanged("queued"),
    ProgressNoted("x"),
    ContentDelta("x"),
    ContentDelta("x", 1),
    ContentDelta("x", -1),
    ChoiceFinished(0),
    ChoiceFinished(1),
    Completed(),
    Failed(ErrorInfo("m", "c")),
)
#: The rules that the server's own check has too.
SHARED = (
    event_rules.types,
    event_rules.terminal,
    event_rules.started_first,
    event_rules.choices,
    event_rules.choices_finished,
    event_rules.statuses,
)


@given(st.lists(st.sampled_from(EVENTS), max_size=7), st.integers(0, 2))
def test_suite_and_server_accept_the_same_runs(events: list[Event], choices: int) -> None:
    request: Any = SimpleNamespace(type="test", choices=choices)
    subject: Any = SimpleNamespace(plain=lambda: [Run(request, tuple(events), None, 0.0)])
    failed = [rule.id for rule in SHARED if isinstance(rule.check(subject), Fail)]
    # What the server does not accept it cuts off or ends with an error of its own.
    sent = list(run_events(scripted_backend(events)(), request, RunContext("x")))
    assert (not failed) == (sent == events)


# --- with and without pytest ---------------------------------------------------------------------


def run_python(code: str) -> tuple[int, str]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def test_the_suite_needs_no_pytest() -> None:
    code = (
        "import sys; sys.modules['pytest'] = None\n"
        "from caesar_server.testing.conformance import check_backend\n"
        "from caesar_server.mock.backend import MockBackend\n"
        "sys.exit(str(check_backend(MockBackend)) if check_backend(MockBackend).failed else None)"
    )
    assert run_python(code) == (0, "")


def test_importing_the_package_loads_neither_flask_nor_pytest() -> None:
    code = (
        "import sys, caesar_server.testing\n"
        "bad = {'flask', 'werkzeug', 'pytest', 'hypothesis'} & set(sys.modules)\n"
        "sys.exit(', '.join(bad) or None)"
    )
    assert run_python(code) == (0, "")


def test_the_package_offers_what_it_lists() -> None:
    import caesar_server.testing as testing

    assert dir(testing) == sorted(testing.__all__)
    for name in testing.__all__:
        assert getattr(testing, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        testing.nonsense  # noqa: B018


@pytest.mark.parametrize("module", ["clock", "scripted"])
def test_examples_in_docstrings_are_true(module: str) -> None:
    found = doctest.testmod(importlib.import_module(f"caesar_server.testing.{module}"))
    assert (found.failed, found.attempted > 0) == (0, True)


THREE_LINES = """
    from caesar_server.contract import (
        Backend, ChoiceFinished, Completed, ContentDelta, InvalidRequestError
    )
    from caesar_server.testing import BackendConformance

    class Hello(Backend):
        def run(self, request, context):
            if request.type != "completion" or not isinstance(request.prompts[0], str):
                raise InvalidRequestError("takes text prompts", param=None)
            for choice in range(request.choices):
                yield ContentDelta("hello", choice)
                {finish}
            yield Completed()

    class TestHello(BackendConformance):
        backend_class = Hello
"""


@pytest.fixture
def run_suite(pytester: pytest.Pytester) -> Callable[[str], pytest.RunResult]:
    def run(finish: str) -> pytest.RunResult:
        pytester.makepyfile(THREE_LINES.replace("{finish}", finish))
        return pytester.runpytest_inprocess("-p", "no:cacheprovider", "-W", "error")

    return run


def test_three_lines_make_a_test_of_each_rule(
    run_suite: Callable[[str], pytest.RunResult],
) -> None:
    # a rule that does not apply counts as passed: a skip would look like a missing tool
    run_suite("yield ChoiceFinished(choice)").assert_outcomes(passed=len(RULES))


CALLS = """

        @staticmethod
        def caller(model, request, context):
            yield ContentDelta("hello")
"""


def test_a_test_of_each_rule_can_answer_for_another_backend(
    pytester: pytest.Pytester,
) -> None:
    hello = 'yield ContentDelta("hello", choice)'
    shouts = "for said in context.call('writer', request): yield ContentDelta(said.text, choice)"
    assert hello in THREE_LINES
    finish = "yield ChoiceFinished(choice)"
    pytester.makepyfile(THREE_LINES.replace(hello, shouts).replace("{finish}", finish) + CALLS)
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-W", "error")
    result.assert_outcomes(passed=len(RULES))


def test_a_broken_rule_is_a_failed_test_that_explains_itself(
    run_suite: Callable[[str], pytest.RunResult],
) -> None:
    # answers with several prompts are left whole, so that one rule alone is broken
    result = run_suite("if request.choices > 1: yield ChoiceFinished(choice)")
    result.assert_outcomes(passed=len(RULES) - 1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*test_conformance?events.choices_finished?*",
            "Every choice has a ChoiceFinished before Completed.",
            "seen: in a completion run: Completed while choice 0 is open; *",
        ]
    )


def test_a_report_can_be_made_by_hand() -> None:
    result = Result("a.b", "It holds.", "Else it breaks.", "fail", "seen: 1; expected: 2")
    assert Report("m:C", (result,)).failed
    assert not Report("m:C", ()).failed


def test_capabilities_of_the_small_backend_are_the_defaults() -> None:
    assert Small.capabilities == Capabilities()
