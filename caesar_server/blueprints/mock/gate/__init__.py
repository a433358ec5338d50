"""What every call to a mock passes: on the way in rules decide, on the way out faults happen."""

from caesar_server.blueprints.mock.gate.door import CONTROL_PATH, register
from caesar_server.blueprints.mock.gate.paths import SCOPE_HEADER, asked_scope, scope_prefix

__all__ = ["CONTROL_PATH", "SCOPE_HEADER", "asked_scope", "register", "scope_prefix"]
