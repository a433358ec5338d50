"""The gate itself: every call to an API route passes it on its way in and on its way out."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping
from typing import Any, cast

from flask import Flask, Request, Response, g
from flask import request as current_request

from caesar_server.blueprints.mock.gate.before import before_answer, check_host
from caesar_server.blueprints.mock.gate.body import MockWire, with_body_faults
from caesar_server.blueprints.mock.gate.exchange import EXCHANGE_KEY, Exchange
from caesar_server.blueprints.mock.gate.layer import MockLayer
from caesar_server.blueprints.mock.gate.paths import api_key, scope_name
from caesar_server.blueprints.mock.seams import HELD_KEY
from caesar_server.errors import OverloadedError, ServerError, ValidationFailedError
from caesar_server.mock.calls import call_from_http
from caesar_server.mock.faults import KINDS, FaultError, header_faults, header_strict
from caesar_server.mock.model.call import Call
from caesar_server.mock.model.rule import Decision
from caesar_server.mock.scope import Scope
from caesar_server.mock.scopes import Held, Scopes, ScopesFullError
from caesar_server.web.access.auth import METRICS_PATH, OPEN_PATHS
from caesar_server.web.bodies import BODY_KEY, read_body
from caesar_server.web.gone import SocketWatch
from caesar_server.web.observing.exchange import current_exchange
from caesar_server.web.streaming import WIRE_KEY

#: Where the mock is controlled.
CONTROL_PATH = "/_mock"
#: What is never a call: rules do not see it and nothing goes wrong with it.
_EXEMPT = tuple(f"{path}/" for path in (*OPEN_PATHS, METRICS_PATH, CONTROL_PATH))
#: Headers that WSGI gives without its prefix for headers.
_UNPREFIXED = {"CONTENT_TYPE": "content-type", "CONTENT_LENGTH": "content-length"}


def register(app: Flask, scopes: Scopes, watch: SocketWatch) -> Callable[[], None]:
    """Make ``app`` ask the rules about each call, after all checks that may refuse it.

    :return: ends what faults keep waiting; to be called before the rest of the app is closed.
    """
    gate = Gate(scopes, watch)
    app.before_request(gate.enter)
    app.after_request(gate.leave)
    app.wsgi_app = MockLayer(app.wsgi_app)  # type: ignore[method-assign]
    return gate.close


class Gate:
    """Safe for threads."""

    def __init__(self, scopes: Scopes, watch: SocketWatch) -> None:
        self._scopes = scopes
        self._watch = watch
        self._lock = threading.Lock()
        self._open: set[Exchange] = set()
        self._closed = False

    def enter(self) -> Response | None:
        """Decide on the current request; return a response if a fault comes instead of the answer.

        :raises ValidationFailedError: if one of the mock's own headers makes no sense.
        :raises FaultNotPossibleError: if a fault is asked for that this host cannot do.
        """
        request = _request()
        if not is_call(request.method, request.path):
            return None
        scope = self._scope(request)
        problem: ServerError | None = None
        try:
            body = read_body(request)
        except ServerError as error:
            body, problem = b"", error
        call = _call(request, scope, body)
        exchange = self._begin(request, scope, call)
        if problem is not None:
            raise problem
        request.environ[BODY_KEY] = body
        decision = _decide(scope, call)
        exchange.decided(decision)
        _take_request_id(request, scope, decision)
        held = Held(call, decision, scope, exchange.recording)
        request.environ[HELD_KEY] = held
        self._scopes.hold(held)
        return _begin_faults(request, exchange, decision)

    def leave(self, response: Response) -> Response:
        """Let the faults in the body of the current request's answer happen."""
        exchange: Exchange | None = current_request.environ.get(EXCHANGE_KEY)
        if exchange is None or not exchange.body_faults or exchange.is_over:
            return response
        # A refusal is not the answer that the fault was meant for.
        if response.status_code >= 400 and not exchange.fault_answers:
            return response
        return with_body_faults(exchange, exchange.body_faults, response)

    def close(self) -> None:
        """End all waits, and let none begin."""
        with self._lock:
            self._closed = True
            exchanges = tuple(self._open)
        for exchange in exchanges:
            exchange.stop()

    def _scope(self, request: Request) -> Scope:
        try:
            return self._scopes.get(scope_name(request.environ, self._scopes))
        except ScopesFullError as error:
            raise OverloadedError(str(error)) from error
        except ValueError as error:
            raise ValidationFailedError(str(error)) from error

    def _begin(self, request: Request, scope: Scope, call: Call) -> Exchange:
        recording = scope.journal.open(call)

        def over(exchange: Exchange) -> None:
            self._scopes.release(call.id)
            with self._lock:
                self._open.discard(exchange)

        exchange = Exchange(scope, recording, request.environ, self._watch, over)
        with self._lock:
            self._open.add(exchange)
            closed = self._closed
        if closed:
            exchange.stop()
        request.environ[EXCHANGE_KEY] = exchange
        return exchange


def is_call(method: str, path: str) -> bool:
    """Return whether a request is a call to the API, known or not, and no preflight."""
    return method != "OPTIONS" and not f"{path}/".startswith(_EXEMPT)


def _request() -> Request:
    """Return the current request itself: each look at the proxy for it costs more than the look."""
    return cast("Request", current_request._get_current_object())  # type: ignore[attr-defined]


def _call(request: Request, scope: Scope, body: bytes) -> Call:
    environ = request.environ
    return call_from_http(
        method=request.method,
        path=request.path,
        headers=_headers(environ),
        body=body,
        raw_path=environ.get("RAW_URI") or environ.get("REQUEST_URI") or request.full_path,
        scope=scope.name,
        call_id=scope.new_call_id(),
        api_key=api_key(environ),
    )


def _headers(environ: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers of a WSGI request; names in any case."""
    found = {
        name[5:].replace("_", "-"): value
        for name, value in environ.items()
        if name.startswith("HTTP_")
    }
    for key, name in _UNPREFIXED.items():
        if environ.get(key):
            found[name] = environ[key]
    return found


def _decide(scope: Scope, call: Call) -> Decision:
    try:
        strict, faults = header_strict(call.headers), header_faults(call.headers)
    except FaultError as error:
        raise ValidationFailedError(str(error), param=error.problems[0][0]) from error
    return scope.decide(call, strict=strict, faults=faults)


def _take_request_id(request: Request, scope: Scope, decision: Decision) -> None:
    """Let the request id, too, be the same for the same calls, unless the client chose it."""
    given = request.environ.get("HTTP_X_REQUEST_ID")
    if given is not None and given == g.request_id:
        return
    told = f"request|{scope.name}|{decision.seed}".encode("utf-8", "surrogatepass")
    g.request_id = made = hashlib.blake2b(told, digest_size=16).hexdigest()
    observed = current_exchange()
    if observed is not None:
        observed.request_id = made


def _begin_faults(request: Request, exchange: Exchange, decision: Decision) -> Response | None:
    """Do what comes before the answer, and prepare what happens in it."""
    faults = [fault for fault, _ in decision.faults]
    check_host(exchange, faults)
    in_body = [fault for fault in faults if KINDS[fault.kind].in_body]
    exchange.body_faults = in_body
    request.environ[WIRE_KEY] = MockWire(exchange, in_body)
    for fault in faults:
        if not KINDS[fault.kind].in_body:
            response = before_answer(exchange, fault)
            if response is not None:
                exchange.fault_answers = fault.kind == "status"
                return response
    return None
