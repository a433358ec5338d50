"""``context.call``: one backend writes with another, inside the same job."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

from caesar_server.contract.errors import BackendError, Cancelled, ErrorInfo, InvalidRequestError
from caesar_server.contract.events import Event, Failed, UsageCounted
from caesar_server.contract.request import REQUEST_TYPES, ChatRequest, CompletionRequest, Request
from caesar_server.errors import ServerError
from caesar_server.jobs.adapt import fit
from caesar_server.jobs.context import RunContext
from caesar_server.jobs.running.run import run_events
from caesar_server.jobs.running.values import shown
from caesar_server.registry import Registry

_REQUESTS = tuple(REQUEST_TYPES.values())


class CallFailedError(BackendError):
    """The called backend failed or is not there; its error is passed on as it stands."""

    def __init__(self, info: ErrorInfo) -> None:
        super().__init__(info.message, code=info.code)
        self._info = info

    def info(self) -> ErrorInfo:
        """Return the called backend's error."""
        return self._info


class RegistryCaller:
    """Calls the backends of a registry in the thread of the calling run."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def __call__(self, model: str, request: Request, context: RunContext) -> Iterator[Event]:
        """Yield the called backend's events, but for usage, which the server adds at the end.

        :raises InvalidRequestError: for a cycle, or a request that the backend cannot take.
        :raises BackendError: if the call fails.
        :raises Cancelled: if the run is cancelled meanwhile.
        :raises TypeError: if ``request`` is none, or ``model`` no name.
        """
        if not isinstance(model, str):
            raise TypeError(f"context.call: expected the name of a model, got {shown(model)}")
        if not isinstance(request, _REQUESTS):
            raise TypeError(
                f"context.call: expected a request of the contract, got {shown(request)}"
            )
        try:
            resolved = self._registry.resolve(model)
        except ServerError as error:
            raise CallFailedError(error.info()) from error
        if resolved.name in context.chain:
            path = " -> ".join((*context.chain, resolved.name))
            raise InvalidRequestError(
                f"backends call each other in a circle: {path}", param="model"
            )
        named = replace(request, model=resolved.model)
        fitted = fit(named, resolved.backend.capabilities, resolved.name)
        child = context.child(resolved.name, seed_of(fitted))
        with closing(run_events(resolved.backend, fitted, child)) as events:
            for event in events:
                context.raise_if_cancelled()  # several may come of one look at the called run
                if isinstance(event, UsageCounted):
                    context.called_usage.append(event)
                elif isinstance(event, Failed):
                    if context.cancelled:
                        raise Cancelled(context.cancellation.reason or "cancelled")
                    raise CallFailedError(event.error)
                else:
                    yield event


def seed_of(request: Request) -> int | None:
    """Return the request's seed, if its kind has one and it is set."""
    if isinstance(request, (CompletionRequest, ChatRequest)):
        return request.sampling.seed
    return None
