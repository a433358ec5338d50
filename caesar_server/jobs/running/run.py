"""One run of a backend as a well-formed sequence of events, whatever the backend does."""

from __future__ import annotations

import inspect
import math
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from typing import NoReturn

from caesar_server.contract.backend import Backend
from caesar_server.contract.errors import BackendError, Cancelled, ErrorInfo
from caesar_server.contract.events import (
    Completed,
    Event,
    Failed,
    Told,
    UsageCounted,
    events_of,
)
from caesar_server.contract.request import FollowUpRequest, Request
from caesar_server.errors import (
    CANCELLED,
    DEADLINE,
    SHUTDOWN,
    UNEXPECTED,
    AnswerTooLongError,
)
from caesar_server.jobs.adapt import fit
from caesar_server.jobs.context import RunContext
from caesar_server.jobs.files.inlining import inlined, is_inlined
from caesar_server.jobs.files.named import collection_ids_of, file_ids_of
from caesar_server.jobs.running.invariant import ContractBreach, Invariant, check_error
from caesar_server.jobs.running.values import shown
from caesar_server.store.base import StoreError

#: So many events go on together at most: between two batches a cancel is looked for.
AT_ONCE = 256
_ENDS = {"deadline": DEADLINE, "shutdown": SHUTDOWN, "handover": SHUTDOWN}
#: What is not an error of the code that it comes out of, as a rule.
_ENDINGS = (GeneratorExit, KeyboardInterrupt)


def run_events(
    backend: Backend, request: Request, context: RunContext
) -> Generator[Event, None, None]:
    """Yield the events of :func:`run_batches` one by one."""
    with closing(run_batches(backend, request, context)) as batches:
        for batch in batches:
            yield from batch


def run_batches(
    backend: Backend,
    request: Request,
    context: RunContext,
    fresh: Callable[[Event], Event | None] | None = None,
) -> Generator[Sequence[Event], None, None]:
    """Yield the events of one run, those together that the backend gave together.

    The last batch is the only ``Completed`` or ``Failed``, and nothing else.  None is longer than
    :data:`AT_ONCE`; one is empty where the backend's was: it is going to wait.
    An exception, a breach of the contract, too long a text, a cancel and a passed deadline all
    become ``Failed``.
    The backend's iterator is closed in every case.  Closing this generator closes the backend's.

    :param fresh: returns what is new of an event, or None; for a run that begins again.  It may
        raise :class:`~caesar_server.jobs.running.invariant.ContractBreach`.
    :raises StoreError: if the store cannot be used for what the run asks of it.
    """
    try:
        last = yield from _batches(backend, request, context, fresh)
    except (*_ENDINGS, StoreError):
        raise  # the last is none of the backend's: it came out of what it asked the context for
    except BaseException as error:  # noqa: BLE001 - logged, unless the caller may be told all of it
        # SystemExit and asyncio.CancelledError too: a plugin must not end a thread of the server.
        last = Failed(_error_info(error, context, type(backend).__name__))
    if isinstance(last, Completed):
        for event in _called_usage(context):
            if fresh is None or fresh(event) is not None:
                yield (event,)
    yield (last,)


def _batches(
    backend: Backend,
    request: Request,
    context: RunContext,
    fresh: Callable[[Event], Event | None] | None,
) -> Generator[Sequence[Event], None, Completed | Failed]:
    """Yield the events before the terminal one, and return that once the backend is done.

    So nobody hears of the end before the backend has cleaned up.
    """
    check = Invariant(request.choices, context.max_answer_chars).check
    cancellation, monotonic = context.cancellation, context.clock.monotonic
    deadline = math.inf if context.deadline is None else context.deadline
    context.raise_if_cancelled()
    try:
        made: object = backend.run(_taken(request, backend, context), context)
        events = _iterator(made)
    except _ENDINGS as error:
        _raise_disarmed(error)
    try:
        while True:
            try:
                told = next(events)
            except StopIteration:
                break
            except _ENDINGS as error:
                _raise_disarmed(error)
            for part in _parts(events_of(told)):
                # what context.cancelled says, in a third of the time: this is done for each token
                if cancellation.reason is not None or monotonic() >= deadline:
                    context.raise_if_cancelled()
                passed, last, refusal = _passed(part, check, fresh)
                if passed or not part:
                    yield passed
                if refusal is not None:
                    raise refusal
                if last is not None:
                    if cancellation.reason is not None or monotonic() >= deadline:
                        context.raise_if_cancelled()  # meanwhile: what came before may wait long
                    return last
    finally:
        _close(events, context)
    context.raise_if_cancelled()
    raise ContractBreach("run() ended without a terminal event; yield Completed() at last")


def _parts(events: Sequence[Event]) -> Iterable[Sequence[Event]]:
    """Return events in parts of at most :data:`AT_ONCE`."""
    if len(events) <= AT_ONCE:
        return (events,)
    return (events[at : at + AT_ONCE] for at in range(0, len(events), AT_ONCE))


