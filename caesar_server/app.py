"""``create_app``: the only place where the parts are put together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from flask import Flask, Request

from caesar_server.blueprints.compat import description as compat_description
from caesar_server.blueprints.compat import routes as compat
from caesar_server.blueprints.files import description as files_description
from caesar_server.blueprints.files import routes as files
from caesar_server.blueprints.ops import routes as ops
from caesar_server.blueprints.research import description as research_description
from caesar_server.blueprints.research import routes as research
from caesar_server.contract.context import Clock, Forwarded
from caesar_server.jobs.clock import SchedulingClock, SystemClock
from caesar_server.jobs.context import Observer
from caesar_server.jobs.detached import JobLimits
from caesar_server.jobs.files import Files
from caesar_server.jobs.runner import Runner, new_id
from caesar_server.registry import Registry
from caesar_server.settings import Settings, load_settings
from caesar_server.store.base import Store
from caesar_server.store.blobs.opening import open_blobs
from caesar_server.store.opening import kept_jobs, open_store
from caesar_server.web import errors, request_ids
from caesar_server.web.access import auth
from caesar_server.web.access.forwarding import forwarded_parts
from caesar_server.web.access.keyring import Keyring, Latch
from caesar_server.web.api_version import negotiation
from caesar_server.web.api_version.known import known_versions
from caesar_server.web.api_version.version import Versions
from caesar_server.web.description import Surface
from caesar_server.web.framework.application import Application
from caesar_server.web.gone import SocketWatch
from caesar_server.web.limiting import limits, quotas
from caesar_server.web.limiting.places import Places, most_streams
from caesar_server.web.limiting.rates import Rates
from caesar_server.web.observing import access_log
from caesar_server.web.observing.metrics import ServerMetrics
from caesar_server.web.observing.runs import RunObserver
from caesar_server.web.origins import cors, hosts
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
    versions: Versions | None = None,
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
    :param versions: the API versions that are spoken; None: all that this server knows.
    :raises SettingsError: if the settings do not make sense, or the store's database has not the
        tables of this version.  With ``strict_plugins`` the host
        calls ``registry.load_all()`` once it has forked, as ``caesar-server serve`` does.
    """
    settings = settings or load_settings().settings
    parts = _parts(
        settings,
        registry=registry,
        store=store or open_store(settings),
        clock=clock,
        keyring_latch=keys_required,
        mock=mock,
        versions=versions or known_versions(),
    )
    app = _new_flask(settings)
    app.extensions[EXTENSION] = parts
    _add_hooks(app, parts)
    described: list[Surface | Callable[[], Surface]] = [
        compat_description.SURFACE,
        research_description.SURFACE,
        files_description.SURFACE,
    ]
    if mock is not None:
        # not above: a server that is no mock shall not load it
        from caesar_server.blueprints.mock import control, wiring

        described.append(control.surface)
        end_faults = wiring.register(app, mock, parts.watch)
        app.extensions[EXTENSION] = replace(parts, closers=(end_faults, *parts.closers))
    app.register_blueprint(ops.create_blueprint(described))
    for prefix in compat.PREFIXES:
        app.register_blueprint(compat.create_blueprint(prefix))
    app.register_blueprint(files.create_blueprint())
    app.register_blueprint(research.create_blueprint())
    return app


