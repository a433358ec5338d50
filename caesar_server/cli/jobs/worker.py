"""``caesar-server worker``: a process that runs jobs and takes no requests."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from caesar_server.cli.jobs.opened import check_database, located
from caesar_server.cli.startup import (
    announce,
    check_app,
    config_option,
    find_backends,
    read_settings,
    write_log,
)
from caesar_server.settings import LoadedSettings, Settings, check_host

if TYPE_CHECKING:
    from caesar_server.jobs.runner import Runner

logger = logging.getLogger(__name__)

#: Jobs at once where ``--concurrency`` and ``job_threads`` are not given.
_USUAL_CONCURRENCY = 4
#: How often it is looked whether the last job has ended, in seconds.
_LOOK_S = 0.1
_ENDING = (signal.SIGTERM, signal.SIGINT)


@click.command(short_help="Run jobs of durable backends in a process of its own.")
@click.option(
    "--concurrency",
    type=click.IntRange(1, 4096),
    metavar="N",
    help=f"Jobs at once.  [default: the setting job_threads, else {_USUAL_CONCURRENCY}]",
)
@click.option(
    "--health-port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Answer /healthz, /readyz and /metrics on this port; 0 takes a free one.",
)
@click.option(
    "--health-host",
    metavar="ADDRESS",
    help="Address of that port, 0.0.0.0 say for probes of Kubernetes.  [default: 127.0.0.1]",
)
@click.option(
    "--backend",
    "extra_backends",
    multiple=True,
    metavar="[NAME=]module:Class|FILE.py",
    help="A backend that is not installed as a package.  May be given several times.",
)
@click.option("--store", metavar="TEXT", help="Where jobs are kept.  [default: the setting store]")
@config_option
def worker(
    concurrency: int | None,
    health_port: int | None,
    health_host: str | None,
    extra_backends: tuple[str, ...],
    store: str | None,
    config: Path | None,
) -> None:
    """Run jobs that the servers on the same database take in, until SIGTERM or SIGINT.

    It then claims nothing more, gives what runs the time of graceful_timeout_s, and hands the rest
    back for others to go on with; a second signal hands it back at once.  A worker that is killed
    loses nothing either: others go on once lease_s has passed.

    Several may run, on several machines if the database is PostgreSQL.  Set run_jobs to false
    where the servers themselves are to run none.
    """
    given: dict[str, object] = {"extra_backends": extra_backends, "store": store}
    loaded = read_settings(config, {name: value for name, value in given.items() if value})
    write_log(None)
    _prepare(loaded)
    settings = replace(
        loaded.settings,
        run_jobs=True,
        job_threads=concurrency or loaded.settings.job_threads or _USUAL_CONCURRENCY,
    )
    from caesar_server.web.observing.logs import configure_logging

    configure_logging(settings)
    if health_host is None:
        _work(settings, "127.0.0.1", health_port)
        return
    if health_port is None:
        raise click.UsageError("--health-host needs --health-port")
    # By these it is judged who may ask: probes go by addresses, which are none of the server's.
    settings = replace(settings, host=health_host, allowed_hosts=())
    check_host(settings)
    _work(settings, health_host, health_port)


def _prepare(loaded: LoadedSettings) -> None:
    """Look whether there is something to work on and with, before anything is begun.

    :raises SettingsError: if not.
    """
    from caesar_server.store.opening import prepare_store

    check_database(loaded)
    registry = find_backends(loaded)
    if loaded.settings.strict_plugins:
        registry.load_all(open_backends=False)
    with located(loaded):
        check_app(loaded.settings)
        prepare_store(loaded.settings)


def _work(settings: Settings, health_host: str, health_port: int | None) -> None:
    from caesar_server.app import create_app
    from caesar_server.cli.jobs.health import serving_health
    from caesar_server.cli.workers.manners import grace_s
    from caesar_server.web.services import services_of

    app = create_app(settings)
    services = services_of(app)
    with _ending_signals() as asked, serving_health(app, health_host, health_port) as url:
        if settings.strict_plugins:
            services.registry.load_all()
        services.start()
        told = f"; health on {url}" if url else ""
        announce(settings, f"Working on jobs, {settings.job_threads} at once{told}")
        asked.wait()
        asked.clear()
        logger.info("claiming no more jobs; %d run", services.runner.running)
        services.runner.drain(grace_s(settings))
        _wait_for_the_last(services.runner, asked, grace_s(settings))
        services.close()
    logger.info("ended")


def _wait_for_the_last(runner: Runner, asked: threading.Event, grace_s: float) -> None:
    """Return when no job runs any more, when the time is over, or when asked again."""
    for _ in range(int(grace_s / _LOOK_S)):
        if runner.running == 0 or asked.wait(_LOOK_S):
            return


@contextmanager
def _ending_signals() -> Iterator[threading.Event]:
    """Set an event at each signal that asks for the end, instead of ending, in a ``with`` block."""
    asked = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:
        asked.set()

    def explain(number: int, frame: FrameType | None) -> None:
        threading.Thread(target=_explain_hang_up, name="caesar-signal", daemon=True).start()

    before = {number: signal.signal(number, ask) for number in _ENDING}
    before[signal.SIGHUP] = signal.signal(signal.SIGHUP, explain)
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _explain_hang_up() -> None:
    logger.warning("a worker reads its settings once: end it with SIGTERM and start it again")
