"""Entries as JSON."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any

from caesar_server.mock.journal.book import Totals
from caesar_server.mock.journal.entry import Entry
from caesar_server.mock.model.call import Call

Json = dict[str, Any]


def to_json(entries: Iterable[Entry], totals: Totals) -> Json:
    """Return a whole journal: ``entries``, the oldest first, and ``totals``."""
    return {
        "totals": {
            "requests": totals.requests,
            "dropped": totals.dropped,
            "faults": dict(totals.faults),
            "ended": dict(totals.ended),
        },
        "entries": [entry_json(entry) for entry in entries],
    }


def entry_json(entry: Entry) -> Json:
    """Return one entry; bytes that are no UTF-8 are in ``base64`` instead of ``text``."""
    return {
        "id": entry.id,
        "number": entry.number,
        "scope": entry.call.scope,
        "group": entry.group,
        "attempt": entry.call.attempt,
        "at": entry.at,
        "request": _request(entry.call),
        "rule": None
        if entry.rule is None
        else {"id": entry.rule.id, "name": entry.rule.name, "source": entry.rule.source},
        "nearest": [
            {"rule": near.rule.id, "name": near.rule.name, "failed": list(near.failed)}
            for near in entry.nearest
        ],
        "faults": [
            {"kind": fault.kind, "at_s": fault.at_s, "rule": fault.rule} for fault in entry.faults
        ],
        "missed_faults": list(entry.missed),
        "response": _response(entry),
        "ended": entry.ended,
        "ended_at_s": entry.ended_at_s,
        "detail": entry.detail,
    }


def bytes_json(data: bytes) -> dict[str, str]:
    """Return bytes as ``{"text": ...}``, or as ``{"base64": ...}`` if they are no UTF-8."""
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _request(call: Call) -> Json:
    return {
        "method": call.method,
        "path": call.path,
        "raw_path": call.raw_path,
        "headers": dict(call.headers),
        "body": bytes_json(call.raw_body),
        "body_left_out_bytes": call.left_out_bytes,
        "model": call.model,
        "prompt": call.prompt,
        "stream": call.stream,
        "turn": call.turn,
    }


def _response(entry: Entry) -> Json | None:
    if entry.status is None and not entry.bytes_sent:
        return None
    return {
        "status": entry.status,
        "headers": dict(entry.headers),
        "head_at_s": entry.head_at_s,
        "bytes_sent": entry.bytes_sent,
        "frames": [{"at_s": frame.at_s, **bytes_json(frame.data)} for frame in entry.frames],
        "frames_left_out": entry.frames_left_out,
    }
