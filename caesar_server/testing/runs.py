"""One run of a backend outside of a server, for the tests of the backend."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from caesar_server.contract import Backend, Clock, Event, Request
from caesar_server.contract.context import StoredFile, Update
from caesar_server.jobs.calls import seed_of
from caesar_server.jobs.context import Caller, RunContext
from caesar_server.jobs.running.run import run_events


def make_context(
    *,
    clock: Clock | None = None,
    timeout_s: float | None = None,
    seed: int | None = None,
    restored: Mapping[str, Any] | None = None,
    files: Mapping[str, StoredFile] | None = None,
    collections: Mapping[str, Sequence[StoredFile]] | None = None,
    updates: Callable[[], Sequence[Update]] | None = None,
    checkpoints: list[Mapping[str, Any]] | None = None,
    caller: Caller | None = None,
) -> RunContext:
    """Return a context as ``run()`` gets it; its ``cancel()`` is what the server would call.

    :param clock: None is the machine's; a :class:`~caesar_server.testing.FakeClock` is another.
    :param timeout_s: seconds from now until the deadline.
    :param seed: makes ``context.random`` repeat itself.
    :param restored: the checkpoint of an earlier attempt.
    :param files: the request's files by id.
    :param collections: the files of the request's collections by collection id.
    :param updates: what ``context.updates()`` does; None: there are none.
    :param checkpoints: gets the state of each checkpoint, as it comes back from JSON.
    :param caller: what ``context.call`` does: a function of model, request and context that yields
        the events; None: it refuses.
    """

    def save(state: Mapping[str, Any]) -> None:
        back = json.loads(json.dumps(state, allow_nan=False))
        if checkpoints is not None:
            checkpoints.append(back)

    return RunContext(
        str(uuid.uuid4()),
        attempt=1 if restored is None else 2,
        clock=clock,
        timeout_s=timeout_s,
        seed=seed,
        restored=restored,
        files=files,
        collections=collections,
        updates=updates,
        save_checkpoint=save,
        caller=caller,
    )


def collect_events(
    backend: Backend, request: Request, context: RunContext | None = None
) -> list[Event]:
    """Return the events of a run as the server would see them.

    An exception, a breach of the contract and a cancel have become ``Failed``, the last event.

    :param backend: open, if it needs to be.
    """
    return list(run_events(backend, request, context or make_context(seed=seed_of(request))))
