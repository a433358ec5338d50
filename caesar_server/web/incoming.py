"""The request that is being answered, with what was found out about it on the way to its view."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from flask import Flask, Request, current_app, request
from werkzeug.datastructures import MultiDict

from caesar_server.errors import ValidationFailedError
from caesar_server.web.access.caller import ANYBODY, NO_LIMITS, Caller
from caesar_server.web.access.keys import KeyLimits

if TYPE_CHECKING:
    from caesar_server.web.api_version.version import Version
    from caesar_server.web.limiting.places import Place
    from caesar_server.web.limiting.rates import Window


class IncomingRequest(Request):
    """A request; what is not known of it yet is as for a request of which nothing is known.

    :ivar request_id: by which its log line is found, or None.
    :ivar caller: who sent it.
    :ivar limits: what its key may do.
    :ivar place: where it is counted, or None.
    :ivar window: how its key stands after it was counted, or None.
    :ivar begun: whether a job was begun for it: to repeat the request then costs twice.
    :ivar version: the version of the API in which the answer is rendered, if a view has noted one.
    """

    request_id: str | None = None
    caller: Caller = ANYBODY
    limits: KeyLimits = NO_LIMITS
    place: Place | None = None
    window: Window | None = None
    begun: bool = False
    version: Version | None = None

    @cached_property
    def blueprints(self) -> list[str]:
        """The names of the blueprints of its view, from the inside out; Flask asks three times."""
        return super().blueprints


#: Returns the request that the calling thread answers; raises a RuntimeError outside of one.
#:
#: Each attribute of Flask's ``request`` looks for it anew; hooks, which are many, look once.  This
#: is Flask's own function, with none around it: each request asks thirty times.
incoming: Callable[[], IncomingRequest] = request._get_current_object  # type: ignore[attr-defined]
#: Likewise the app that answers it.
answering: Callable[[], Flask] = current_app._get_current_object  # type: ignore[attr-defined]


def sole_values(args: MultiDict[str, str], *names: str) -> dict[str, str]:
    """Return those parameters of a query that are there, each of which takes one value.

    :raises ValidationFailedError: if one of them is there more than once: programs between a client
        and the server may have taken another of its values for the one that counts.
    """
    given = {name: args.getlist(name) for name in names if name in args}
    for name, values in given.items():
        if len(values) > 1:
            raise ValidationFailedError(
                f"{name}: expected one value, got {len(values)}", param=name
            )
    return {name: value for name, (value,) in given.items()}
