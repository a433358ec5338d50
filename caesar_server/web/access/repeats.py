"""Requests that a client sends again because it gave up waiting, or lost its connection.

openai-python and openai-node repeat a request twice by default after a timeout, and say so in
``x-stainless-retry-count``.  For a job that goes on without its client that would cost three times
as much as it needs to: the repeat is answered from the job that runs already.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from flask import Request

from caesar_server.web.access.auth import caller

_RETRY_COUNT = "x-stainless-retry-count"


def is_repeat(request: Request) -> bool:
    """Return whether the client says that it sends this request again."""
    count = request.headers.get(_RETRY_COUNT, "")
    return count.isascii() and count.isdigit() and int(count[:9]) > 0


def fingerprint(request: Request, body: Mapping[str, Any]) -> str:
    """Return what a repeat of the request is known by: its API key, path and body.

    :param body: the JSON object that was sent; the order of its members does not matter.
    """
    parts = [caller().key_id, request.path, body]
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
