"""One answer of one server as events."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from caesar_backend_upstream.http.problems import Problem
from caesar_backend_upstream.http.transport import Reply
from caesar_backend_upstream.keys import Scrubber, is_header_value, secrets_of
from caesar_backend_upstream.servers import Server
from caesar_backend_upstream.tee import Tee
from caesar_backend_upstream.wire.answers import AnswerError, AnswerReader
from caesar_backend_upstream.wire.asks import Ask
from caesar_backend_upstream.wire.bodies import Frame, Opened, frames, json_or_none, whole_body
from caesar_backend_upstream.wire.failures import Teller, is_error
from caesar_server.contract import Context, Event, Started

#: As much of an error's body as is read.
_ERROR_BYTES = 1024 * 1024
#: Headers of an answer that a recording keeps; none of them says who asked.
_RECORDED = ("content-type", "retry-after", "x-request-id")
#: How a server is silent for too long.
_SILENCE = ("gap_timeout", "total_timeout")
_AGENT = "caesar-backend-upstream"


@dataclass(frozen=True, slots=True)
class Calling:
    """Who asks a server, and in what name.

    :ivar headers: all that are sent, the key included.
    """

    server: Server
    headers: Mapping[str, str]
    teller: Teller

    def __repr__(self) -> str:
        return f"Calling({self.server.name!r})"


def calling(server: Server, context: Context) -> Calling:
    """Return what a server is asked with: headers of the operator, some of the caller, a key."""
    options, forwarded = server.options, context.forwarded
    sent: dict[str, str] = {"User-Agent": _AGENT, "Accept-Encoding": "identity"}
    for name in options.forward_headers:
        value = forwarded.headers.get(name.lower())
        if value is not None and is_header_value(value):
            sent[name.lower()] = value
    sent |= options.headers
    key, own = server.key.value if server.key is not None else None, True
    caller_key = forwarded.api_key if options.forward_key else None
    if caller_key is not None and is_header_value(caller_key):
        key, own = caller_key, False
    if key is not None:
        sent["Authorization"] = f"Bearer {key}"
    scrubber = server.scrubber if own else Scrubber(secrets_of(options, server.key, caller_key))
    return Calling(server, sent, Teller(server.name, scrubber, own_key=own))


def answer_events(
    call: Calling,
    ask: Ask,
    context: Context,
    *,
    prompt_words: int,
    max_line_bytes: int,
    record_folder: Path | None,
    announce: bool,
) -> Generator[Event, None, dict[str, Any]]:
    """Yield the events of an answer but for ``Completed``, whose details are returned.

    :param announce: begin with ``Started``, once the server has said something that is an answer.
    :raises UpstreamFailure: if there is none, or not to its end.
    """
    server = call.server
    headers = {
        **call.headers,
        "Content-Type": "application/json",
        "Accept": "text/event-stream" if ask.stream else "application/json",
    }
    tee = Tee(record_folder, context.job_id, context.logger)
    tee.request(ask.path, ask.body, server.name, context.clock.time())
    reader = AnswerReader(ask, prompt_words)
    try:
        url = server.url_of(ask.path)
        with server.transport.exchange("POST", url, headers, context, ask.body) as reply:
            if tee.on:
                tee.response(reply.status, _kept(reply.headers, _RECORDED))
            if reply.status != 200:
                raise _refusal(call, reply, tee)
            started: list[Event] = []
            if announce:
                started.append(Started(_started(server, reply.headers)))
            yield from _read(call, reply, reader, tee, max_line_bytes, started)
        tee.end("complete")
    except GeneratorExit:
        tee.end("cancelled")
        raise
    except Problem as problem:
        tee.end("cancelled" if problem.kind == "cancelled" else "cut")
        context.raise_if_cancelled()
        raise call.teller.problem(problem) from problem
    except AnswerError as error:
        raise call.teller.bad(str(error)) from error
    finally:
        tee.end("failed")
        tee.close()
    if reader.unfinished:
        context.logger.warning(
            "the upstream server %s ended its answer without %d finish reasons",
            server.name,
            reader.unfinished,
        )
    return reader.details()


def _read(
    call: Calling,
    reply: Reply,
    reader: AnswerReader,
    tee: Tee,
    max_line_bytes: int,
    started: list[Event],
) -> Generator[Event, None, None]:
    opened = Opened(reply, reply.headers.get("content-type", ""))
    if opened.form == "stream":
        yield from _stream(call, reply, opened, reader, tee, max_line_bytes, started)
    elif opened.form == "json":
        body = whole_body(opened, tee.body if tee.on else None)
        if is_error(body):
            raise call.teller.frame(body)
        events = list(reader.whole(body))
        yield from started
        yield from events
    elif opened.form == "html":
        raise AnswerError("sent an HTML page in place of an answer; is its url right?")
    elif opened.form == "empty":
        raise AnswerError("sent an empty answer")
    else:
        raise AnswerError("sent an answer that is neither a stream nor JSON")
    yield from reader.end()


def _stream(
    call: Calling,
    reply: Reply,
    opened: Opened,
    reader: AnswerReader,
    tee: Tee,
    max_line_bytes: int,
    started: list[Event],
) -> Generator[Event, None, None]:
    seen = False
    for frame in _until_silent(
        frames(opened, max_line_bytes, tee.frame if tee.on else None), reader
    ):
        if frame.body is None:
            if not seen:
                raise AnswerError("ended its stream without an answer")
            reply.drain()
            return
        if frame.name == "error" or is_error(frame.body):
            raise call.teller.frame(frame.body)
        if frame.is_aside:
            continue
        events = list(reader.chunk(frame.body))
        if not seen:
            seen = True
            yield from started
        yield from events
        if reader.cut_short:
            return
    if not seen:
        raise AnswerError("sent an empty stream")
    if not reader.complete:
        raise AnswerError("closed its stream in the middle of the answer")


def _until_silent(found: Iterator[Frame], reader: AnswerReader) -> Iterator[Frame]:
    """Yield frames until they end; silence after the last finish reason is an end, too.

    What could still come then, usage and ``[DONE]``, adds nothing to the text.
    """
    try:
        yield from found
    except Problem as problem:
        if not (reader.complete and problem.kind in _SILENCE):
            raise


def _refusal(call: Calling, reply: Reply, tee: Tee) -> Exception:
    data = b""
    try:
        data = reply.read_all(_ERROR_BYTES)
    except Problem as problem:
        if problem.kind == "cancelled":
            return problem
        # The status says enough.
    if tee.on:
        tee.body(data.decode("utf-8", errors="replace"))
    return call.teller.refusal(reply.status, reply.headers, json_or_none(data))


def _started(server: Server, headers: Mapping[str, str]) -> dict[str, Any]:
    details: dict[str, Any] = {"upstream": server.name}
    if kept := _kept(headers, server.options.return_headers):
        details["headers"] = kept
    return details


def _kept(headers: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    return {name.lower(): headers[name] for name in names if name in headers}
