"""What the native surface says about itself, for the API description."""

from caesar_server.blueprints.research.description.surface import SURFACE

__all__ = ["SURFACE"]
