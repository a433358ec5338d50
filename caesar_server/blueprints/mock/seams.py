"""How the views learn of the call that they answer without knowing the mock.

The gate puts the :class:`~caesar_server.mock.scopes.Held` of a request into its WSGI environ; the
two functions here, which the app calls in place of its own, look there.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any

from flask import Request, request

from caesar_server.contract.context import Forwarded
from caesar_server.mock.calls import CALL_HEADER
from caesar_server.mock.scopes import Held, Scopes
from caesar_server.store.base import Store, UnknownJobError
from caesar_server.web.services import Stamp

#: Of the WSGI environ: the ``Held`` of a request to an API route.
HELD_KEY = "caesar_server.mock.held"


def held_of(environ: Mapping[str, Any]) -> Held | None:
    """Return the call of a request; None for one that the gate let pass."""
    held = environ.get(HELD_KEY)
    return held if isinstance(held, Held) else None


def stamps(scopes: Scopes, store: Store) -> Callable[[], Stamp]:
    """Return what makes id and creation time of jobs, the same for the same calls of a scope."""

    def stamp() -> Stamp:
        held = held_of(request.environ)
        if held is None:
            id, created_at = scopes.get().stamp()
        else:
            id, created_at = held.scope.stamp(held.decision)
        return Stamp(_free(id, store), created_at)

    return stamp


def forwarding(plain: Callable[[Request], Forwarded]) -> Callable[[Request], Forwarded]:
    """Return what tells the mock backend which call it answers.

    :param plain: makes what other backends see.
    """

    def forwarded(current: Request) -> Forwarded:
        parts = plain(current)
        headers = {name: value for name, value in parts.headers.items() if name != CALL_HEADER}
        held = held_of(current.environ)
        if held is not None:
            headers[CALL_HEADER] = held.call.id
        return Forwarded(headers, parts.api_key)

    return forwarded


def _free(job_id: str, store: Store) -> str:
    """Return the id, after a reset freed it, or another if its job still runs."""
    try:
        job = store.job(job_id)
    except UnknownJobError:
        return job_id
    if job.finished_at is None:
        return str(uuid.uuid4())
    store.delete(job_id)
    return job_id
