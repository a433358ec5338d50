"""Entries as an HTTP archive, which browsers and many tools open.

The format is HAR 1.2, http://www.softwareishard.com/blog/har-12-spec/.  Names with an underscore
are ours, as it allows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

from caesar_server import __version__
from caesar_server.mock.journal.entry import Entry
from caesar_server.mock.journal.export import bytes_json
from caesar_server.mock.model.call import Call

Json = dict[str, Any]

#: HAR's word for what is not known.
_UNKNOWN = -1
#: What WSGI servers speak; the journal does not see what the client said.
_HTTP_VERSION = "HTTP/1.1"


def to_har(entries: Iterable[Entry]) -> Json:
    """Return an archive of entries; secret headers are masked.

    Exchanges that go on, or in which no answer was sent, have the status 0.
    """
    return {
        "log": {
            "version": "1.2",
            "creator": {"name": "caesar-server", "version": __version__},
            "pages": [],
            "entries": [_entry(entry) for entry in entries],
        }
    }


def _entry(entry: Entry) -> Json:
    # In the order in which it happened: the head, then the body.
    head_ms = _ms(entry.head_at_s if entry.head_at_s is not None else entry.ended_at_s)
    end_ms = max(_ms(entry.ended_at_s), head_ms, _last_frame_ms(entry))
    return {
        "startedDateTime": _moment(entry.at),
        "time": end_ms,
        "request": _request(entry.call),
        "response": _response(entry),
        "cache": {},
        "timings": {"send": 0, "wait": head_ms, "receive": end_ms - head_ms},
        "comment": _comment(entry),
        "_id": entry.id,
        "_scope": entry.call.scope,
        "_group": entry.group,
        "_attempt": entry.call.attempt,
        "_rule": None if entry.rule is None else entry.rule.id,
        "_faults": [fault.kind for fault in entry.faults],
        "_ended": entry.ended,
    }


def _request(call: Call) -> Json:
    # what came is not always what it should be, but an archive has no fragments
    path = (call.raw_path or call.path or "/").replace("#", "%23")
    host = call.headers.get("host", "").replace("#", "") or "localhost"
    # what is meant for a proxy names its host itself
    url = path if path.startswith(("http://", "https://")) else f"http://{host}{path}"
    request: Json = {
        "method": call.method or "POST",
        "url": url,
        "httpVersion": _HTTP_VERSION,
        "cookies": [],
        "headers": _pairs(call.headers),
        "queryString": [
            {"name": name, "value": value}
            for name, value in parse_qsl(path.partition("?")[2], keep_blank_values=True)
        ],
        "headersSize": _UNKNOWN,
        "bodySize": len(call.raw_body) + call.left_out_bytes,
    }
    if call.raw_body:
        body = bytes_json(call.raw_body)
        request["postData"] = {
            "mimeType": call.headers.get("content-type", ""),
            "text": body.get("text", body.get("base64", "")),
            # 1.2 has a field for it only in answers
            **({"_encoding": "base64"} if "base64" in body else {}),
        }
        if call.left_out_bytes:
            request["postData"]["comment"] = f"{call.left_out_bytes} later bytes were not kept"
    return request


def _response(entry: Entry) -> Json:
    status = entry.status or 0
    body = bytes_json(entry.body)
    content: Json = {
        "size": entry.bytes_sent,
        "mimeType": entry.headers.get("content-type", "x-unknown"),
        "text": body.get("text", body.get("base64", "")),
    }
    if "base64" in body:
        content["encoding"] = "base64"
    if entry.frames_left_out:
        content["comment"] = f"{entry.frames_left_out} later frames were not kept"
    return {
        "status": status,
        "statusText": _phrase(status),
        "httpVersion": _HTTP_VERSION,
        "cookies": [],
        "headers": _pairs(entry.headers),
        "content": content,
        "redirectURL": entry.headers.get("location", ""),
        "headersSize": _UNKNOWN,
        "bodySize": entry.bytes_sent if entry.status is not None else _UNKNOWN,
    }


def _comment(entry: Entry) -> str:
    rule = "no rule" if entry.rule is None else f"rule {entry.rule.label}"
    return f"{entry.ended or 'open'}, {rule}"


def _pairs(headers: Mapping[str, str]) -> list[Json]:
    return [{"name": name, "value": value} for name, value in headers.items()]


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


def _last_frame_ms(entry: Entry) -> float:
    return _ms(entry.batches[-1][0] if entry.batches else None)


def _ms(seconds: float | None) -> float:
    return round((seconds or 0) * 1000, 3)


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
