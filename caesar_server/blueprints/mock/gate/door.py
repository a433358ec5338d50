"""The gate itself: every call to an API route passes it on its way in and on its way out."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from flask import Flask, Request, Response

from caesar_server.blueprints.mock.gate.before import before_answer, check_host
from caesar_server.blueprints.mock.gate.body import MockWire, with_body_faults
from caesar_server.blueprints.mock.gate.exchange import EXCHANGE_KEY, Exchange
from caesar_server.blueprints.mock.gate.layer import CLIENT_GONE, MockLayer
from caesar_server.blueprints.mock.gate.paths import api_key, scope_name
from caesar_server.blueprints.mock.gate.uploads import forget_upload, is_upload, take_upload
from caesar_server.blueprints.mock.seams import HELD_KEY, held_of, own_account
from caesar_server.blueprints.mock.settling import settle_all
from caesar_server.errors import OverloadedError, ServerError, ValidationFailedError
from caesar_server.mock import native
from caesar_server.mock.calls import call_from_http
from caesar_server.mock.content import Content
from caesar_server.mock.faults import KINDS, FaultError, header_faults, header_strict
from caesar_server.mock.model.call import Call
from caesar_server.mock.model.rule import Decision
from caesar_server.mock.scope import Scope
from caesar_server.mock.scopes import Held, Scopes, ScopesFullError
from caesar_server.web.access.auth import METRICS_PATH, OPEN_PATHS, caller
from caesar_server.web.bodies import BODY_KEY, read_body
from caesar_server.web.gone import SocketWatch
from caesar_server.web.incoming import IncomingRequest, incoming
from caesar_server.web.observing.exchange import current_exchange
from caesar_server.web.services import services
from caesar_server.web.streaming import WIRE_KEY

#: Where the mock is controlled.
CONTROL_PATH = "/_mock"
#: What is never a call: rules do not see it and nothing goes wrong with it.
_EXEMPT = tuple(f"{path}/" for path in (*OPEN_PATHS, METRICS_PATH, CONTROL_PATH))
#: Headers that WSGI gives without its prefix for headers.
_UNPREFIXED = {"CONTENT_TYPE": "content-type", "CONTENT_LENGTH": "content-length"}
#: So many keys of environs are remembered: which headers there are is up to the clients.
_REMEMBERED = 256


def register(app: Flask, scopes: Scopes, watch: SocketWatch) -> Callable[[], None]:
    """Make ``app`` ask the rules about each call, after all checks that may refuse it.

    :return: ends what faults keep waiting; to be called before the rest of the app is closed.
    """
    gate = Gate(scopes, watch)
    app.before_request(gate.enter)
    app.after_request(gate.leave)
    app.teardown_request(forget_upload)
    app.wsgi_app = MockLayer(app.wsgi_app)  # type: ignore[method-assign]
    return gate.close


class Gate:
    """Safe for threads."""

    def __init__(self, scopes: Scopes, watch: SocketWatch) -> None:
        self._scopes = scopes
        self._watch = watch
        # each change, and a copy, is one step, which no thread comes between
        self._open: set[Exchange] = set()
        self._closed = False

    def enter(self) -> Response | None:
        """Decide on the current request; return a response if a fault comes instead of the answer.

        :raises ValidationFailedError: if one of the mock's own headers makes no sense.
        :raises FaultNotPossibleError: if a fault is asked for that this host cannot do.
        """
        request = incoming()
        environ = request.environ
        if not is_call(request.method, request.path):
            return None
        key = api_key(environ)
        scope = self._scope(environ, key)
        problem: ServerError | None = None
        body: bytes | None = None
        content: Content | None = None
        try:
            if is_upload(request):
                content = take_upload(request, services().settings.max_file_bytes)
            else:
                body = read_body(request)
        except ServerError as error:
            problem = error
        call = _call(request, scope, key, body or b"", content)
        exchange = self._begin(environ, scope, call)
        if problem is not None:
            raise problem
        if body is not None:
            environ[BODY_KEY] = body
        decision = _decide(scope, call)
        exchange.decided(decision)
        _take_request_id(request, scope, decision)
        held = Held(call, decision, scope, exchange.recording)
        environ[HELD_KEY] = held
        self._scopes.hold(held)
        own_account(scope)
        response = _begin_faults(environ, exchange, decision)
        if response is None and _looks_at_all_jobs(call):
            settle_all(self._scopes, scope, services().store)
        return response

    def leave(self, response: Response) -> Response:
        """Let the faults in the body of the current request's answer happen.

        A call that the server refuses uses nothing up: as soon as the client knows, all is counted
        as if it had not come.
        """
        environ = incoming().environ
        exchange: Exchange | None = environ.get(EXCHANGE_KEY)
        if exchange is None or exchange.is_over:
            return response
        if response.status_code >= 400 and not exchange.fault_answers:
            held = held_of(environ)
            # the backend's own errors are answers; a client that has left is not refused
            begun = held is not None and held.begun and held.decision.reply is not None
            if response.status_code != CLIENT_GONE:
                exchange.settle() if begun else exchange.refused()
            # and a refusal is not the answer that a fault was meant for
            return response
        if not exchange.body_faults:
            return response
        return with_body_faults(exchange, exchange.body_faults, response)

    def close(self) -> None:
        """End all waits, and let none begin."""
        self._closed = True
        for exchange in self._open.copy():
            exchange.stop()

    def _scope(self, environ: Mapping[str, Any], key: str | None) -> Scope:
        try:
            return self._scopes.get(scope_name(environ, key, self._scopes))
        except ScopesFullError as error:
            raise OverloadedError(str(error)) from error
        except ValueError as error:
            raise ValidationFailedError(str(error)) from error

    def _begin(self, environ: dict[str, Any], scope: Scope, call: Call) -> Exchange:
        exchange = Exchange(scope, scope.journal.open(call), environ, self._watch, self._over)
        self._open.add(exchange)
        if self._closed:
            exchange.stop()
        environ[EXCHANGE_KEY] = exchange
        return exchange

    def _over(self, exchange: Exchange) -> None:
        self._scopes.release(exchange.recording.call.id)
        self._open.discard(exchange)


def _looks_at_all_jobs(call: Call) -> bool:
    """Return whether the answer to a call depends on how all jobs of its scope stand."""
    if call.method == "GET":
        return native.is_list(call.path)
    # with a key there are limits on the jobs in progress
    return native.begins_job(call.path) and bool(caller().key_id)


def is_call(method: str, path: str) -> bool:
    """Return whether a request is a call to the API, known or not, and no preflight."""
    return method != "OPTIONS" and not f"{path}/".startswith(_EXEMPT)


def _call(
    request: Request, scope: Scope, key: str | None, body: bytes, content: Content | None
) -> Call:
    environ = request.environ
    return call_from_http(
        method=request.method,
        path=request.path,
        headers=_headers(environ),
        body=body,
        content=content,
        raw_path=environ.get("RAW_URI") or environ.get("REQUEST_URI") or request.full_path,
        scope=scope.name,
        call_id=scope.new_call_id(),
        api_key=key,
    )


def _headers(environ: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers of a WSGI request; names in lower case."""
    found = {
        name: value for key, value in environ.items() if (name := _header_name(key)) is not None
    }
    for key, name in _UNPREFIXED.items():
        if environ.get(key):
            found[name] = environ[key]
    return found


