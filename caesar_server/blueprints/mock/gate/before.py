"""The faults that come before an answer, or instead of it."""

from __future__ import annotations

from dataclasses import replace

import msgspec
from flask import Response

from caesar_server.blueprints.mock.gate.exchange import Exchange
from caesar_server.contract.errors import ErrorInfo
from caesar_server.errors import FaultNotPossibleError
from caesar_server.mock.faults import KINDS
from caesar_server.mock.faults.sockets import HALF_HEAD, break_off, reset, send_early_hints
from caesar_server.mock.model.fault import Fault
from caesar_server.mock.model.reply import MockError
from caesar_server.web.errors import render_error
from caesar_server.web.observing.exchange import note_code

#: Nobody sees it: what it stands for went over the connection itself, or nothing did.
_UNSENT_STATUS = 499


def check_host(exchange: Exchange, faults: list[Fault]) -> None:
    """Refuse what the host cannot do, before anything is done.

    :raises FaultNotPossibleError: if a fault needs the connection and the host does not lend it.
    """
    if exchange.connection is not None:
        return
    for fault in faults:
        if KINDS[fault.kind].needs_socket:
            raise FaultNotPossibleError(
                f"The fault {fault.kind} needs the client's connection, which this host does not "
                "lend: serve the mock with gunicorn (gthread or gevent) or with the test fixture's "
                "own server"
            )


def before_answer(exchange: Exchange, fault: Fault) -> Response | None:
    """Let a fault happen; return the response that replaces the answer, or None to go on."""
    exchange.happened(fault)
    match fault.kind:
        case "status":
            return status_response(fault)
        case "delay":
            return None if exchange.watched_pause(fault.delay_s) else unsent(exchange)
        case "early_hints":
            _early_hints(exchange, fault)
            return None
        case _:
            return _instead(exchange, fault)


def status_response(fault: Fault) -> Response:
    """Return the response of the fault ``status``."""
    status = fault.status or 500
    response = render_error(error_info(fault, status))
    if fault.body is None and status < 400:
        response.data = b""
    elif isinstance(fault.body, str):
        response.data, response.mimetype = fault.body.encode(), "text/plain"
    elif fault.body is not None:
        response.data = msgspec.json.encode(fault.body)
    response.headers.update(fault.headers)
    return response


def error_info(fault: Fault, status: int = 500) -> ErrorInfo:
    """Return the error that a fault tells the client."""
    told = MockError(
        message=fault.message or f"The mock lets this call fail ({fault.kind})",
        code=fault.code or "mock_fault",
        status=max(400, status),
    ).info()
    return replace(told, status=status, retry_after_s=fault.retry_after_s)


def _early_hints(exchange: Exchange, fault: Fault) -> None:
    if exchange.connection is not None:
        send_early_hints(exchange.connection, fault.headers)


def _instead(exchange: Exchange, fault: Fault) -> Response:
    """Let a fault happen that ends the connection without an answer."""
    if fault.kind == "hang" and not exchange.watched_pause(fault.delay_s):
        return unsent(exchange)
    if exchange.connection is not None:
        if fault.kind == "reset":
            reset(exchange.connection)
        elif fault.kind == "half_headers":
            break_off(exchange.connection, HALF_HEAD)
    exchange.end(f"fault:{fault.kind}")
    return unsent(exchange)


def unsent(exchange: Exchange) -> Response:
    """End a connection without an answer; return what the host may do with it in vain."""
    cut(exchange)
    note_code("mock_fault")
    return Response(status=_UNSENT_STATUS)


def cut(exchange: Exchange) -> None:
    """End a connection as it is, where the host lends it."""
    exchange.give_up()
    if exchange.connection is not None:
        break_off(exchange.connection)
