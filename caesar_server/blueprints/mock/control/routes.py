"""The routes below ``/_mock``."""

from __future__ import annotations

from flask import Blueprint, Flask

from caesar_server.blueprints.mock.control.journal import JournalViews
from caesar_server.blueprints.mock.control.rules import RuleViews
from caesar_server.blueprints.mock.control.state import StateViews
from caesar_server.blueprints.mock.gate import CONTROL_PATH
from caesar_server.mock.scopes import Scopes
from caesar_server.web.access.auth import OPERATOR_PATHS
from caesar_server.web.description import Surface


def register(app: Flask, scopes: Scopes) -> None:
    """Give ``app`` the control API, and let each request look whether fixture files have changed.

    Must come before the gate, which asks the rules.
    """

    @app.before_request
    def follow_files() -> None:
        if scopes.reloader is not None:
            scopes.reloader.check()

    # a mock whose calls all hang can still be controlled
    app.config[OPERATOR_PATHS] = (*app.config.get(OPERATOR_PATHS, ()), CONTROL_PATH)
    blueprint = Blueprint("mock_control", __name__, url_prefix=CONTROL_PATH)
    for views in (RuleViews(scopes), JournalViews(scopes), StateViews(scopes)):
        views.add_to(blueprint)
    app.register_blueprint(blueprint)


def surface() -> Surface:
    """Return what the control API says about itself."""
    # takes a while, and only who reads the description needs it
    from caesar_server.blueprints.mock.control.description import control_surface

    return control_surface()
