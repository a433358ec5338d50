"""Limits on requests: refusals at once, and headers that say how a caller stands."""

from __future__ import annotations

import math
from typing import cast

from flask import Flask, Response, g, request

from caesar_server.errors import TooManyRequestsError
from caesar_server.settings import Settings
from caesar_server.web.access.auth import caller, is_for_operator
from caesar_server.web.access.keys import KeyLimits, effective_limits
from caesar_server.web.access.places import Place, Places
from caesar_server.web.access.rates import Rates, Window
from caesar_server.web.streaming import UNHINDERED_BYTES


def register(app: Flask, settings: Settings, places: Places, rates: Rates) -> None:
    """Make ``app`` count requests and refuse those that are too many.

    Must come after the check of keys, so that nobody without a key uses up anything.  Requests of
    the operator are not counted; those a minute are POST requests alone, which begin work.
    """

    def own_limits() -> KeyLimits:
        return effective_limits(caller().limits, settings) if caller().key_id else KeyLimits()

    @app.before_request
    def enter() -> None:
        if is_for_operator():
            return
        limits = g.limits = own_limits()
        g.place = places.enter()
        if limits.requests_per_minute is not None and request.method == "POST":
            g.window = window = rates.hit(caller().key_id, limits.requests_per_minute)
            if not window.allowed:
                raise TooManyRequestsError(retry_after_s=window.reset_s)

    @app.after_request
    def show_window(response: Response) -> Response:
        limits = cast(KeyLimits, g.get("limits", KeyLimits()))
        window = cast("Window | None", g.get("window"))
        if limits.requests_per_minute is not None and request.method == "POST":
            window = window or rates.look(caller().key_id, limits.requests_per_minute)
            response.headers.update(window_headers(window))
        return response

    @app.after_request
    def stay_while_written(response: Response) -> Response:
        # A client that does not read holds the thread that writes to it.
        length = response.content_length or 0
        if not response.direct_passthrough and length > UNHINDERED_BYTES:
            stay_until_closed(response)
        return response

    @app.teardown_request
    def leave(_: BaseException | None) -> None:
        place = cast("Place | None", g.get("place"))
        if place is not None and not place.kept:
            place.give_back()


def stay_until_closed(response: Response) -> None:
    """Count the current request until ``response`` has been written, which may take long."""
    place = cast("Place | None", g.get("place"))
    if place is not None and not place.kept:
        place.kept = True
        response.call_on_close(place.give_back)


def open_stream() -> Place:
    """Count the current request as an open stream.

    The view sets ``kept`` of the place once a response has it that will give it back; until then
    the end of the request does.

    :raises TooManyRequestsError: if the caller's key has as many open as it may.
    :raises OverloadedError: if the process has.
    """
    place = cast(Place, g.place)
    place.open_stream(caller().key_id, cast(KeyLimits, g.limits).streams)
    return place


def window_headers(window: Window) -> dict[str, str]:
    """Return the headers by which OpenAI tells how a caller stands.

    https://platform.openai.com/docs/guides/rate-limits#rate-limits-in-headers
    """
    seconds = f"{math.ceil(window.reset_s * 1000) / 1000:.3f}".rstrip("0").rstrip(".")
    return {
        "x-ratelimit-limit-requests": str(window.limit),
        "x-ratelimit-remaining-requests": str(window.remaining),
        "x-ratelimit-reset-requests": f"{seconds}s",
    }
