"""``create_app``: the only place where the parts are put together."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flask import Flask, Request

from caesar_server.blueprints.compat import description as compat_description
from caesar_server.blueprints.compat import routes as compat
from caesar_server.blueprints.ops import routes as ops
from caesar_server.contract.context import Clock, Forwarded
from caesar_server.jobs.clock import SchedulingClock, SystemClock
from caesar_server.jobs.detached import JobLimits
from caesar_server.jobs.runner import Runner
from caesar_server.registry import Registry
from caesar_server.settings import Settings, load_settings
from caesar_server.store.base import Store
from caesar_server.store.opening import kept_jobs, open_store
from caesar_server.web import cors, errors, hosts, request_ids
from caesar_server.web.access import auth, limits
from caesar_server.web.access.forwarding import forwarded_parts
from caesar_server.web.access.keyring import Keyring, Latch
from caesar_server.web.access.places import Places
from caesar_server.web.access.rates import Rates
from caesar_server.web.description import Surface
from caesar_server.web.gone import SocketWatch
from caesar_server.web.observing import access_log
from caesar_server.web.observing.metrics import ServerMetrics
from caesar_server.web.observing.runs import RunObserver
from caesar_server.web.services import EXTENSION, Services, Stamp

if TYPE_CHECKING:
    from caesar_server.mock.scopes import Scopes


def create_app(
    settings: Settings | None = None,
    registry: Registry | None = None,
    store: Store | None = None,
    clock: SchedulingClock | None = None,
    keys_required: Latch | None = None,
    mock: Scopes | None = None,
) -> Flask:
    """Return a new WSGI application; two of them may live in one process.

    Starts no thread and loads no plugin, so it may be called before a fork.  End it with
    ``app.extensions["caesar_server"].close()``.

    :param settings: None reads the settings file and the environment.
    :param registry: None looks for installed backends.
    :param store: None opens the one that the settings name; without a name, jobs are kept in
        memory.
    :param clock: None is the machine's.
    :param keys_required: a host that replaces its workers makes one before it forks and gives it
        to each: once one of them asked for API keys, so do its successors, whatever became of
        their file.
    :param mock: makes the server a mock of itself: calls are answered by the rules of these scopes,
        faults included, and ``/_mock`` controls them.  ``registry`` is then one of the mock alone
        unless it is given.
    :raises SettingsError: if the settings do not make sense, or the store's database has not the
        tables of this version.  With ``strict_plugins`` the host
        calls ``registry.load_all()`` once it has forked, as ``caesar-server serve`` does.
    """
    settings = settings or load_settings().settings
    if mock is not None:
        # not above: a server that is no mock shall not load it
        from caesar_server.blueprints.mock import control, seams, wiring

        registry = registry or wiring.mock_registry(settings, mock)
    registry = registry or Registry.from_entry_points(settings)
    store = store or open_store(settings)
    own_clock = SystemClock()
    clock = clock or own_clock
    limit = max(1, settings.threads - RESERVED_THREADS)
    places = Places(requests=limit, streams=settings.max_streams or limit)
    keyring = Keyring.of(settings, clock, keys_required)
    metrics = ServerMetrics()
    runner = Runner(
        store=store,
        registry=registry,
        clock=clock,
        limit=limit,
        feed_events=settings.feed_events,
        job_limits=JobLimits(
            threads=settings.job_threads or limit,
            queue_limit=settings.queue_limit,
            max_attempts=settings.max_attempts,
            lease_s=settings.lease_s,
            run_here=settings.run_jobs,
            kept_jobs=kept_jobs(settings),
            kept_s=settings.stored_days * 24 * 60 * 60,
        ),
        observer=RunObserver(metrics, clock.monotonic),
    )
    watch = SocketWatch()
    stamp, forwarded = _stamps(clock), _forwarding(settings)
    if mock is not None:
        stamp, forwarded = seams.stamps(mock, store), seams.forwarding(forwarded)
    app = _SynchronousFlask("caesar_server", static_folder=None)
    app.url_map.strict_slashes = False
    # or whoever doubles a slash is sent elsewhere, with a page of HTML
    app.url_map.merge_slashes = False
    app.json.sort_keys = False  # type: ignore[attr-defined]
    app.config["MAX_CONTENT_LENGTH"] = settings.max_body_bytes
    services = Services(
        settings=settings,
        registry=registry,
        store=store,
        runner=runner,
        clock=clock,
        watch=watch,
        keyring=keyring,
        places=places,
        metrics=metrics,
        stamp=stamp,
        forwarded=forwarded,
        closers=(runner.close, watch.close, registry.close, store.close, own_clock.close),
    )
    app.extensions[EXTENSION] = services
    request_ids.register(app)
    access_log.register(app, metrics, clock.monotonic)
    errors.register(app)
    hosts.register(app, settings, keyring)
    cors.register(app, settings)
    auth.register(app, keyring)
    limits.register(app, settings, places, Rates(settings.limits_storage))
    described: list[Surface | Callable[[], Surface]] = [compat_description.SURFACE]
    if mock is not None:
        described.append(control.surface)
        end_faults = wiring.register(app, mock, watch)
        app.extensions[EXTENSION] = replace(services, closers=(end_faults, *services.closers))
    app.register_blueprint(ops.create_blueprint(described))
    for prefix in compat.PREFIXES:
        app.register_blueprint(compat.create_blueprint(prefix))
    return app


def _stamps(clock: Clock) -> Callable[[], Stamp]:
    return lambda: Stamp(str(uuid.uuid4()), clock.time())


def _forwarding(settings: Settings) -> Callable[[Request], Forwarded]:
    return lambda request: forwarded_parts(request, settings)


class _SynchronousFlask(Flask):
    """A Flask that does not look at each call whether one of its functions is a coroutine."""

    def ensure_sync(self, func: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``func``: nothing here is asynchronous."""
        return func


#: Threads that are never given to answers, so that ``/healthz`` and refusals find one.
RESERVED_THREADS = 4
