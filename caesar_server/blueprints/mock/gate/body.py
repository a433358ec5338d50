"""The faults in the body of an answer, of a stream and of JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

import msgspec
from flask import Response

from caesar_server.blueprints.mock.gate.before import cut, error_info
from caesar_server.blueprints.mock.gate.exchange import Exchange
from caesar_server.contract.sse import split_frames
from caesar_server.errors import FaultNotPossibleError
from caesar_server.mock import native
from caesar_server.mock.faults import (
    KINDS,
    Act,
    End,
    Happen,
    Pause,
    Reset,
    StreamFaults,
    Write,
    body_acts,
    sent_length,
)
from caesar_server.mock.faults.sockets import reset
from caesar_server.mock.model.fault import Fault
from caesar_server.web.errors import error_object, render_error
from caesar_server.web.limiting.limits import stay_until_closed

#: Of ``wrong_content_type`` without one: what proxies answer with.
WRONG_TYPE = "text/html; charset=utf-8"


class MockWire:
    """Notes the frames of one stream and lets its faults happen; a ``Wire`` of ``web.streaming``.

    :ivar over: whether a fault has ended the stream, or its client.
    """

    def __init__(self, exchange: Exchange, faults: Sequence[Fault]) -> None:
        self.over = False
        self._exchange = exchange
        self._faults = StreamFaults(faults, _error_body_of(exchange)) if faults else None

    def writes(self, data: bytes, *, ended: bool) -> Iterable[bytes]:
        """Return what leaves instead of ``data``, each item in a write of its own."""
        self._exchange.framed = True
        if self._faults is None:
            self._exchange.recording.stream(data)
            return (data,)
        acts = self._faults.acts(split_frames(data), ended=ended)
        return self._faulty(_settled(self._exchange, acts) if ended else acts)

    def left(self) -> None:
        """Hear that the client left; ends a stall."""
        self._exchange.leave()

    def _faulty(self, acts: Iterable[Act]) -> Iterator[bytes]:
        yield from play(self._exchange, acts)
        self.over = not self._exchange.goes_on or self._exchange.is_over


def _settled(exchange: Exchange, acts: Iterator[Act]) -> Iterable[Act]:
    """Return the last acts of an answer; whether each of its faults has a place is known then."""
    known, coming, left = list[Act](), list[Fault](), len(exchange.body_faults)
    for act in acts:
        known.append(act)
        if isinstance(act, Happen):
            coming.append(act.fault)
            if len(coming) == left:
                break  # what follows may be long: a body in single bytes
    exchange.settle(coming)
    return chain(known, acts)


def play(exchange: Exchange, acts: Iterable[Act]) -> Iterator[bytes]:
    """Yield what the acts write, in as many writes, and do the rest; a fault's end ends it.

    The connection must be watched meanwhile.
    """
    for act in acts:
        match act:
            case Write():
                exchange.recording.frames(act.parts)
                yield b"".join(act.parts)
            case Happen():
                exchange.happened(act.fault)
            case Pause():
                # An empty write makes the server send the head, at the latest now.
                yield b""
                if not exchange.pause(act.seconds):
                    # Nobody is there any more, or the server is about to end: no proper end then.
                    cut(exchange)
                    return
            case Reset():
                yield b""
                if exchange.connection is not None:
                    reset(exchange.connection)
                exchange.end(f"fault:{act.fault.kind}")
                return
            case End():
                exchange.end(f"fault:{act.fault.kind}")
                return


def with_body_faults(exchange: Exchange, faults: Sequence[Fault], response: Response) -> Response:
    """Return ``response`` with the faults in it; a stream's frames have gone another way.

    :param faults: of kinds with ``in_body``.
    """
    for fault in faults:
        if fault.kind == "wrong_content_type":
            response.headers["Content-Type"] = fault.content_type or WRONG_TYPE
    if response.is_streamed:
        return response
    for fault in faults:
        if KINDS[fault.kind].needs_stream:
            exchange.refused()
            return render_error(
                FaultNotPossibleError(
                    f"The fault {fault.kind} needs a stream, and the answer to this call is none; "
                    "let the rule ask for stream: true"
                ).info()
            )
    return _faulty_json(exchange, faults, response)


def _faulty_json(exchange: Exchange, faults: Sequence[Fault], response: Response) -> Response:
    for fault in faults:
        if fault.kind == "error_frame":
            exchange.happened(fault)
            response.data = msgspec.json.encode(_error_body_of(exchange)(fault))
    body = response.get_data()
    acts = body_acts(body, [fault for fault in faults if fault.kind != "error_frame"])
    exchange.settle(act.fault for act in acts if isinstance(act, Happen))
    exchange.framed = True
    response.response = _watched(exchange, acts)
    sent = sent_length(acts)
    if isinstance(acts[-1], End):
        # The end of what is sent is to look like the end of the body.
        del response.headers["Content-Length"]
    elif isinstance(acts[-1], Reset):
        response.content_length = max(len(body), sent + 1)
    else:
        response.content_length = sent
    stay_until_closed(response)
    return response


def _watched(exchange: Exchange, acts: Sequence[Act]) -> Iterator[bytes]:
    with exchange.watched():
        yield from play(exchange, acts)


def _error_body_of(exchange: Exchange) -> Callable[[Fault], dict[str, object]]:
    """Return what makes the error of a fault, in the form of the call's surface."""
    call = exchange.recording.call
    # the chunks of a follow-up's answer are OpenAI's, and so are the errors among them
    if native.is_native(call.path) and not (call.stream and native.is_about_chat(call.path)):
        return lambda fault: {"error": error_info(fault).message}
    return lambda fault: error_object(error_info(fault))
