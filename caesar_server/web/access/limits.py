"""Limits on requests: refusals at once, and headers that say how a caller stands."""

from __future__ import annotations

from collections.abc import Callable

from flask import Flask, Response, g, request

from caesar_server.errors import TooManyRequestsError
from caesar_server.web.access.auth import asks_no_key, caller
from caesar_server.web.access.places import Place, Places
from caesar_server.web.access.rates import Rates, Window


@dataclass(frozen=True, slots=True)
class Limits:
    """x"""
