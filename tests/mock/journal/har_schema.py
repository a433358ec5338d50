"""The structure of HAR 1.2 as a JSON Schema, after http://www.softwareishard.com/blog/har-12-spec/.

Custom fields begin with an underscore; everything else must be named there.
"""

from __future__ import annotations

from typing import Any

TEXT = {"type": "string"}
COUNT = {"type": "integer", "minimum": -1}
LENGTH = {"type": "number", "minimum": 0}
#: Milliseconds; -1 where it does not apply.
TIMING = {"anyOf": [{"type": "number", "minimum": 0}, {"const": -1}]}
MOMENT = {
    "type": "string",
    "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$",
}


def _object(required: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "type": "object",
        "required": list(required),
        "properties": {**required, **(optional or {}), "comment": TEXT},
        "patternProperties": {"^_": {}},
        "additionalProperties": False,
    }


def _list(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


PAIR = _object({"name": TEXT, "value": TEXT})
COOKIE = _object(
    {"name": TEXT, "value": TEXT},
    {"path": TEXT, "domain": TEXT, "expires": MOMENT, "httpOnly": {}, "secure": {}},
)
PROGRAM = _object({"name": TEXT, "version": TEXT})
PARAM = _object({"name": TEXT}, {"value": TEXT, "fileName": TEXT, "contentType": TEXT})
POST_DATA = {
    **_object({"mimeType": TEXT}, {"params": _list(PARAM), "text": TEXT}),
    # "text and params fields are mutually exclusive"
    "oneOf": [{"required": ["params"]}, {"required": ["text"]}],
}
REQUEST = _object(
    {
        "method": TEXT,
        "url": {"type": "string", "pattern": "^https?://[^#]+$"},  # "fragments are not included"
        "httpVersion": TEXT,
        "cookies": _list(COOKIE),
        "headers": _list(PAIR),
        "queryString": _list(PAIR),
        "headersSize": COUNT,
        "bodySize": COUNT,
    },
    {"postData": POST_DATA},
)
CONTENT = _object(
    {"size": {"type": "integer", "minimum": 0}, "mimeType": TEXT},
    {"compression": {"type": "integer"}, "text": TEXT, "encoding": TEXT},
)
RESPONSE = _object(
    {
        "status": {"type": "integer", "minimum": 0},
        "statusText": TEXT,
        "httpVersion": TEXT,
        "cookies": _list(COOKIE),
        "headers": _list(PAIR),
        "content": CONTENT,
        "redirectURL": TEXT,
        "headersSize": COUNT,
        "bodySize": COUNT,
    }
)
TIMINGS = _object(
    # these three "must not be -1"
    dict.fromkeys(("send", "wait", "receive"), LENGTH),
    dict.fromkeys(("blocked", "dns", "connect", "ssl"), TIMING),
)
CACHED = _object(
    {"lastAccess": TEXT, "eTag": TEXT, "hitCount": {"type": "integer"}}, {"expires": MOMENT}
)
ENTRY = _object(
    {
        "startedDateTime": MOMENT,
        "time": {"type": "number", "minimum": 0},
        "request": REQUEST,
        "response": RESPONSE,
        "cache": _object({}, {"beforeRequest": CACHED, "afterRequest": CACHED}),
        "timings": TIMINGS,
    },
    {"pageref": TEXT, "serverIPAddress": TEXT, "connection": TEXT},
)
HAR = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "required": ["log"],
    "additionalProperties": False,
    "properties": {
        "log": _object(
            {"version": {"const": "1.2"}, "creator": PROGRAM, "entries": _list(ENTRY)},
            {"browser": PROGRAM, "pages": {"type": "array"}},
        )
    },
}
