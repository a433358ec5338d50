"""The request that is being answered, with what was found out about it on the way to its view."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any, cast

from flask import Flask, Request, current_app
from flask.ctx import RequestContext
from werkzeug.datastructures import MultiDict

from caesar_server.errors import ValidationFailedError
from caesar_server.web.access.caller import ANYBODY, NO_LIMITS, Caller
from caesar_server.web.access.keys import KeyLimits

if TYPE_CHECKING:
    from caesar_server.web.api_version.version import Version
    from caesar_server.web.limiting.places import Place
    from caesar_server.web.limiting.windows import Window


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


#: What Flask's ``request`` stands for; :class:`EnteredContext` sets both.
_answered: ContextVar[IncomingRequest] = ContextVar("caesar_incoming")
#: Returns the request that the calling thread answers; raises a LookupError outside of one.
#:
#: Each attribute of Flask's ``request`` looks for it anew; hooks, which are many, look once.  Each
#: request asks thirty times, and Flask's own function takes six times as long.
incoming: Callable[[], IncomingRequest] = _answered.get
#: Returns the app that answers it; raises a RuntimeError where there is none.
answering: Callable[[], Flask] = current_app._get_current_object  # type: ignore[attr-defined]


class EnteredContext(RequestContext):
    """Flask's context of a request, for :data:`incoming` as well."""

    _token: Token[IncomingRequest] | None = None

    def push(self) -> None:
        """Begin to answer the request, or go on."""
        if self._token is None:
            self._token = _answered.set(cast(IncomingRequest, self.request))
        RequestContext.push(self)  # super() takes as long as what is saved by three looks

    def pop(self, *exc: Any) -> None:
        """End what :meth:`push` began."""
        try:
            RequestContext.pop(self, *exc)
        finally:
            if not self._cv_tokens and self._token is not None:
                _answered.reset(self._token)
                self._token = None


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
