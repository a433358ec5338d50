"""The Flask application: no sessions, no coroutines, few looks at what is always the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from flask import Flask, Request, Response
from flask.json.provider import DefaultJSONProvider
from flask.sessions import NullSession, SessionInterface
from flask.typing import BeforeRequestCallable, ResponseReturnValue
from werkzeug.routing import MapAdapter, Rule

from caesar_server.web.framework.adapters import UrlAdapters
from caesar_server.web.framework.converters import IdConverter
from caesar_server.web.framework.responses import json_response
from caesar_server.web.incoming import IncomingRequest, incoming


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
        self._first_hooks: dict[str | None, tuple[BeforeRequestCallable, ...]] = {}

    def create_url_adapter(self, request: Request | None) -> MapAdapter | None:
        """Return what finds the view of a request."""
        make = super().create_url_adapter
        return make(request) if request is None else self._url_adapters.of(request, make)

    def preprocess_request(self) -> ResponseReturnValue | None:
        """Call what is to be called before the view, until something returns an answer."""
        request = incoming()
        endpoint = None if request.url_rule is None else request.url_rule.endpoint
        hooks = self._first_hooks.get(endpoint)
        if hooks is None:
            names = (None, *reversed(request.blueprints))
            if any(name in self.url_value_preprocessors for name in names):
                return super().preprocess_request()
            hooks = tuple(
                hook for name in names for hook in self.before_request_funcs.get(name, ())
            )
            self._first_hooks[endpoint] = hooks
        for hook in hooks:
            # not awaitable, see ensure_sync()
            answer: Any = hook()
            if answer is not None:
                return cast("ResponseReturnValue", answer)
        return None

    def ensure_sync(self, func: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``func``: nothing here is asynchronous, so that need not be looked at."""
        return func
