"""Everything of another account is not there."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator

import pytest

from caesar_server.contract import ChoiceFinished, Completed
from caesar_server.testing import Gate

#: Bodies that would be taken if the thing were one's own.
BODIES = {
    "create_research_update": {"update_content": "More"},
    "create_research_chat": {"content": "And?"},
    "create_agent_update": {"update_content": "More"},
    "create_agent_chat": {"content": "And?"},
    "change_research_collection": {"name": "Mine"},
}


class Things:
    """A job, its chat, a file and a collection of one account."""

    def __init__(self, served, headers) -> None:
        self.served, self.headers = served, headers
        self.job_id = served.create(headers)
        served.ended(self.job_id, headers)
        self.message_id = self._post(f"/research/{self.job_id}/chat", json={"content": "And?"})
        self.collection_id = self._post("/research/collections", json={"name": "Papers"})
        self.file_id = self._post("/research/files", data={"file": (io.BytesIO(b"text"), "a.txt")})
        served.until(
            lambda: (
                served.client.get(
                    f"/research/{self.job_id}/chat/{self.message_id}", headers=headers
                ).status_code
            ),
            lambda status: status == 200,
        )

    def _post(self, path: str, **more: object) -> str:
        response = self.served.client.post(path, headers=self.headers, **more)
        assert response.status_code == 200, response.text
        return response.json["id"]

    def path(self, rule: str) -> str:
        """Return the path of a rule with the ids of these things."""
        values = {**vars(self), "result_id": "r1"}
        return re.sub(r"<(?:\w+:)?(\w+)>", lambda found: str(values[found[1]]), rule)


def routes(app) -> Iterator[tuple[str, str, str]]:
    """Yield name, method and rule of each native route that names a thing."""
    for rule in app.url_map.iter_rules():
        if rule.rule.startswith(("/research", "/agents")) and "<" in rule.rule:
            for method in sorted((rule.methods or set()) - {"OPTIONS", "HEAD"}):
                yield rule.endpoint.rpartition(".")[2], method, rule.rule


@pytest.fixture
def accounts(serve, make_key, tmp_path):
    mine, other = make_key("mine"), make_key("other")
    able = {"accepts": frozenset({"research", "chat", "completion", "follow_up"})}
    served = serve(keys_file=str(tmp_path / "keys.json"), able=able)
    return served, Things(served, mine), other


def test_no_route_shows_or_changes_what_another_account_has(accounts) -> None:
    served, things, other = accounts
    seen = set()
    for name, method, rule in routes(served.app):
        for accept in ("application/json", "text/event-stream"):
            response = served.client.open(
                things.path(rule),
                method=method,
                headers={**other, "Accept": accept},
                json=BODIES.get(name) if method in ("POST", "PATCH") else None,
            )
            assert response.status_code == 404, (method, rule, response.text)
            assert response.json == {"error": "Resource not found"}, (method, rule)
        seen.add((method, rule))
    assert len(seen) >= 20
    # nothing was done
    job = served.get(f"/research/{things.job_id}", things.headers)
    assert job["status"] == "completed"
    assert served.get(f"/research/{things.job_id}/updates", things.headers) == []


def test_their_owner_reads_all_of_it_and_lists_show_only_ones_own(accounts) -> None:
    served, things, other = accounts
    for _, method, rule in routes(served.app):
        if method == "GET":
            response = served.client.get(things.path(rule), headers=things.headers)
            assert response.status_code == 200, (rule, response.text)
            response.close()
    for path in ("/research", "/research/files", "/research/collections"):
        assert len(served.get(path, things.headers)["data"]) == 1
        body = served.get(path, other)
        assert (body["data"], body["pagination"]["total"]) == ([], 0)


def test_another_accounts_things_cannot_be_named_in_a_request(accounts) -> None:
    served, things, other = accounts
    session = served.client.post(
        "/research/brainstorm", json={"query": "q"}, headers=things.headers
    ).json
    for body in (
        {"files": [things.file_id]},
        {"collection_ids": [things.collection_id]},
        {"brainstorm_session_id": session["id"]},
    ):
        response = served.client.post("/research", json={"query": "q", **body}, headers=other)
        assert response.status_code == 400
        (named,) = body.values()
        assert (named if isinstance(named, str) else named[0]) in response.json["error"]
    assert served.get("/research", other)["data"] == []


def test_a_retry_never_gets_another_accounts_job(serve, make_key, tmp_path) -> None:
    mine, other = make_key("mine"), make_key("other")
    gate = Gate()
    served = serve([gate, ChoiceFinished(), Completed()], keys_file=str(tmp_path / "keys.json"))
    first = served.create(mine)
    second = served.create({**other, "x-stainless-retry-count": "1"})
    assert first != second
    gate.open()
    served.ended(first, mine)
    served.ended(second, other)
