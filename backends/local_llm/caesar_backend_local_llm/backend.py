"""The backend: opened with its models' plans, asked, closed.

The engine is imported when it is opened: listing what is installed stays quick, and nothing of the
native library exists before the server forks.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from caesar_backend_local_llm.options import LocalLlmOptions, plans
from caesar_server.contract import (
    Backend,
    BackendError,
    BackendUnavailableError,
    Capabilities,
    ChatRequest,
    CompletionRequest,
    Context,
    Event,
    Health,
    InvalidRequestError,
    Model,
    Request,
    RequestRejectedError,
)

if TYPE_CHECKING:
    from caesar_backend_local_llm.hosting.host import ModelHost


class _SystemClock:
    """The machine's time."""

    def time(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        return event.wait(timeout_s)


class LocalLlmBackend(Backend):
    """Runs GGUF models in this process, with llama.cpp.

    Tokens are those of the model's own vocabulary.  ``completion_tokens`` counts each generated
    token, those that a stop sequence swallows included, but for the one that ends the text.
    """

    capabilities = Capabilities(
        accepts=frozenset({"completion", "chat"}),
        n=True,
        best_of=True,
        logprobs=True,
        echo=True,
        token_prompts=True,
        max_tokens=True,
        stop=True,
        seed=True,
        usage=True,
        cpu_bound=True,
    )
    options_schema = LocalLlmOptions
    options: LocalLlmOptions

    def __init__(self, options: LocalLlmOptions | None = None) -> None:
        super().__init__(options)
        # Some models can fill in the middle; for the others run() refuses it.
        self.capabilities = replace(type(self).capabilities, suffix=True)  # type: ignore[misc]
        self._hosts: Mapping[str, ModelHost] | None = None

    def open(self) -> None:
        """Import the engine; models with ``load = "start"`` begin to be loaded.

        A model that cannot be loaded does not keep the others from being served: :meth:`health`
        and the log tell why.

        :raises BackendError: if there are models and the engine is not installed.
        """
        if not self.options.models:  # then the engine may be missing, and nothing is broken
            self._hosts = {}
            return
        try:
            import llguidance  # noqa: F401 - now, and not with the first grammar

            from caesar_backend_local_llm.engine.native import native
            from caesar_backend_local_llm.hosting.host import ModelHost

            native()
        except ImportError as error:
            package = "llguidance" if error.name == "llguidance" else "llama-cpp-python"
            raise BackendError(
                f"{package} cannot be imported ({error}): pip install {package}",
                code="missing_engine",
            ) from error
        self._hosts = {plan.name: ModelHost(plan, _SystemClock()) for plan in plans(self.options)}
        for host in self._hosts.values():
            host.look()
            if host.plan.load == "start":
                host.start_loading()

    def run(self, request: Request, context: Context) -> Iterator[Event]:
        """Yield the answer of a model.

        Its instance is held until the iterator is closed.  While the model is being loaded, there
        are events of progress.
        """
        if not isinstance(request, (CompletionRequest, ChatRequest)):
            raise InvalidRequestError(f"local_llm takes no {request.type} requests", param=None)
        from caesar_backend_local_llm.serving import answer_events

        yield from answer_events(self._host(request.model), request, context)

    def _host(self, name: str) -> ModelHost:
        """Return the host of a model by its name; without one the first."""
        if self._hosts is None:
            raise BackendError("the backend is not open")
        if not self._hosts:
            raise BackendUnavailableError(
                "No model is configured; set backends.local_llm.models.NAME.path",
                code="no_model",
            )
        if not name:
            return next(iter(self._hosts.values()))
        if name not in self._hosts:
            raise RequestRejectedError(
                f"model: local_llm has no model {name[:100]!r}; it has: {', '.join(self._hosts)}",
                status=404,
                code="model_not_found",
                param="model",
            )
        return self._hosts[name]

    def models(self) -> Sequence[Model]:
        """Return the configured models, loaded or not."""
        return tuple(Model(name) for name in self.options.models)

    def health(self) -> Health:
        """Return which models are loaded, and why others are not; loads nothing."""
        if not self.options.models:
            return Health("down", "no model is configured")
        hosts = () if self._hosts is None else tuple(self._hosts.values())
        failed = [host for host in hosts if host.state == "failed"]
        message = "; ".join(f"{host.plan.name}: {host.describe()}" for host in hosts)
        if not failed:
            return Health("ok", message)
        return Health("down" if len(failed) == len(hosts) else "degraded", message)

    def close(self) -> None:
        """Unload all models."""
        hosts, self._hosts = self._hosts, None
        for host in (hosts or {}).values():
            host.close()
