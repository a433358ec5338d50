"""``GET /readyz``: whether the server can answer now, and if not, why."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict

from flask import Response, jsonify

from caesar_server.contract.backend import Health
from caesar_server.errors import BackendLoadError, ShuttingDownError
from caesar_server.registry import BackendReport, Registry
from caesar_server.store.base import Store, StoreError
from caesar_server.store.blobs.base import BlobStore
from caesar_server.web.services import services

logger = logging.getLogger(__name__)

#: What the contract gives ``health()``.
LIMIT_S = 1.0
#: As much of a message as is shown.
MAX_CHARS = 500


class ReadinessView:
    """The view, and the checks that never came back."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        """:param limit_s: how long one look takes at most, whatever the backends do."""
        self._checks = HealthChecks(limit_s)

    def show_readiness(self) -> Response:
        """``GET /readyz``: 200 if the default backend can answer, else 503, with the reasons.

        The first look loads the default backend: nobody knows before whether it can answer.  One
        that takes long goes on loading while the answer is 503.
        """
        parts = services()
        registry, store = parts.registry, parts.store
        checks: dict[str, Callable[[], Health]] = {
            f"backend {registry.default}": lambda: _default_health(registry),
            **{f"backend {name}": backend.health for name, backend in registry.loaded().items()},
        }
        states = self._checks.run(
            {
                **checks,
                "store": lambda: _store_health(store),
                "files": lambda: _files_health(parts.blobs),
            }
        )
        store_state, files_state = states.pop("store"), states.pop("files")
        loaded = registry.loaded()
        backends = {
            name: state
            for key, state in states.items()
            if (name := key.removeprefix("backend ")) in loaded
        }
        failed = [report for report in registry.reports() if report.state == "failed"]
        reasons = list(_reasons(registry, backends, store_state, failed))
        body = {
            "status": "not ready" if reasons else "ready",
            "reasons": reasons,
            "default_backend": registry.default,
            "backends": {name: asdict(state) for name, state in backends.items()},
            "store": asdict(store_state),
            # without effect on the rest: most requests name no file
            "files": asdict(files_state),
            # what an exception said stays in the log: nobody wrote it to be seen from outside
            "failed": {report.name: report.reason for report in failed},
            "warnings": list(registry.warnings),
        }
        response = jsonify(body)
        response.status_code = 503 if reasons else 200
        return response


def _reasons(
    registry: Registry,
    backends: Mapping[str, Health],
    store: Health,
    failed: list[BackendReport],
) -> Iterator[str]:
    """Yield why nothing can be answered."""
    default = registry.default
    failure = next((report.reason for report in failed if report.name == default), None)
    if failure is not None:
        yield f"the default backend {default} could not be loaded: {failure}"
    elif default not in backends:
        yield f"the default backend {default} is being loaded"
    elif backends[default].status == "down":
        yield f"the default backend {default} is down: {backends[default].message}"
    if store.status == "down":
        yield f"the store is down: {store.message}"


def _default_health(registry: Registry) -> Health:
    """Load the default backend, or wait for who does so already, and ask it."""
    try:
        return registry.load(registry.default).health()
    except (BackendLoadError, ShuttingDownError) as error:
        # logged where it failed; the registry's report has the reason
        return Health("down", error.message)


def _store_health(store: Store) -> Health:
    try:
        store.check()
    except StoreError as error:
        # its sentence names files and hosts, which are the operator's
        logger.error("the store of the jobs cannot be used: %s", error)
        return Health("down", "it cannot be read and written now; see the log")
    return Health()


def _files_health(blobs: BlobStore) -> Health:
    try:
        blobs.check()
    except StoreError as error:
        logger.error("uploaded files cannot be used: %s", error)
        return Health("degraded", "files cannot be uploaded and read now; see the log")
    return Health()


class HealthChecks:
    """Runs checks that may hang, beside each other and each in a thread of its own.

    One that does not come back is not started again until it does, so that a probe every few
    seconds does not pile up threads.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._lock = threading.Lock()
        self._under_way: dict[str, _Check] = {}

    def run(self, checks: Mapping[str, Callable[[], Health]]) -> dict[str, Health]:
        """Return what each check says; ``down`` if it raises or is not done in time.

        :param checks: by what they are called in the log.
        """
        until = time.monotonic() + self._limit_s
        begun = {name: self._begin(name, check) for name, check in checks.items()}
        return {
            name: check.result(max(0.0, until - time.monotonic())) for name, check in begun.items()
        }

    def _begin(self, name: str, call: Callable[[], Health]) -> _Check:
        with self._lock:
            check = self._under_way.get(name)
            if check is not None and check.is_under_way:
                return check
            check = self._under_way[name] = _Check(name, call)
            return check


class _Check:
    def __init__(self, name: str, call: Callable[[], Health]) -> None:
        self._name = name
        self._call = call
        self._began = time.monotonic()
        self._done = threading.Event()
        self._health = Health()
        # A daemon: one that hangs must not keep the process from ending.
        threading.Thread(target=self._run, name=f"caesar-health {name}", daemon=True).start()

    @property
    def is_under_way(self) -> bool:
        return not self._done.is_set()

    def result(self, timeout_s: float) -> Health:
        if self._done.wait(timeout_s):
            return self._health
        return Health("down", f"no answer for {time.monotonic() - self._began:.1f} s")

    def _run(self) -> None:
        try:
            self._health = _checked(self._call())
        except BaseException as error:
            # A plugin's SystemExit too: it would end this thread without a word.
            logger.exception("%s: the health check raised", self._name)
            self._health = Health("down", f"the check raised {type(error).__name__}; see the log")
        finally:
            self._done.set()


def _checked(health: object) -> Health:
    """Return what a plugin says about itself, if it is what the contract wants."""
    if not isinstance(health, Health) or health.status not in ("ok", "degraded", "down"):
        return Health("down", "the check returned no Health")
    return Health(health.status, str(health.message)[:MAX_CHARS])
