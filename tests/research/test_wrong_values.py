"""A backend whose events hold what they must not: its job fails, and no other one suffers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from caesar_server.contract import (
    ChoiceFinished,
    Completed,
    ContentDelta,
    LoopFinished,
    ProgressNoted,
    RequestLogged,
    ResultFound,
    SourceStored,
)
from caesar_server.errors import UNEXPECTED
from caesar_server.store.base import Record
from caesar_server.store.sql.revisions import upgrade
from caesar_server.store.sql.sqlite import SqliteDatabase

#: (an event, what the log says of it)
WRONG: list[tuple[Any, str]] = [
    (ResultFound("z", None, "https://z", 0.1, 1), "ResultFound has the title None"),
    (ResultFound("z", "t", "https://z", 0.1, 10**400), "ResultFound has the citation_index 1000"),
    (ProgressNoted(5), "ProgressNoted has the message 5 (int); give it a str"),
    (LoopFinished(1.5), "LoopFinished has the loop 1.5 (float)"),
    (SourceStored("z", raw=5), "SourceStored has the raw 5"),
    (RequestLogged("u", duration_ms=1.5), "RequestLogged has the duration_ms 1.5"),
    (Completed({"ratio": float("nan")}), "Completed has the details {'ratio': nan}"),
]


@pytest.fixture
def sqlite(tmp_path: Path) -> str:
    """The setting of a database in a file."""
    path = tmp_path / "jobs.sqlite3"
    upgrade(SqliteDatabase(path))
    return f"sqlite:///{path}"


@pytest.mark.parametrize(("wrong", "said"), WRONG, ids=lambda value: type(value).__name__)
def test_a_wrong_value_fails_its_job_which_can_be_read(serve, sqlite, caplog, wrong, said):
    events = [ProgressNoted("before"), ContentDelta("text"), ChoiceFinished(), wrong, Completed()]
    served = serve(events, store=sqlite)
    job_id = served.create()
    assert served.ended(job_id)["status"] == "failed"
    assert f"ScriptedBackend broke the contract: {said}" in caplog.text
    assert "before" in str(served.get(f"/research/{job_id}/events"))
    listed = served.get("/research")
    assert [job["id"] for job in listed["data"]] == [job_id]
    streamed = served.client.get(
        f"/research/{job_id}/events", headers={"Accept": "text/event-stream"}
    )
    assert '"failed"' in streamed.text
    assert "[DONE]" in streamed.text


def test_a_stored_record_that_cannot_be_read_ends_its_readers(serve, sqlite, caplog):
    served = serve(store=sqlite)
    ended = served.create()
    served.ended(ended)
    job = served.store.job(ended)
    broken = job.changed(
        id="00000000-0000-4000-8000-000000000000",
        status="queued",
        finished_at=None,
        last_seq=0,
        owner="somebody",
        attempt=1,
        fingerprint=None,
    )
    served.store.renew("somebody", 60.0)
    served.store.create(broken)
    wrong: Any = ProgressNoted(5)
    served.store.append(broken.id, 1, [Record(1, 1.0, wrong)])
    for path in (f"/research/{broken.id}", f"/research/{broken.id}/events"):
        answer = served.client.get(path)
        assert answer.status_code == 500
        assert answer.json == {"error": UNEXPECTED.message}
        assert "x-should-retry" not in answer.headers
        assert f"job {broken.id}: what is stored of it cannot be read" in caplog.text
        caplog.clear()
    # a list goes without it
    assert [one["id"] for one in served.get("/research")["data"]] == [ended]
    # it has not ended, and its stream ends all the same
    streamed = served.client.get(
        f"/research/{broken.id}/events", headers={"Accept": "text/event-stream"}
    )
    assert '"failed"' in streamed.text
    assert "[DONE]" in streamed.text
    assert "cannot be followed any more" in caplog.text
    assert served.ended(ended)["status"] == "completed"
