"""Log records as text for a terminal or as JSON lines for a machine, and who writes them."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal, TextIO, TypeAlias

import msgspec

from caesar_server.settings import Settings
from caesar_server.web.observing.exchange import current_exchange

#: ``auto`` is text where a person looks at it, on a terminal, and JSON elsewhere.
LogFormat: TypeAlias = Literal["auto", "text", "json"]

#: What every record has; anything else was given with ``extra``.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_TIME = "%Y-%m-%d %H:%M:%S %z"


def configure_logging(settings: Settings, stream: TextIO | None = None) -> None:
    """Send the log of this process to ``stream``, in the form and from the level of the settings.

    Other packages are heard from ``warning`` on: at ``info`` some of them write URLs and headers.

    :param stream: None is stderr.
    """
    stream = stream or sys.stderr
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter_for(settings.log_format, stream))
    level = getattr(logging, settings.log_level.upper())
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(max(level, logging.WARNING))
    logging.getLogger("caesar_server").setLevel(level)
    logging.captureWarnings(True)


def formatter_for(log_format: LogFormat, stream: TextIO) -> logging.Formatter:
    """Return what writes records to ``stream``."""
    if is_json(log_format, stream):
        return JsonFormatter()
    return TextFormatter()


def is_json(log_format: LogFormat, stream: TextIO) -> bool:
    """Return whether ``stream`` gets JSON lines."""
    return log_format == "json" or (log_format == "auto" and not stream.isatty())


class JsonFormatter(logging.Formatter):
    """One JSON object a line, in ASCII.

    For what a stream cannot encode, in the locale C say, Python writes escapes that JSON does not
    know.

    ``time`` (UTC), ``level``, ``logger``, ``process``, ``message``, then what was given with
    ``extra``, the ids of request and job, and ``exception`` with the traceback.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its end."""
        line = {
            "time": _utc(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "process": record.process,
            "message": record.getMessage(),
            **_extra(record),
        }
        if (trace := _trace(self, record)) is not None:
            line["exception"] = trace
        return _json(line)


class TextFormatter(logging.Formatter):
    """One line for a person, ``key=value`` pairs at its end; a traceback follows, indented.

    What does not print, line breaks above all, is escaped: so nothing that a client sent can look
    like a line of its own.
    """

    def __init__(self) -> None:
        super().__init__(datefmt=_TIME)

    def format(self, record: logging.LogRecord) -> str:
        """Return the lines, without the last one's end."""
        head = (
            f"[{self.formatTime(record, self.datefmt)}] [{record.process}] [{record.levelname}] "
            f"{record.name}: {visible(record.getMessage())}"
        )
        line = " ".join((head, *(f"{key}={_word(value)}" for key, value in _extra(record).items())))
        if (trace := _trace(self, record)) is not None:
            line += "".join(f"\n  {visible(part)}" for part in trace.split("\n"))
        return line


def visible(text: str) -> str:
    """Return ``text`` in one line, with escapes for what does not print.

    >>> visible("a\\nb\\x1b[31m")
    'a\\\\nb\\\\x1b[31m'
    """
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    """Return what a record was given besides, and whose work it comes from."""
    extra = {key: value for key, value in vars(record).items() if key not in _STANDARD}
    exchange = current_exchange()
    if exchange is not None:
        if exchange.request_id is not None:
            extra.setdefault("request_id", exchange.request_id)
        if exchange.run is not None:
            extra.setdefault("job_id", exchange.run.job.id)
    return extra


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str | None:
    parts = []
    if record.exc_info and record.exc_info[0] is not None:
        parts.append(formatter.formatException(record.exc_info))
    if record.stack_info:
        parts.append(formatter.formatStack(record.stack_info))
    return "\n".join(parts) if parts else None


def _utc(created: float) -> str:
    moment = datetime.fromtimestamp(created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _json(line: Mapping[str, Any]) -> str:
    try:
        told = msgspec.json.encode(line, enc_hook=repr)
        return told.decode() if told.isascii() else json.dumps(msgspec.json.decode(told))
    except (TypeError, ValueError, RecursionError):
        # a lone surrogate, a key that is no string, a loop: a line must come out all the same
        return json.dumps({str(key): _plain(value) for key, value in line.items()})


def _plain(value: Any) -> Any:
    return value if isinstance(value, (str, int, float, bool, type(None))) else repr(value)


def _word(value: Any) -> str:
    """Return a value that cannot be taken for more than one."""
    text = value if isinstance(value, str) else str(value)
    plain = text.isascii() and text.isprintable() and not set(text) & set(' "=\\')
    return text if text and plain else json.dumps(text)
