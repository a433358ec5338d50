"""The backend with real models, asked as the server would ask it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from caesar_backend_local_llm import LocalLlmBackend, LocalLlmOptions
from caesar_server.contract import (
    ChatRequest,
    ChoiceFinished,
    CompletionRequest,
    ContentDelta,
    ErrorInfo,
    Event,
    Failed,
    LogprobToken,
    Message,
    Part,
    Request,
    ResearchParameters,
    Sampling,
    UsageCounted,
)
from caesar_server.contract.options import parse_options
from caesar_server.testing import collect_events


@dataclass(frozen=True)
class Answered:
    """What the events of a run add up to."""

    events: list[Event]

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def texts(self) -> list[str]:
        choices = [end.choice for end in self.of(ChoiceFinished)]
        return [
            "".join(delta.text for delta in self.of(ContentDelta) if delta.choice == choice)
            for choice in sorted(choices)
        ]

    @property
    def text(self) -> str:
        (text,) = self.texts
        return text

    @property
    def reasons(self) -> list[str]:
        return [end.reason for end in sorted(self.of(ChoiceFinished), key=lambda end: end.choice)]

    @property
    def reason(self) -> str:
        (reason,) = self.reasons
        return reason

    @property
    def usage(self) -> tuple[int, int]:
        counted = self.of(UsageCounted)
        return sum(c.prompt_tokens for c in counted), sum(c.completion_tokens for c in counted)

    def tokens(self, choice: int = 0) -> list[LogprobToken]:
        deltas = [delta for delta in self.of(ContentDelta) if delta.choice == choice]
        return [token for delta in deltas for token in delta.logprobs or ()]

    @property
    def error(self) -> ErrorInfo:
        assert isinstance(self.events[-1], Failed), self.events[-1]
        return self.events[-1].error


@dataclass(frozen=True)
class Asker:
    """An open backend."""

    backend: LocalLlmBackend

    def ask(self, request: Request, context: Any = None) -> Answered:
        return Answered(collect_events(self.backend, request, context))

    def complete(
        self,
        *prompts: str | tuple[int, ...],
        model: str = "",
        echo: bool = False,
        suffix: str | None = None,
        extra: Mapping[str, Any] | None = None,
        context: Any = None,
        **sampling: Any,
    ) -> Answered:
        request = CompletionRequest(
            prompts=prompts,
            model=model,
            echo=echo,
            suffix=suffix,
            extra=extra or {},
            sampling=Sampling(**sampling),
        )
        return self.ask(request, context)

    def chat(
        self,
        *turns: tuple[str, str],
        extra: Mapping[str, Any] | None = None,
        system_prompt: str | None = None,
        **sampling: Any,
    ) -> Answered:
        request = ChatRequest(
            messages=tuple(Message(role=role, parts=(Part(text=text),)) for role, text in turns),
            parameters=ResearchParameters(auto=True, system_prompt=system_prompt),
            extra=extra or {},
            sampling=Sampling(**sampling),
        )
        return self.ask(request)


@pytest.fixture
def opened(engine: Any) -> Iterator[Callable[..., Asker]]:
    """Open a backend: ``opened(path, instances=2)``, or with ``models={...}``."""
    backends: list[LocalLlmBackend] = []

    def open_backend(path: Path | None = None, **options: Any) -> Asker:
        if path is not None:
            options = {"models": {"tiny": {"path": str(path), **options}}}
        backend = LocalLlmBackend(parse_options(LocalLlmOptions, options))
        backends.append(backend)
        backend.open()
        return Asker(backend)

    yield open_backend
    for backend in backends:
        backend.close()


@pytest.fixture
def echo(opened: Callable[..., Asker], tiny_model: Callable[..., Any]) -> Asker:
    """A model that recites a text, greedy."""
    return opened(tiny_model("echo").path, temperature=0)


@pytest.fixture
def chance(opened: Callable[..., Asker], tiny_model: Callable[..., Any]) -> Asker:
    """A model of noise, in which every part of the network counts."""
    return opened(tiny_model("random").path)


@pytest.fixture
def cats(tiny_model: Callable[..., Any]) -> Any:
    """A model that knows: two of three cats run, one sits."""
    return tiny_model("bigram", text="the cat ran\nthe cat ran\nthe cat sat\nthe dog sat")


@pytest.fixture(scope="session")
def raw_models(engine: Any) -> SimpleNamespace:
    """The layers below the backend, imported late: importing them loads the engine's library."""
    from caesar_backend_local_llm.engine.instance import Instance
    from caesar_backend_local_llm.engine.weights import Weights

    return SimpleNamespace(Instance=Instance, Weights=Weights)
