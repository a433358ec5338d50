"""The Flask application: no sessions, no coroutines, few looks at what is always the same."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from flask import Flask, Request, Response
from flask.ctx import RequestContext
from flask.globals import request_ctx
from flask.json.provider import DefaultJSONProvider
from flask.sessions import NullSession, SessionInterface
from flask.signals import request_tearing_down
from flask.typing import (
    AfterRequestCallable,
    BeforeRequestCallable,
    ResponseReturnValue,
    TeardownCallable,
)
from werkzeug.routing import MapAdapter, Rule

from caesar_server.web.framework.adapters import UrlAdapters
from caesar_server.web.framework.converters import IdConverter
from caesar_server.web.framework.responses import json_response
from caesar_server.web.incoming import EnteredContext, IncomingRequest, incoming

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

_Hook = TypeVar("_Hook")
#: In place of the error of a request that is not told.
_UNTOLD: Any = object()
#: See :data:`caesar_server.web.incoming.incoming`.
_context: Callable[[], RequestContext] = request_ctx._get_current_object  # type: ignore[attr-defined]


class _NoSessions(SessionInterface):
    """Gives every request the same session, which says that there are none."""

    def __init__(self) -> None:
        self._none = NullSession()

    def open_session(self, app: Flask, request: Request) -> NullSession:
        """Return what stands for no session."""
        return self._none


class _FastJson(DefaultJSONProvider):
    """Writes the bodies of answers as streams write their chunks, several times as fast."""

    def response(self, *args: Any, **kwargs: Any) -> Response:
        """Return a response with one value, or an object of the keyword arguments."""
        return json_response(self._prepare_response_obj(args, kwargs))


class _LateRule(Rule):
    """A rule that compiles what builds its URLs when the first one is built.

    That took a third of the start, and most rules never build one.  Should Werkzeug not ask for it
    in this way some day, the rule is as any other.
    """

    def _compile_builder(self, append_unknown: bool = True) -> Callable[..., tuple[str, str]]:
        compile_now = super()._compile_builder

        def build(rule: Rule, **values: Any) -> tuple[str, str]:
            return compile_now(append_unknown)(rule, **values)

        return build


class _Hooks(NamedTuple):
    """What is called around a view, in this order.

    :param before: None where Flask must do it: the view's arguments are looked at as well.
    """

    before: tuple[BeforeRequestCallable, ...] | None
    after: tuple[AfterRequestCallable[Any], ...]
    teardown: tuple[TeardownCallable, ...]


class Application(Flask):
    """See Flask's documentation for what it does; two of them may live in one process.

    Its functions are plain ones, and its clients have no sessions.
    """

    url_rule_class = _LateRule
    request_class = IncomingRequest
    json_provider_class = _FastJson
    session_interface = _NoSessions()

    def __init__(self, import_name: str) -> None:
        super().__init__(import_name, static_folder=None)
        self.url_map.converters["id"] = IdConverter
        self._url_adapters = UrlAdapters(self.url_map)
        #: By endpoint, None for what leads nowhere.  None is added once a request was answered.
        self._hooks: dict[str | None, _Hooks] = {}

    def request_context(self, environ: WSGIEnvironment) -> RequestContext:
        """Return the context of a request."""
        return EnteredContext(self, environ)

    def create_url_adapter(self, request: Request | None) -> MapAdapter | None:
        """Return what finds the view of a request."""
        make = super().create_url_adapter
        return make(request) if request is None else self._url_adapters.of(request, make)

    def preprocess_request(self) -> ResponseReturnValue | None:
        """Call what is to be called before the view, until something returns an answer."""
        hooks = self._hooks_of(incoming()).before
        if hooks is None:
            return super().preprocess_request()
        for hook in hooks:
            # not awaitable, see ensure_sync()
            answer: Any = hook()
            if answer is not None:
                return cast("ResponseReturnValue", answer)
        return None

    def dispatch_request(self) -> ResponseReturnValue:
        """Call the view."""
        request = incoming()
        rule = request.url_rule
        if rule is None or request.routing_exception is not None or request.method == "OPTIONS":
            return super().dispatch_request()
        answer = self.view_functions[rule.endpoint](**request.view_args or {})
        return cast("ResponseReturnValue", answer)

    def process_response(self, response: Response) -> Response:
        """Call what is to be called with each answer."""
        context = _context()
        for hook in (*context._after_request_functions, *self._hooks_of(context.request).after):
            response = cast("Response", hook(response))
        return response

    def do_teardown_request(self, exc: BaseException | None = _UNTOLD) -> None:
        """Call what is to be called when a request has been answered.

        :param exc: what the request ended with, or None; left out: what is being handled now.
        """
        error = sys.exc_info()[1] if exc is _UNTOLD else exc
        for hook in self._hooks_of(incoming()).teardown:
            hook(error)
        request_tearing_down.send(self, _async_wrapper=self.ensure_sync, exc=error)

    def _hooks_of(self, request: Request) -> _Hooks:
        endpoint = None if request.url_rule is None else request.url_rule.endpoint
        hooks = self._hooks.get(endpoint)
        if hooks is None:
            names = (None, *reversed(request.blueprints))
            plain = not any(name in self.url_value_preprocessors for name in names)
            hooks = _Hooks(
                tuple(_of(self.before_request_funcs, names)) if plain else None,
                # from the inside out, and the last one first
                tuple(reversed(_of(self.after_request_funcs, names))),
                tuple(reversed(_of(self.teardown_request_funcs, names))),
            )
            if self._got_first_request:  # until then Flask takes more of them
                self._hooks[endpoint] = hooks
        return hooks

    def ensure_sync(self, func: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``func``: nothing here is asynchronous, so that need not be looked at."""
        return func


def _of(hooks: Mapping[str | None, Sequence[_Hook]], names: Sequence[str | None]) -> list[_Hook]:
    """Return the hooks of the app and its blueprints."""
    return [hook for name in names for hook in hooks.get(name, ())]
