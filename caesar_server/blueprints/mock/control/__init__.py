"""The control API of the mock, below ``/_mock``."""

from caesar_server.blueprints.mock.control.routes import register, surface

__all__ = ["register", "surface"]
