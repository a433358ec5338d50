"""What ``create_app`` does otherwise in mock mode."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from flask import Flask

from caesar_server.blueprints.mock import control, gate
from caesar_server.mock.backend import mock_backend
from caesar_server.mock.scopes import Scopes
from caesar_server.registry import Registry
from caesar_server.settings import ModelRoute, Settings
from caesar_server.web.gone import SocketWatch


def mock_registry(settings: Settings, scopes: Scopes) -> Registry:
    """Return a registry in which the mock is the only backend and takes every model name.

    What the settings say of other backends and of model names says nothing here.
    """
    options = {name: table for name, table in settings.backends.items() if name == "mock"}
    alone = replace(
        settings,
        default_backend="mock",
        allowed_backends=(),
        extra_backends=(),
        unknown_model="default",
        models={"*": ModelRoute(backend="mock")},
        backends=options,
    )
    return Registry.of({"mock": mock_backend(scopes)}, alone)


def register(app: Flask, scopes: Scopes, watch: SocketWatch) -> Callable[[], None]:
    """Give ``app`` the control API, and the gate that decides on each call.

    :param watch: notices clients that leave.
    :return: ends what faults keep waiting; to be called before the rest of the app is closed.
    """
    control.register(app, scopes)
    return gate.register(app, scopes, watch)
