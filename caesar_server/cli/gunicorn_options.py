"""gunicorn's settings for this server, for ``serve`` and for ``gunicorn.conf.py``."""

from __future__ import annotations

import math
import sys
from typing import Any

from caesar_server.cli.workers import worker_base
from caesar_server.cli.workers.manners import (
    close_parts,
    grace_s,
    keep_what_is_loaded,
    services_of,
)
from caesar_server.errors import SettingsError
from caesar_server.settings import Settings
from caesar_server.web.observing.gunicorn_log import logger_class
from caesar_server.web.observing.shared.sharing import (
    drop_numbers,
    keep_numbers,
    place_numbers,
    share_numbers,
)

#: Connections of a worker beyond its threads; with none of them gunicorn switches keep-alive off.
_SPARE_CONNECTIONS = 200
#: A worker that gives no sign for so long is killed.  The sign comes from its main thread, so slow
#: requests do not matter, but a plugin that blocks the interpreter does.
_SIGN_OF_LIFE_S = 60
#: Longer than the 5 seconds for which httpx, and with it openai-python, keeps idle connections: so
#: it never sends a request on one that is being closed.
_KEEP_ALIVE_S = 10
#: For this long gunicorn lets a worker close its parts once what runs had its time.
_CLOSING_S = 7
_MAX_REQUEST_LINE_BYTES = 4094
_MAX_HEADERS = 100
_MAX_HEADER_BYTES = 8190
#: The exit status with which a worker tells gunicorn not to start another one.
_BOOT_FAILED = 3


def gunicorn_options(
    settings: Settings, *, is_relieved: bool = False, is_mock: bool = False
) -> dict[str, Any]:
    """Return gunicorn's settings by name, all but the address.

    :param is_relieved: whether the master is this server's own, which begins a worker's successor
        before it ends the worker.
    :param is_mock: whether it is a mock, which closes idle connections at once when it is to end:
        they are those of a suite that is over, and would make it wait.
    :raises SettingsError: if what ``worker_class`` needs is not installed.
    """
    base = worker_base(settings)
    # A subclass carries the settings: gunicorn itself has no place for them.
    worker = type(
        base.__name__,
        (base,),
        {
            "patience_s": settings.write_timeout_s,
            "grace_s": grace_s(settings),
            "ends_after_s": settings.graceful_timeout_s,
            "is_relieved": is_relieved,
            **({"idle_s": 0.0} if is_mock else {}),
        },
    )
    return {
        "worker_class": worker,
        "workers": settings.workers,
        "threads": settings.threads,
        "worker_connections": settings.threads + _SPARE_CONNECTIONS,
        "timeout": _SIGN_OF_LIFE_S,
        # a run that is deaf to its cancel shall not keep the worker from closing what it has
        "graceful_timeout": math.ceil(settings.graceful_timeout_s) + _CLOSING_S,
        "keepalive": _KEEP_ALIVE_S,
        # gunicorn's own values, written down because the manual names them
        "limit_request_line": _MAX_REQUEST_LINE_BYTES,
        "limit_request_fields": _MAX_HEADERS,
        "limit_request_field_size": _MAX_HEADER_BYTES,
        # A proxy on this machine passes on what its clients send: with SCRIPT_NAME they would reach
        # paths that it keeps from them, and one that does not fit is a 500 in HTML.
        "forwarder_headers": "",
        # one, since several that contradict each other are a 400
        "secure_scheme_headers": {"X-FORWARDED-PROTO": "https"},
        "max_requests": settings.max_requests,
        # not all workers at once
        "max_requests_jitter": settings.max_requests // 10,
        "loglevel": settings.log_level,
        "logger_class": logger_class(settings),
        # or each instance would open one in the home directory
        "control_socket_disable": True,
        "proc_name": "caesar-server",
        "on_starting": share_numbers,
        "pre_fork": place_numbers,
        "child_exit": keep_numbers,
        "on_exit": drop_numbers,
        "post_worker_init": begin_work,
        "worker_exit": close_app,
    }


def bind_address(settings: Settings) -> str:
    """Return ``host:port`` as gunicorn wants it, an IPv6 address in brackets.

    >>> bind_address(Settings(host="::1"))
    '[::1]:8000'
    """
    host = settings.host.strip("[]")
    return f"[{host}]:{settings.port}" if ":" in host else f"{host}:{settings.port}"


def begin_work(worker: Any) -> None:
    """In a new worker: end the server if the settings want backends that it cannot run.

    Otherwise let it look for jobs from now on.

    ``strict_plugins`` loads all of them.  Under gevent the default one is looked at in any case,
    and only here: no plugin may be imported before gevent has patched Python.
    """
    services = services_of(worker)
    if services is None:
        return
    try:
        if services.settings.strict_plugins:
            services.registry.load_all()
        elif services.settings.worker_class == "gevent":
            services.registry.refuse_cpu_bound_default()
    except SettingsError as error:
        for problem in error.problems:
            worker.log.critical("%s", problem)
        sys.exit(_BOOT_FAILED)
    keep_what_is_loaded()
    services.start()


def close_app(server: Any, worker: Any) -> None:
    """In a worker that ends: cancel its runs, close its backends and its store."""
    services = services_of(worker)
    if services is not None:
        close_parts(services)
