"""The conformance suite as pytest tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

import pytest

from caesar_server.contract import Backend
from caesar_server.jobs.context import Caller
from caesar_server.testing.conformance import RULES, Report, check_backend


class BackendConformance:
    """One test for each rule of the contract.  Derive from it and name the backend::

        class TestHello(BackendConformance):
            backend_class = HelloBackend

    A rule that says nothing about the backend counts as passed: what is skipped, and why, is in the
    output of ``caesar-server check NAME`` and in the test's properties.
    """

    #: The backend to test.
    backend_class: ClassVar[type[Backend]]
    #: Its options, as an operator would write them.
    options: ClassVar[Mapping[str, object]] = {}
    #: Seconds that any single call may take.
    call_timeout_s: ClassVar[float] = 30.0
    #: What ``context.call`` does: a function of model, request and context that yields events; a
    #: ``staticmethod``.  None: the backend calls no others.
    caller: ClassVar[Caller | None] = None

    @pytest.fixture(scope="class")
    @classmethod
    def conformance_report(cls) -> Report:
        """The report that all tests of the class look at."""
        return check_backend(
            cls.backend_class, cls.options, call_timeout_s=cls.call_timeout_s, caller=cls.caller
        )

    @pytest.mark.parametrize("rule", [rule.id for rule in RULES])
    def test_conformance(
        self,
        rule: str,
        conformance_report: Report,
        record_property: Callable[[str, object], None],
    ) -> None:
        """The backend keeps the rule."""
        result = next(result for result in conformance_report.results if result.rule == rule)
        record_property("outcome", f"{result.outcome} {result.detail}".rstrip())
        if result.outcome == "fail":
            pytest.fail(f"{result.sentence}\n{result.detail}\n{result.reason}", pytrace=False)
