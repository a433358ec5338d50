"""gunicorn with one app and one socket, both given by ``serve``."""

from __future__ import annotations

import socket

from flask import Flask
from gunicorn.app.base import BaseApplication  # type: ignore[import-untyped]

from caesar_server.app import create_app
from caesar_server.cli.gunicorn_options import gunicorn_options
from caesar_server.settings import Settings


class GunicornApp(BaseApplication):  # type: ignore[misc]
    """What gunicorn's master runs; each worker makes an app of its own after the fork."""

    def __init__(self, settings: Settings, listener: socket.socket) -> None:
        """:param listener: a listening socket, which gunicorn takes over."""
        self._settings = settings
        self._address = f"fd://{listener.detach()}"
        super().__init__()

    def load_config(self) -> None:
        """Set what ``gunicorn_options`` says; gunicorn's own file and variables are not read."""
        for name, value in gunicorn_options(self._settings).items():
            self.cfg.set(name, value)
        self.cfg.set("bind", self._address)

    def load(self) -> Flask:
        """Return a new app."""
        return create_app(self._settings)
