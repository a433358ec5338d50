"""One run of a backend as a well-formed sequence of events, whatever the backend does."""

from __future__ import annotations

from collections.abc import Generator, Iterator

from caesar_server.contract.backend import Backend
from caesar_server.contract.errors import BackendError, Cancelled, ErrorInfo
from caesar_server.contract.events import Completed, Event, Failed, UsageCounted
from caesar_server.contract.request import Request
from caesar_server.errors import CANCELLED, DEADLINE, SHUTDOWN, UNEXPECTED
from caesar_server.jobs.context import RunContext
from caesar_server.jobs.invariant import ContractBreach, Invariant

_ENDS = {"deadline": DEADLINE, "shutdown": SHUTDOWN}


def run_events(
    backend: Backend, request: Request, context: RunContext
) -> Generator[Event, None, None]:
    """Yield the events of one run; the last one is the only ``Completed`` or ``Failed``.

    An exception, a breach of the contract, a cancel and a passed deadline all become ``Failed``.
    The backend's iterator is closed in every case.  Closing this generator closes the backend's.
    """
    invariant = Invariant(request.choices)
    try:
        context.raise_if_cancelled()
        events = iter(backend.run(request, context))
        try:
            for event in events:
                context.raise_if_cancelled()
                invariant.check(event)
                if isinstance(event, (Completed, Failed)):
                    yield from _called_usage(context, event)
                    yield event
                    return
                yield event
        finally:
            _close(events, context)
        context.raise_if_cancelled()
        invariant.finish()
    except Cancelled as cancelled:
        yield Failed(_cancel_info(context.cancellation.reason or cancelled.reason))
    except BackendError as error:
        yield Failed(_cancelled_or(context, error.info()))
    except ContractBreach as breach:
        context.logger.error("%s broke the contract: %s", type(backend).__name__, breach)
        yield Failed(UNEXPECTED)
    except Exception:
        # A socket that a cancel closed raises all kinds of errors: they are the cancel's doing.
        if not context.cancelled:
            context.logger.exception("%s raised", type(backend).__name__)
        yield Failed(_cancelled_or(context, UNEXPECTED))


def _close(events: Iterator[Event], context: RunContext) -> None:
    """Close a generator; an iterator that is none has nothing to close."""
    close = getattr(events, "close", None)
    if close is None:
        return
    try:
        close()
    except Exception:
        # The run's end is decided already: a broken clean-up must not end it a second time.
        context.logger.exception("closing the backend's iterator raised")


def _called_usage(context: RunContext, last: Event) -> Iterator[Event]:
    """Yield the usage of calls to other backends, once, by the outermost run."""
    if context.called_usage and not context.chain[1:] and isinstance(last, Completed):
        yield UsageCounted(
            prompt_tokens=sum(usage.prompt_tokens for usage in context.called_usage),
            completion_tokens=sum(usage.completion_tokens for usage in context.called_usage),
        )


def _cancelled_or(context: RunContext, info: ErrorInfo) -> ErrorInfo:
    return _cancel_info(context.cancellation.reason) if context.cancelled else info


def _cancel_info(reason: str | None) -> ErrorInfo:
    return _ENDS.get(reason or "", CANCELLED)
