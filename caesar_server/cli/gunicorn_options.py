"""gunicorn's settings for this server, for ``serve`` and for ``gunicorn.conf.py``."""

from __future__ import annotations

import math
import sys
from typing import Any

from caesar_server.errors import SettingsError
from caesar_server.settings import Settings

#: Connections of a worker beyond its threads; with none of them gunicorn switches keep-alive off.
_SPARE_CONNECTIONS = 200
#: A worker that gives no sign for so long is killed.  The sign comes from its main thread, so slow
#: requests do not matter, but a plugin that blocks the interpreter does.
_SIGN_OF_LIFE_S = 60
#: Longer than the 5 seconds for which httpx, and with it openai-python, keeps idle connections: so
#: it never sends a request on one that is being closed.
_KEEP_ALIVE_S = 10
#: The exit status with which a worker tells gunicorn not to start another one.
_BOOT_FAILED = 3


def gunicorn_options(settings: Settings) -> dict[str, Any]:
    """Return gunicorn's settings by name, all but the address."""
    return {
        "worker_class": "gthread",
        "workers": settings.workers,
        "threads": settings.threads,
        "worker_connections": settings.threads + _SPARE_CONNECTIONS,
        "timeout": _SIGN_OF_LIFE_S,
        "graceful_timeout": math.ceil(settings.graceful_timeout_s),
        "keepalive": _KEEP_ALIVE_S,
        "loglevel": settings.log_level,
        # or each instance would open one in the home directory
        "control_socket_disable": True,
        "proc_name": "caesar-server",
        "post_worker_init": load_strictly,
        "worker_exit": close_app,
    }


def bind_address(settings: Settings) -> str:
    """Return ``host:port`` as gunicorn wants it, an IPv6 address in brackets.

    >>> bind_address(Settings(host="::1"))
    '[::1]:8000'
    """
    host = settings.host.strip("[]")
    return f"[{host}]:{settings.port}" if ":" in host else f"{host}:{settings.port}"


def load_strictly(worker: Any) -> None:
    """In a new worker: load all backends if ``strict_plugins`` wants it, or end the server."""
    services = _services(worker)
    if services is None or not services.settings.strict_plugins:
        return
    try:
        services.registry.load_all()
    except SettingsError as error:
        for problem in error.problems:
            worker.log.critical("%s", problem)
        sys.exit(_BOOT_FAILED)


def close_app(server: Any, worker: Any) -> None:
    """In a worker that ends: cancel its runs, close its backends and its store."""
    services = _services(worker)
    if services is not None:
        services.close()


def _services(worker: Any) -> Any:
    """Return the parts of the worker's app; None before there is one, or if it is wrapped."""
    app = getattr(worker, "wsgi", None)
    return getattr(app, "extensions", {}).get("caesar_server")