def _passed(
    part: Sequence[Event],
    check: Callable[[Event], None],
    fresh: Callable[[Event], Event | None] | None,
) -> tuple[Sequence[Event], Completed | Failed | None, Exception | None]:
    """Return what of a batch may be told: its new events, its terminal one, why it was refused.

    What comes before an event that is refused is told all the same, as if it had come alone.
    """
    passed: list[Event] = []
    try:
        for event in part:
            check(event)
            if fresh is not None:
                new = fresh(event)
                if new is None:
                    continue
                event = new
            if type(event) is Completed or type(event) is Failed:
                return passed, event, None
            passed.append(event)
    except (ContractBreach, AnswerTooLongError) as error:
        return passed, None, error
    return passed, None, None


def _iterator(made: object) -> Iterator[Told]:
    """Return an iterator over what ``run()`` returned.

    :raises ContractBreach: if there is nothing to iterate over.
    """
    if not isinstance(made, Iterable):
        if inspect.iscoroutine(made):
            made.close()  # or Python warns that nobody awaited it, of which this tells already
        raise ContractBreach(f"run() returned {shown(made)} and no events; yield them")
    return iter(made)


def _taken(request: Request, backend: Backend, context: RunContext) -> Request:
    """Return a request as the backend takes it; most were made fit when they came in.

    A job keeps a follow-up, and a request whose files become text, as it was asked: made fit, its
    question could not be shown any more.

    :raises InvalidRequestError: if the backend cannot take it.
    """
    able = backend.capabilities
    name = next(reversed(context.chain), "")
    if is_inlined(request, able) and _is_lent(request, context):
        found = {file.id: file for file in context.files.values()}
        for members in context.collections.values():
            found |= {file.id: file for file in reversed(members)}
        files = tuple(found.values())
        request = inlined(request, able, name, files, lambda file: file.path.read_bytes())
    elif not isinstance(request, FollowUpRequest):
        return request
    return fit(request, able, name)


def _is_lent(request: Request, context: RunContext) -> bool:
    """Return whether the run has the files that its request names; not so outside of a server."""
    return set(file_ids_of(request)) <= set(context.files) and set(
        collection_ids_of(request)
    ) <= set(context.collections)


def _error_info(error: BaseException, context: RunContext, backend: str) -> ErrorInfo:
    """Return what a run failed with, and log what only the operator may see."""
    if isinstance(error, Cancelled):
        return cancel_info(context.cancellation.reason or error.reason)
    if context.cancelled:
        # A socket that a cancel closed raises all kinds of errors: they are the cancel's doing.
        return cancel_info(context.cancellation.reason)
    if isinstance(error, AnswerTooLongError):
        context.logger.warning("%s was stopped: %s", backend, error)
        return error.info()
    if isinstance(error, BackendError):
        try:
            info = error.info()
            check_error(info)
            return info
        except ContractBreach as breach:
            context.logger.error("%s broke the contract: %s", backend, breach, exc_info=error)
            return UNEXPECTED
        except Exception:
            # A plugin's own class may have forgotten to call the constructor of its base.
            context.logger.exception("%s raised %r, whose info() raised", backend, error)
            return UNEXPECTED
    if isinstance(error, ContractBreach):
        context.logger.error("%s broke the contract: %s", backend, error)
    else:
        context.logger.error("%s raised", backend, exc_info=error)
    return UNEXPECTED


def cancel_info(reason: str | None) -> ErrorInfo:
    """Return how a job ends that was cancelled for ``reason``."""
    return _ENDS.get(reason or "", CANCELLED)


def _close(events: Iterator[object], context: RunContext) -> None:
    """Close a generator; an iterator that is none has nothing to close."""
    close = getattr(events, "close", None)
    if close is None:
        return
    try:
        close()
    except BaseException as error:
        if _is_ctrl_c(error):
            raise
        # The run's end is decided already: a broken clean-up must not end it a second time.
        context.logger.exception("closing the backend's iterator raised")


def _raise_disarmed(error: BaseException) -> NoReturn:
    """Raise an ordinary error in place of one of :data:`_ENDINGS` that came out of a backend.

    Passed on as it is, it would end the thread, and with it the process.
    """
    if _is_ctrl_c(error):
        raise error
    raise RuntimeError(f"run() raised {type(error).__name__}") from error


def _is_ctrl_c(error: BaseException) -> bool:
    """Return whether a person wants to end the program: Python tells its main thread alone."""
    ours = threading.current_thread() is threading.main_thread()
    return ours and isinstance(error, KeyboardInterrupt)


def _called_usage(context: RunContext) -> Iterator[Event]:
    """Yield the usage of calls to other backends, once, by the outermost run."""
    if context.called_usage and not context.nested:
        yield UsageCounted(
            prompt_tokens=sum(usage.prompt_tokens for usage in context.called_usage),
            completion_tokens=sum(usage.completion_tokens for usage in context.called_usage),
        )
