"""``/docs`` of a mock shows the control API, too."""

from __future__ import annotations

import html
import re
from typing import Any

from flask.testing import FlaskClient


def test_the_page_has_every_operation(client: FlaskClient, document: Any) -> None:
    answer = client.get("/docs")
    assert answer.status_code == 200
    for path, item in document["paths"].items():
        for method in ("get", "post", "put", "patch", "delete"):
            if method in item and path.startswith("/_mock"):
                assert f'id="{item[method]["operationId"]}"' in answer.text


def test_its_commands_can_be_copied(client: FlaskClient) -> None:
    page = html.unescape(client.get("/docs").text)
    assert "curl -s -X DELETE http://localhost/_mock/rules/r1" in page
    assert re.search(r"curl -s http://localhost/_mock/rules/r1 \\\n  -X PUT", page)
    assert "{rule_id} " not in page
