"""gunicorn's own log in the form of the server's."""

from __future__ import annotations

import sys
from typing import Any, ClassVar

from gunicorn.glogging import Logger  # type: ignore[import-untyped]

from caesar_server.settings import Settings
from caesar_server.web.observing.logs import configure_logging, formatter_for


class ServerLogger(Logger):  # type: ignore[misc]
    """gunicorn's logger; sets up the log of the whole process, also again after a SIGHUP."""

    settings: ClassVar[Settings] = Settings()

    def setup(self, cfg: Any) -> None:
        """Set up the log as the settings behind ``cfg`` want it."""
        super().setup(cfg)
        # After a SIGHUP gunicorn keeps this object; the new settings are those of the new class.
        settings: Settings = getattr(cfg.logger_class, "settings", self.settings)
        configure_logging(settings)
        for handler in self.error_log.handlers:
            stream = getattr(handler, "stream", sys.stderr)
            handler.setFormatter(formatter_for(settings.log_format, stream))


def logger_class(settings: Settings) -> type[ServerLogger]:
    """Return the class for gunicorn's ``logger_class``."""
    return type("ServerLogger", (ServerLogger,), {"settings": settings})
