"""The models that the servers list, fetched in the background."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from caesar_backend_upstream.http.line import Limits
from caesar_backend_upstream.http.problems import Problem
from caesar_backend_upstream.servers import Server
from caesar_backend_upstream.wire.bodies import json_or_none
from caesar_backend_upstream.wire.failures import Teller
from caesar_server.contract import InvalidRequestError, Model

logger = logging.getLogger(__name__)

#: A list is nothing to wait long for.
_LIMITS = Limits(connect_s=2.0, first_byte_s=4.0, gap_s=4.0, total_s=8.0)
_MOST_MODELS = 2000


class Catalog:
    """What the servers list, as it was when last asked.  Safe for threads.

    :param ttl_s: how long a list is taken as it is; 0: none is ever fetched.
    """

    def __init__(
        self,
        servers: Sequence[Server],
        ttl_s: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._servers = servers
        self._ttl_s = ttl_s
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._lists: dict[str, tuple[Model, ...]] = {}
        self._fetched_at: float | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def models(self) -> Sequence[Model]:
        """Return what is known now; has the lists fetched anew if they are old."""
        self.refresh()
        found: dict[str, Model] = {}
        for server in self._servers:
            for model in self._lists.get(server.name, ()):
                if server.answers_for(model.id):
                    found.setdefault(model.id, model)
        return tuple(found.values())

    def refresh(self) -> None:
        """Begin to fetch the lists, unless they are new or being fetched."""
        if not self._ttl_s:
            return
        with self._lock:
            now = self._monotonic()
            if self._closed or self._thread is not None:
                return
            if self._fetched_at is not None and now - self._fetched_at < self._ttl_s:
                return
            self._fetched_at = now
            self._thread = threading.Thread(
                target=self._fetch_all, name="caesar-upstream-models", daemon=True
            )
            self._thread.start()

    def first_model(self, server: Server) -> str:
        """Return the model to ask a server for where nobody has named one.

        :raises InvalidRequestError: if it does not tell.
        """
        known = self._lists.get(server.name)
        if not known and self._ttl_s:
            self._fetch(server)
            known = self._lists.get(server.name)
        if not known:
            raise InvalidRequestError(
                f"model: name one, for the upstream server {server.name} does not list any; "
                "upstream/NAME asks for NAME",
                param="model",
            )
        return known[0].id

    def close(self) -> None:
        """Fetch nothing more, and wait for what is under way; whoever closes ends its exchange."""
        with self._lock:
            self._closed = True
            thread = self._thread
        if thread is not None:
            thread.join()

    def _fetch_all(self) -> None:
        try:
            for server in self._servers:
                if self._closed:
                    return
                self._fetch(server)
        finally:
            with self._lock:
                self._thread = None

    def _fetch(self, server: Server) -> None:
        """Fetch a list; without one the last one stays."""
        if server.options.endpoint == "native":
            return
        path = "compat/models" if server.options.kind == "caesar" else "models"
        headers = {"User-Agent": "caesar-backend-upstream", "Accept": "application/json"}
        headers |= server.options.headers
        if server.key is not None:
            headers["Authorization"] = f"Bearer {server.key.value}"
        try:
            with server.transport.exchange(
                "GET", server.url_of(path), headers, None, limits=_LIMITS
            ) as reply:
                status, body = reply.status, json_or_none(reply.read_all())
        except Problem as problem:
            if problem.kind != "cancelled":
                failure = Teller(server.name, server.scrubber).problem(problem)
                logger.warning("no list of models: %s", failure.message)
            return
        models = _models(body) if status == 200 else None
        if models is None:
            logger.warning(
                "no list of models: the upstream server %s answered something else, with status %d",
                server.name,
                status,
            )
            return
        self._lists[server.name] = models


def _models(body: object) -> tuple[Model, ...] | None:
    """Return the models of a list; None if it is none."""
    # Together AI sends the list without an object around it.
    items = body.get("data") if isinstance(body, dict) else body
    if not isinstance(items, list):
        return None
    found: dict[str, Model] = {}
    for item in items[:_MOST_MODELS]:
        name = item.get("id") if isinstance(item, dict) else None
        if isinstance(name, str) and name and name.isprintable():
            found.setdefault(name, _model(item))
    return tuple(found.values())


def _model(item: Mapping[str, object]) -> Model:
    created, owner = item.get("created"), item.get("owned_by")
    return Model(
        str(item["id"]),
        created if type(created) is int else 0,
        owner if isinstance(owner, str) and owner and owner.isprintable() else "upstream",
    )
