"""The operator's routes, and the view of ``/healthz``."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from flask import Blueprint, Response, jsonify

from caesar_server import __version__
from caesar_server.blueprints.ops.description import SURFACE
from caesar_server.blueprints.ops.docs import DocsViews
from caesar_server.blueprints.ops.metrics import show_metrics
from caesar_server.blueprints.ops.readiness import ReadinessView
from caesar_server.web.description import Surface


def create_blueprint(
    described: Iterable[Surface | Callable[[], Surface]] = (),
) -> Blueprint:
    """Return the operator's surface.

    :param described: what the other surfaces say about themselves, or what makes it.
    """
    blueprint = Blueprint("ops", __name__, template_folder="templates")
    blueprint.get("/healthz")(show_health)
    # the same under the path that some clients probe
    blueprint.get("/health", endpoint="show_health_alias")(show_health)
    blueprint.get("/readyz")(ReadinessView().show_readiness)
    blueprint.get("/metrics")(show_metrics)
    DocsViews((*described, SURFACE)).add_to(blueprint)
    return blueprint


def show_health() -> Response:
    """``GET /healthz``: 200 as long as the process answers."""
    return jsonify({"status": "ok", "version": __version__})
