"""How the views learn of the call that they answer without knowing the mock.

The gate puts the :class:`~caesar_server.mock.scopes.Held` of a request into its WSGI environ; what
the app calls in place of its own looks there.
"""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from flask import Request

from caesar_server.contract.context import Forwarded
from caesar_server.mock import native
from caesar_server.mock.answering.nothing import nothing_matched
from caesar_server.mock.calls import CALL_HEADER
from caesar_server.mock.scope import Scope
from caesar_server.mock.scopes import Held, Scopes
from caesar_server.store.base import Store, UnknownJobError
from caesar_server.store.owned.base import UnknownOwnedError
from caesar_server.web.errors import AnswerError
from caesar_server.web.incoming import incoming
from caesar_server.web.services import Services, Stamp, services

#: Of the WSGI environ: the ``Held`` of a request to an API route.
HELD_KEY = "caesar_server.mock.held"
#: Of the WSGI environ: how many stamps the request has had.
_STAMPS_KEY = "caesar_server.mock.stamps"
_MOST_GIVEN = 65_536


def held_of(environ: Mapping[str, Any]) -> Held | None:
    """Return the call of a request; None for one that the gate let pass."""
    held = environ.get(HELD_KEY)
    return held if isinstance(held, Held) else None


def own_account(scope: Scope) -> None:
    """Make the current request's jobs and files the scope's own, besides its caller's."""
    if scope.owner:
        asked = incoming()
        who = asked.caller
        account = f"{scope.owner} {who.account}" if who.account else scope.owner
        asked.caller = replace(who, account=account)


def stamps(scopes: Scopes, store: Store) -> Callable[[], Stamp]:
    """Return what makes id and creation time of jobs, the same for the same calls of a scope.

    So it does for what else a call makes, such as a file.  It raises an
    :class:`~caesar_server.web.errors.AnswerError` for a job of Caesar's own API for which there is
    no reply: the client would else be told only when it polls.
    """

    given = _Given()

    def stamp() -> Stamp:
        asked = incoming()
        environ = asked.environ
        held = held_of(environ)
        if held is None:
            id, created_at = scopes.get().stamp()
            return Stamp(_free(id, store), created_at)
        path = held.call.path
        own = native.is_native(path)
        asks = own and native.is_question(path)
        if asks and held.decision.reply is None:
            raise AnswerError(nothing_matched(held.scope.name, held.decision.nearest))
        while True:
            environ[_STAMPS_KEY] = place = environ.get(_STAMPS_KEY, 0) + 1
            id, created_at = held.scope.stamp(held.decision, place)
            # a job makes way for another after a reset, a file or a session does not
            if not own or native.begins_job(path) or given.add(id):
                break
        id = _free(id, store)
        if asks:
            course = scopes.courses.open(id, held, created_at)
            if held.call.stream:
                course.release()
        kind = native.kind_made(path) if own else None
        if kind is not None:
            held.scope.belongings.add(partial(_remove, services(), kind, asked.caller.account, id))
        return Stamp(id, created_at)

    return stamp


class _Given:
    """The last ids that were given away for good.  Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ids: OrderedDict[str, None] = OrderedDict()

    def add(self, id: str) -> bool:
        """Note an id; False if it was given away before."""
        with self._lock:
            if id in self._ids:
                return False
            self._ids[id] = None
            if len(self._ids) > _MOST_GIVEN:
                self._ids.popitem(last=False)
            return True


def _remove(parts: Services, kind: native.Made, account: str, id: str) -> None:
    """Remove what a call has made, if it is still there."""
    owned = parts.store.owned
    with suppress(UnknownOwnedError):
        if kind == "file":
            unused_key = owned.delete_file(account, id)
            if unused_key is not None:
                parts.blobs.delete(unused_key)
        elif kind == "collection":
            owned.delete_collection(account, id)
        else:
            owned.delete_session(account, id)


def forwarding(plain: Callable[[Request], Forwarded]) -> Callable[[Request], Forwarded]:
    """Return what tells the mock backend which call it answers.

    :param plain: makes what other backends see.
    """

    def forwarded(current: Request) -> Forwarded:
        parts = plain(current)
        headers = dict(parts.headers)
        held = held_of(current.environ)
        if held is not None:
            headers[CALL_HEADER] = held.call.id
        else:
            headers.pop(CALL_HEADER, None)
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
    # or the chat of the job before would be the new one's
    for follow_up in store.jobs(parent_id=job_id, limit=_MOST_GIVEN):
        store.delete(follow_up.id)
    store.delete(job_id)
    return job_id
