"""gunicorn with one app and one socket, both given by ``serve``."""

from __future__ import annotations

import logging
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flask import Flask
from gunicorn.app.base import BaseApplication  # type: ignore[import-untyped]

from caesar_server.app import create_app
from caesar_server.cli.gunicorn_options import bind_address, gunicorn_options
from caesar_server.cli.plugins.reload import GRACE_S, watch_sources
from caesar_server.cli.workers.master import Master
from caesar_server.errors import SettingsError
from caesar_server.settings import Settings
from caesar_server.web.access.keyring import Latch

if TYPE_CHECKING:
    from caesar_server.mock.scopes import Scopes

logger = logging.getLogger(__name__)


def _stay_at_hangup(arbiter: Any) -> None:
    """Let SIGHUP change nothing: another worker would know no rule, request or turned clock."""

    def stay(*_: Any) -> None:
        logger.warning(
            "SIGHUP changes nothing in a mock, whose process is not replaced; "
            "POST /_mock/reset forgets rules and requests"
        )

    signal.signal(signal.SIGHUP, stay)


class GunicornApp(BaseApplication):  # type: ignore[misc]
    """What gunicorn's master runs; each worker makes an app of its own after the fork."""

    def __init__(
        self,
        settings: Settings,
        listener: socket.socket | None,
        read_again: Callable[[], Settings],
        *,
        watch: bool = False,
        mock: Scopes | None = None,
        ready: Callable[[Any], None] | None = None,
    ) -> None:
        """:param listener: a listening socket, which gunicorn takes over; None if systemd has
            passed some, which gunicorn finds.

        :param read_again: returns the settings as they are now, or raises ``SettingsError``.
        :param watch: start a new worker when the source of a plugin changes.
        :param mock: of a mock server: what it answers by.
        :param ready: called with the worker, in its process, once it is about to answer.
        """
        self._watch = watch
        self._mock = mock
        self._ready = ready
        self._settings = settings
        self._read_again = read_again
        # shared with all workers, those too that are forked later
        self._keys_required = Latch()
        # what the settings said of the address when it was taken; nothing if systemd chose it
        self._listens_on = None if listener is None else bind_address(settings)
        if listener is None:
            self._address = bind_address(settings)  # not listened on
        else:
            self._address = f"fd://{listener.detach()}"
        super().__init__()

    def load_config(self) -> None:
        """Set what ``gunicorn_options`` says; gunicorn's own file and variables are not read."""
        settings = self._settings
        if self._watch:
            grace_s = min(GRACE_S, settings.graceful_timeout_s)
            settings = replace(settings, graceful_timeout_s=grace_s)
        options = gunicorn_options(settings, is_relieved=True, is_mock=self._mock is not None)
        for name, value in options.items():
            self.cfg.set(name, value)
        self.cfg.set("bind", self._address)
        if self._watch:
            self._watch_sources()
        if self._ready is not None:
            self._after_init(self._ready)
        if self._mock is not None:
            self.cfg.set("when_ready", _stay_at_hangup)

    def _watch_sources(self) -> None:
        # Byte code is told from its source by size and whole seconds: it may be that of a version
        # which was saved and tried a moment before.
        sys.dont_write_bytecode = True
        self._after_init(watch_sources)

    def _after_init(self, function: Callable[[Any], None]) -> None:
        """Call a function in each worker once it is set up, after what is called there already."""
        before = self.cfg.post_worker_init

        def post_worker_init(worker: Any) -> None:
            before(worker)
            function(worker)

        self.cfg.set("post_worker_init", post_worker_init)

    def run(self) -> None:
        """Serve until a signal ends it."""
        Master(self).run()

    def read_settings(self) -> bool:
        """Read the settings again, on SIGHUP; return whether new workers are to begin.

        Wrong ones are logged and the old ones stay.
        """
        try:
            self._settings = self._read_again()
        except SettingsError as error:
            for problem in error.problems:
                logger.error("the settings stay as they were: %s", problem)
            # whoever writes a plugin wants to see it in any case
            return self._watch
        asked = bind_address(self._settings)
        if self._listens_on not in (None, asked):
            logger.warning(
                "host and port stay as they were until the server is started anew: it listens on "
                "%s, and the settings say %s now",
                self._listens_on,
                asked,
            )
        return True

    def reload(self) -> None:
        """Configure gunicorn by the settings as they are now.

        The address stays in any case: the socket is open, perhaps on a port below 1024.
        """
        self.do_load_config()

    def load(self) -> Flask:
        """Return a new app."""
        return create_app(self._settings, keys_required=self._keys_required, mock=self._mock)
