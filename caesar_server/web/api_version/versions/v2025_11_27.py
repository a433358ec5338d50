"""Version 2025-11-27: the server's own words.

https://docs.caesar.org/documentation/guides/versioning
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from caesar_server.web.api_version.version import Json, Version


def request(name: str, body: Mapping[str, Any]) -> Json:
    """Return the body as it is: ``compute_units`` is accepted in every version."""
    return dict(body)


def response(name: str, body: Mapping[str, Any]) -> Json:
    """Return the object without scores: the order of results tells how relevant they are."""
    match name:
        case "result":
            return _result(body)
        case "research":
            return {**body, "results": [_result(result) for result in body["results"]]}
        case _:
            return dict(body)


def _result(result: Mapping[str, Any]) -> Json:
    return {key: value for key, value in result.items() if key != "score"}


VERSION = Version("2025-11-27", request, response)
