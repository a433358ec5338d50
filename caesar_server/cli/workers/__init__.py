"""gunicorn's workers with this server's manners: one of threads, one of greenlets."""

from __future__ import annotations

import importlib

from caesar_server.errors import SettingsError
from caesar_server.settings import Settings

_GEVENT_WORKER = "caesar_server.cli.workers.gevent_worker"


def worker_base(settings: Settings) -> type:
    """Return the class of worker that ``worker_class`` names.

    :raises SettingsError: if what it needs is not installed.
    """
    if settings.worker_class == "gthread":
        from caesar_server.cli.workers.thread_worker import ServerWorker

        return ServerWorker
    try:
        found: type = importlib.import_module(_GEVENT_WORKER).GeventServerWorker
    # gunicorn raises a RuntimeError for a gevent that is missing or too old
    except (ImportError, RuntimeError) as error:
        raise SettingsError(
            [
                f"worker_class: gevent cannot be used here ({error}); "
                "pip install 'caesar-server[gevent]', or take gthread"
            ]
        ) from error
    return found
