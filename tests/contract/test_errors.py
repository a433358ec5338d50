"""Errors as values: what a client is told follows from the class, never from the text."""

from __future__ import annotations

from dataclasses import fields

import pytest

from caesar_server.contract import (
    BackendError,
    BackendTimeoutError,
    BackendUnavailableError,
    BadUpstreamError,
    Cancelled,
    Capabilities,
    ErrorInfo,
    InvalidRequestError,
    RateLimitedError,
    RequestRejectedError,
)


@pytest.mark.parametrize(
    ("error", "info"),
    [
        (BackendError("m"), ErrorInfo("m", "backend_error")),
        (BackendError("m", code="c"), ErrorInfo("m", "c")),
        (
            InvalidRequestError("m", param="stop"),
            ErrorInfo("m", "invalid_value", "invalid_request_error", "stop", 400),
        ),
        (
            InvalidRequestError("m", param=None, code="c"),
            ErrorInfo("m", "c", "invalid_request_error", None, 400),
        ),
        (
            RequestRejectedError("m", status=402),
            ErrorInfo("m", "request_rejected", "invalid_request_error", None, 402),
        ),
        (
            RequestRejectedError("m", status=422, code="c", type="t", param="p"),
            ErrorInfo("m", "c", "t", "p", 422),
        ),
        (
            RateLimitedError("m"),
            ErrorInfo("m", "rate_limit_exceeded", "rate_limit_error", None, 429, None, True),
        ),
        (
            RateLimitedError("m", retry_after_s=1.5, code="c"),
            ErrorInfo("m", "c", "rate_limit_error", None, 429, 1.5, True),
        ),
        (
            BackendUnavailableError("m"),
            ErrorInfo("m", "backend_unavailable", status=503, transient=True),
        ),
        (BadUpstreamError("m"), ErrorInfo("m", "bad_upstream", status=502, transient=True)),
        (BackendTimeoutError("m"), ErrorInfo("m", "backend_timeout", status=504, transient=True)),
    ],
)
def test_an_error_says_what_its_class_stands_for(error: BackendError, info: ErrorInfo) -> None:
    assert error.info() == info
    assert str(error) == "m"


@pytest.mark.parametrize("status", [200, 399, 500, 503])
def test_only_a_client_error_can_be_passed_on_as_a_refusal(status: int) -> None:
    with pytest.raises(ValueError, match="expected 400 to 499"):
        RequestRejectedError("m", status=status)


def test_a_subclass_of_a_plugin_keeps_its_own_words() -> None:
    class QuotaError(BackendError):
        status = 402
        type = "billing"
        code = "quota"
        transient = True

    assert QuotaError("m").info() == ErrorInfo("m", "quota", "billing", None, 402, None, True)


def test_a_cancel_is_no_error_of_the_backend() -> None:
    assert not issubclass(Cancelled, BackendError)
    assert Cancelled().reason == "cancelled"
    assert Cancelled("deadline").reason == "deadline"


def test_a_backend_that_declares_nothing_can_do_next_to_nothing() -> None:
    able = Capabilities()
    flags = {f.name: getattr(able, f.name) for f in fields(able) if f.type == "bool"}
    assert {name for name, on in flags.items() if on} == {"prompts"}
    assert able.accepts == {"completion"}
    assert able.channels == {"content"}
    assert able.ignores == frozenset()
    assert able.cancel_deadline_s > 0
