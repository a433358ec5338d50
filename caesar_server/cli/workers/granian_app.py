"""The app for granian, which has no hooks for the end of its workers::

granian --interface wsgi --factory caesar_server.cli.workers.granian_app:create_app
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from multiprocessing.util import Finalize

from flask import Flask

from caesar_server import app as wiring
from caesar_server.cli.startup import check_settings, read_settings
from caesar_server.cli.workers.manners import (
    close_parts,
    grace_s,
    keep_what_is_loaded,
    let_runs_end,
)
from caesar_server.errors import SettingsError
from caesar_server.store.opening import prepare_store
from caesar_server.web.observing.logs import configure_logging
from caesar_server.web.services import Services, services_of

logger = logging.getLogger(__name__)

#: Signals with which granian ends a worker.
_ENDINGS = {signal.SIGTERM, signal.SIGINT}


def create_app() -> Flask:
    """Return the app of one of granian's workers, which must call this in its main thread.

    Told to stop, granian waits until all answers are complete, and closes nothing.  So streams get
    their last frame after ``graceful_timeout_s`` here, and backends and store are closed at the end
    of the process.

    :raises SystemExit: if the settings do not make sense, with all that is wrong.
    """
    try:
        settings = read_settings(None).settings
        configure_logging(settings)
        for sentence in check_settings(settings):
            logger.warning("%s", sentence)
        # each worker comes here; the first one does it, and the others find it done
        prepare_store(settings)
        app = wiring.create_app(settings)
        services = services_of(app)
        if settings.strict_plugins:
            services.registry.load_all()
    except SettingsError as error:
        raise SystemExit(f"caesar-server: {error}") from error
    # A worker is a process of multiprocessing, which leaves out what atexit knows.
    ending = _drain_at_the_end(services)
    keep_what_is_loaded()
    Finalize(None, _finish, (services, ending), exitpriority=0)
    services.start()
    return app


class _Ending:
    """When the process was told to stop, in seconds of the monotonic clock; None before."""

    began_at: float | None = None


def _finish(services: Services, ending: _Ending) -> None:
    """Let runs end for which no client holds a connection, then close all parts."""
    began_at = time.monotonic() if ending.began_at is None else ending.began_at
    let_runs_end(services, began_at + services.settings.graceful_timeout_s, lambda: None)
    close_parts(services)


def _drain_at_the_end(services: Services) -> _Ending:
    """Start a thread that begins to end what runs when the process is told to stop.

    granian sets its own signal handlers after this, in place of any other; but Python writes the
    number of each signal to a descriptor as well.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)

    ending = _Ending()

    def wait_for_the_end() -> None:
        while not _ENDINGS.intersection(os.read(reading, 64)):
            pass
        ending.began_at = time.monotonic()
        services.runner.drain(grace_s(services.settings))

    threading.Thread(target=wait_for_the_end, name="caesar-end", daemon=True).start()
    return ending
