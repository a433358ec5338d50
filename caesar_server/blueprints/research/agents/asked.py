"""The query parameters of the agents family."""

from __future__ import annotations

from flask import request

from caesar_server.errors import ValidationFailedError
from caesar_server.web.errors import printable
from caesar_server.web.incoming import sole_values

# The last two are what Python's clients make of a bool.
_VALUES = {"true": True, "1": True, "True": True, "false": False, "0": False, "False": False}
_MAX_SHOWN = 60


def asked_flag(name: str) -> bool:
    """Return a query parameter that is on or off; off if it is not there.

    :raises ValidationFailedError: if it is neither, or is there twice.
    """
    text = sole_values(request.args, name).get(name, "false")
    value = _VALUES.get(text)
    if value is None:
        raise ValidationFailedError(
            f"{name}: expected true or false, got '{printable(text[:_MAX_SHOWN])}'", param=name
        )
    return value