@lru_cache(_REMEMBERED)
def _header_name(key: str) -> str | None:
    """Return which header a key of a WSGI environ is, or None for what is none."""
    return key[5:].replace("_", "-").lower() if key.startswith("HTTP_") else None


def _decide(scope: Scope, call: Call) -> Decision:
    try:
        strict, faults = header_strict(call.headers), header_faults(call.headers)
    except FaultError as error:
        raise ValidationFailedError(str(error), param=error.problems[0][0]) from error
    return scope.decide(call, strict=strict, faults=faults)


def _take_request_id(request: IncomingRequest, scope: Scope, decision: Decision) -> None:
    """Let the request id, too, be the same for the same calls, unless the client chose it."""
    given = request.environ.get("HTTP_X_REQUEST_ID")
    if given is not None and given == request.request_id:
        return
    told = f"request|{scope.name}|{decision.seed}".encode("utf-8", "surrogatepass")
    request.request_id = made = hashlib.blake2b(told, digest_size=16).hexdigest()
    observed = current_exchange()
    if observed is not None:
        observed.request_id = made


def _begin_faults(
    environ: dict[str, Any], exchange: Exchange, decision: Decision
) -> Response | None:
    """Do what comes before the answer, and prepare what happens in it."""
    if not decision.faults:
        environ[WIRE_KEY] = MockWire(exchange, ())
        return None
    faults = [fault for fault, _ in decision.faults]
    check_host(exchange, faults)
    in_body = [fault for fault in faults if KINDS[fault.kind].in_body]
    exchange.body_faults = in_body
    environ[WIRE_KEY] = MockWire(exchange, in_body)
    for fault in faults:
        if not KINDS[fault.kind].in_body:
            response = before_answer(exchange, fault)
            if response is not None:
                exchange.fault_answers = fault.kind == "status"
                return response
    return None
