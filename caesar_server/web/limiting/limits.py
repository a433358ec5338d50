"""Limits on requests: refusals at once, and headers that say how a caller stands."""

from __future__ import annotations

import math

from flask import Flask, Response

from caesar_server.errors import TooManyRequestsError
from caesar_server.settings import Settings
from caesar_server.web.access.auth import is_for_operator
from caesar_server.web.access.keys import effective_limits
from caesar_server.web.incoming import IncomingRequest, incoming
from caesar_server.web.limiting.places import Place, Places
from caesar_server.web.limiting.rates import Rates
from caesar_server.web.limiting.windows import Window
from caesar_server.web.streaming import UNHINDERED_BYTES


def register(app: Flask, settings: Settings, places: Places, rates: Rates) -> None:
    """Make ``app`` count requests and refuse those that are too many.

    Must come after the check of keys, so that nobody without a key uses up anything.  Requests of
    the operator are not counted; those a minute are POST requests alone, which begin work.
    """

    exemptions = _Exemptions()

    @app.before_request
    def enter() -> None:
        request = incoming()
        if exemptions.holds_for(request):
            return
        who = request.caller
        if who.key_id:
            request.limits = effective_limits(who.limits, settings)
        request.place = places.enter()
        limit = request.limits.requests_per_minute
        if limit is not None and request.method == "POST":
            request.window = window = rates.hit(who.key_id, limit)
            if not window.allowed:
                raise TooManyRequestsError(retry_after_s=window.reset_s)

    @app.after_request
    def show_window(response: Response) -> Response:
        request = incoming()
        limit = request.limits.requests_per_minute
        if limit is not None and request.method == "POST":
            window = request.window or rates.look(request.caller.key_id, limit)
            response.headers.update(window_headers(window))
        return response

    @app.after_request
    def stay_while_written(response: Response) -> Response:
        # A client that does not read holds the thread that writes to it.
        length = response.headers.get("Content-Length", 0, int)
        if not response.direct_passthrough and length > UNHINDERED_BYTES:
            stay_until_closed(response)
        return response

    @app.teardown_request
    def leave(_: BaseException | None) -> None:
        place = incoming().place
        if place is not None and not place.kept:
            place.give_back()


class _Exemptions:
    """Which requests are not counted, worked out once for each rule of the app.  Thread-safe."""

    def __init__(self) -> None:
        self._by_rule: dict[str, bool] = {}

    def holds_for(self, request: IncomingRequest) -> bool:
        """Return whether the current request is the operator's."""
        if (rule := request.url_rule) is None:
            return False
        found = self._by_rule.get(rule.rule)
        if found is None:
            found = self._by_rule[rule.rule] = is_for_operator()
        return found


def stay_until_closed(response: Response) -> None:
    """Count the current request until ``response`` has been written, which may take long."""
    place = incoming().place
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
    request = incoming()
    if request.place is None:
        raise RuntimeError("a request that is not counted cannot open a stream")
    request.place.open_stream(request.caller.key_id, request.limits.streams)
    return request.place


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
