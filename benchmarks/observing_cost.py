"""What the log line and the numbers cost a request: WSGI calls in this process, no network.

Run with ``PROMETHEUS_MULTIPROC_DIR`` naming an empty folder it measures numbers that worker
processes share, as ``caesar-server serve`` has them; without it those of one process.
"""

from __future__ import annotations

import io
import json
import logging
import os
import time
from collections.abc import Iterator
from typing import Any

from flask import Flask

from caesar_server.app import create_app
from caesar_server.contract import (
    Backend,
    ChoiceFinished,
    Completed,
    ContentDelta,
    Context,
    Event,
    Request,
    UsageCounted,
)
from caesar_server.registry import Registry
from caesar_server.settings import Settings
from caesar_server.web.observing.logs import JsonFormatter

CHUNKS = 200
ROUNDS = 15


class Words(Backend):
    """Answers with 200 chunks if it is asked for a stream of them, else with one."""

    def run(self, request: Request, context: Context) -> Iterator[Event]:
        for _ in range(CHUNKS if request.model == "many" else 1):
            yield ContentDelta("word ")
        yield ChoiceFinished()
        yield UsageCounted(1, 1)
        yield Completed()


def make_app(*, observed: bool) -> Flask:
    """Return an app, as it is or without what watches it."""
    settings = Settings(default_backend="words")
    app = create_app(settings, Registry.of({"words": Words}, settings))
    if not observed:
        app.wsgi_app = app.wsgi_app._app  # type: ignore[method-assign,attr-defined]
        app.extensions["caesar_server"].runner._attached._observer = None
    return app


def call(app: Flask, body: bytes) -> None:
    """Send one request and read the whole answer."""
    environ: dict[str, Any] = {
        "REQUEST_METHOD": "POST",
        "SCRIPT_NAME": "",
        "PATH_INFO": "/compat/completions",
        "QUERY_STRING": "",
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "HTTP_HOST": "localhost",
        "CONTENT_TYPE": "application/json",
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": io.StringIO(),
        "wsgi.url_scheme": "http",
        "wsgi.version": (1, 0),
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
    }
    parts = app(environ, lambda status, headers, exc_info=None: lambda data: None)
    for _ in parts:
        pass
    parts.close()  # type: ignore[attr-defined]


def cpu_us(app: Flask, body: bytes, calls: int) -> float:
    """Return microseconds of processor time a call, of all threads.

    The caller takes the least of several rounds: whatever else the machine does only adds.
    """
    began = time.process_time()
    for _ in range(calls):
        call(app, body)
    return (time.process_time() - began) / calls * 1e6


def main() -> None:
    """Measure and print."""
    handler = logging.FileHandler(os.devnull)
    handler.setFormatter(JsonFormatter())
    logging.getLogger().addHandler(handler)
    access = logging.getLogger("caesar_server.access")
    bare, observed = make_app(observed=False), make_app(observed=True)
    for name, fields, calls in (("JSON", {}, 500), ("stream", {"stream": True}, 40)):
        body = json.dumps({"model": "words/many" if fields else "words", "prompt": "x", **fields})
        results: dict[str, list[float]] = {"bare": [], "numbers": [], "numbers and log": []}
        for _ in range(ROUNDS):
            access.setLevel(logging.WARNING)
            results["bare"].append(cpu_us(bare, body.encode(), calls))
            results["numbers"].append(cpu_us(observed, body.encode(), calls))
            access.setLevel(logging.INFO)
            results["numbers and log"].append(cpu_us(observed, body.encode(), calls))
        base = min(results["bare"])
        for what, times in results.items():
            least = min(times)
            print(f"{name:7} {what:16} {least:8.1f} us   {least - base:+8.1f} us")
    for app in (bare, observed):
        app.extensions["caesar_server"].close()


if __name__ == "__main__":
    main()