def _parts(
    settings: Settings,
    *,
    registry: Registry | None,
    store: Store,
    clock: SchedulingClock | None,
    keyring_latch: Latch | None,
    mock: Scopes | None,
    versions: Versions,
) -> Services:
    """Make what the views work with; opens and starts nothing."""
    own_clock = SystemClock()
    clock = clock or own_clock
    # before a mock's clock stands in: keys expire by the real one
    keyring = Keyring.of(settings, clock, keyring_latch)
    metrics, watch = ServerMetrics(partial(_soon, own_clock)), SocketWatch()
    observer: Observer = RunObserver(metrics, clock.monotonic)
    stamp, forwarded = _stamps(clock), _forwarding(settings)
    settled: Callable[[str], None] = _settled
    if mock is not None:
        from caesar_server.blueprints.mock import seams, settling, times, wiring

        registry = registry or wiring.mock_registry(settings, mock)
        clock, observer = times.scoped(mock, clock, observer)
        stamp, forwarded = seams.stamps(mock, store), seams.forwarding(forwarded)
        settled = settling.settling(mock, store)
    registry = registry or Registry.from_entry_points(settings)
    blobs = open_blobs(settings)
    lent_files = Files(store, blobs)
    limit = max(1, settings.threads - RESERVED_THREADS)
    runner = Runner(
        store=store,
        registry=registry,
        clock=clock,
        limit=limit,
        feed_events=settings.feed_events,
        job_limits=_job_limits(settings, limit),
        max_answer_chars=settings.max_answer_chars,
        observer=observer,
        files=lent_files,
        housekeeping=lambda: _keep_house(settings, store, lent_files, clock),
    )
    return Services(
        settings=settings,
        registry=registry,
        store=store,
        runner=runner,
        clock=clock,
        watch=watch,
        keyring=keyring,
        places=Places(requests=limit, streams=settings.max_streams or most_streams(limit)),
        metrics=metrics,
        blobs=blobs,
        files=lent_files,
        versions=versions,
        settled=settled,
        attach_repeats=mock is None,
        stamp=stamp,
        forwarded=forwarded,
        closers=(
            *(runner.close, watch.close, registry.close),
            *(store.close, blobs.close, metrics.close, own_clock.close),
        ),
    )


def _job_limits(settings: Settings, limit: int) -> JobLimits:
    return JobLimits(
        threads=settings.job_threads or limit,
        queue_limit=settings.queue_limit,
        max_attempts=settings.max_attempts,
        lease_s=settings.lease_s,
        orphan_timeout_s=settings.orphan_timeout_s,
        run_here=settings.run_jobs,
        kept_jobs=kept_jobs(settings),
        kept_s=settings.stored_days * 24 * 60 * 60,
    )


def _new_flask(settings: Settings) -> Flask:
    app = Application("caesar_server")
    app.url_map.strict_slashes = False
    # or whoever doubles a slash is sent elsewhere, with a page of HTML
    app.url_map.merge_slashes = False
    app.config["MAX_CONTENT_LENGTH"] = settings.max_body_bytes
    return app


def _add_hooks(app: Flask, parts: Services) -> None:
    """Add what happens around each view, in this order before it."""
    settings = parts.settings
    request_ids.register(app)
    access_log.register(app, parts.metrics, parts.clock.monotonic)
    errors.register(app)
    hosts.register(app, settings, parts.keyring)
    cors.register(app, settings)
    auth.register(app, parts.keyring)
    negotiation.register(app, parts.versions, settings.api_version)
    limits.register(app, settings, parts.places, Rates(settings.limits_storage))
    quotas.register(app, settings)


def _keep_house(settings: Settings, store: Store, files: Files, clock: Clock) -> None:
    """Forget what nobody can use any more, now and then."""
    kept_s = settings.brainstorm_expiry_s + _TOLD_EXPIRED_S
    store.owned.prune_sessions(clock.time() - kept_s)
    files.sweep_if_due()


def _settled(job_id: str) -> None:
    """Wait for nothing: a job stands as it stands."""


def _soon(clock: SchedulingClock, callback: Callable[[], None]) -> None:
    try:
        clock.call_at(clock.monotonic() + _SOON_S, callback)
    except RuntimeError:
        callback()  # the clock is closed: the last request of the process


def _stamps(clock: Clock) -> Callable[[], Stamp]:
    return lambda: Stamp(new_id(), clock.time())


def _forwarding(settings: Settings) -> Callable[[Request], Forwarded]:
    if not settings.forward_headers:
        nothing = Forwarded()
        return lambda request: nothing
    return lambda request: forwarded_parts(request, settings)


#: For so long an expired brainstorm session is still known, and said to be expired.
_TOLD_EXPIRED_S = 3600.0
#: Seconds after which the other processes see what one has counted.
_SOON_S = 0.2
#: Threads that are never given to answers, so that ``/healthz`` and refusals find one.
RESERVED_THREADS = 4
