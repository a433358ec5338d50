from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from caesar_backend_local_llm import LocalLlmBackend
from caesar_server.testing import BackendConformance


class _LocalLlm(BackendConformance):
    backend_class = LocalLlmBackend

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def model(cls, engine: Any, tiny_model: Callable[..., Any]) -> None:
        cls.options = {"models": {"tiny": {"path": str(cls.file(tiny_model)), **cls.more}}}

    more: ClassVar[dict[str, Any]] = {}

    @staticmethod
    def file(tiny_model: Callable[..., Any]) -> Any:
        raise NotImplementedError


class TestOfNoise(_LocalLlm):
    @staticmethod
    def file(tiny_model: Callable[..., Any]) -> Any:
        return tiny_model("random", "bpe", context=4096).path


class TestOfAScript(_LocalLlm):
    more: ClassVar[dict[str, Any]] = {"instances": 2, "load": "start"}

    @staticmethod
    def file(tiny_model: Callable[..., Any]) -> Any:
        return tiny_model("echo").path


class _FillingIn(LocalLlmBackend):
    """Declares what only some models can, as each instance does."""

    capabilities = replace(LocalLlmBackend.capabilities, suffix=True)


class TestThatFillsIn(_LocalLlm):
    backend_class = _FillingIn

    @staticmethod
    def file(tiny_model: Callable[..., Any]) -> Any:
        return tiny_model("random", fill_in=True).path
