"""``GET /metrics``: the numbers of the server, for Prometheus.

Whether it asks for a key is decided with all other paths, in ``web/access/auth.py``.
"""

from __future__ import annotations

from flask import Response, request

from caesar_server.web.services import services


def show_metrics() -> Response:
    """``GET /metrics``: the sum over all worker processes, in Prometheus's or OpenMetrics' text."""
    body, content_type = services().metrics.exposition(request.headers.get("Accept"))
    response = Response(body, content_type=content_type)
    response.headers["Cache-Control"] = "no-store"
    return response
