"""The operator's routes; the views of ``/healthz`` and ``/readyz``."""

from __future__ import annotations

from collections.abc import Iterable

from flask import Blueprint, Response, jsonify

from caesar_server import __version__
from caesar_server.blueprints.ops.description import SURFACE
from caesar_server.blueprints.ops.docs import DocsViews
from caesar_server.web.description import Surface
from caesar_server.web.services import services


def create_blueprint(described: Iterable[Surface] = ()) -> Blueprint:
    """Return the operator's surface.

    :param described: what the other surfaces say about themselves.
    """
    blueprint = Blueprint("ops", __name__, template_folder="templates")
    blueprint.get("/healthz")(show_health)
    # the same under the path that some clients probe
    blueprint.get("/health", endpoint="show_health_alias")(show_health)
    blueprint.get("/readyz")(show_readiness)
    DocsViews((*described, SURFACE)).add_to(blueprint)
    return blueprint


def show_health() -> Response:
    """``GET /healthz``: 200 as long as the process answers."""
    return jsonify({"status": "ok", "version": __version__})


def show_readiness() -> Response:
    """``GET /readyz``: 200 if the default backend can answer, else 503, with the reasons."""
    registry = services().registry
    backends = {
        name: {"status": health.status, "message": health.message}
        for name, backend in registry.loaded().items()
        for health in (backend.health(),)
    }
    failed = [report for report in registry.reports() if report.state == "failed"]
    default = registry.default
    down = backends.get(default, {}).get("status") == "down"
    ready = not down and default not in {report.name for report in failed}
    body = {
        "status": "ready" if ready else "not ready",
        "default_backend": default,
        "backends": backends,
        "failed": {report.name: report.reason for report in failed},
        "warnings": list(registry.warnings),
    }
    response = jsonify(body)
    response.status_code = 200 if ready else 503
    return response
