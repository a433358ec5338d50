"""What is known of the runs of jobs is bounded, and lets nobody wait for nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from caesar_server.app import create_app
from caesar_server.blueprints.mock import settling
from caesar_server.contract import Backend, Completed, ContentDelta
from caesar_server.contract.events import ChoiceFinished
from caesar_server.mock.course import Courses
from caesar_server.mock.matching import conditions
from caesar_server.mock.model.call import Call
from caesar_server.mock.model.reply import Reply
from caesar_server.mock.model.rule import Decision, Rule
from caesar_server.mock.scope import Scope
from caesar_server.mock.scopes import Held, Scopes
from caesar_server.registry import Registry
from caesar_server.settings import Settings
from caesar_server.store.opening import open_store, prepare_store


def held(scope: Scope) -> Held:
    return Held(Call(), Decision(), scope)


def test_the_oldest_are_forgotten_and_held_no_more() -> None:
    courses, scope = Courses(most=2), Scope()
    first = courses.open("a", held(scope), 0)
    courses.open("b", held(scope), 0)
    courses.open("c", held(scope), 0)
    assert courses.find("a") is None
    assert list(courses.of(scope)) == ["b", "c"]
    assert first.end()  # it was released


def test_a_run_takes_its_call_once_and_its_end_drops_it() -> None:
    courses, scope = Courses(), Scope()
    mine = held(scope)
    course = courses.open("a", mine, 0)
    assert course.begin() is mine
    assert course.begin() is None
    courses.end("a")
    assert (course.held, course.ended, courses.find("a")) == (None, True, course)
    courses.release(scope)
    assert courses.find("a") is None


def test_a_reset_forgets_the_courses_of_its_scope_alone() -> None:
    scopes = Scopes()
    for name in ("", "t"):
        scopes.courses.open(name, held(scopes.get(name)), 0)
        scopes.courses.end(name)
    scopes.get("t").reset("journal")
    assert scopes.courses.find("t") is not None
    scopes.get("t").reset()
    assert (scopes.courses.find("t"), scopes.courses.find("") is None) == (None, False)


def test_polls_are_settled_in_a_database_too(tmp_path: Path) -> None:
    settings = Settings(store=f"sqlite:///{tmp_path / 'jobs.sqlite3'}")
    prepare_store(settings)
    scopes = Scopes()
    reply = Reply(text="So.", queued_polls=1, statuses=("searching",), polls_per_status=1)
    scopes.get().add(Rule(replies=(reply,)))
    app = create_app(settings, mock=scopes, store=open_store(settings))
    client = app.test_client()
    for number in range(10):
        job_id = client.post("/research", json={"query": f"{number}?"}).json["id"]
        seen = [client.get(f"/research/{job_id}").json["status"] for _ in range(3)]
        assert seen == ["queued", "searching", "completed"]
    app.extensions["caesar_server"].close()


def test_the_jobs_of_other_backends_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(Backend):
        def run(self, request: Any, context: Any) -> Iterator[Any]:
            context.sleep(3600)
            yield ContentDelta("x")
            yield ChoiceFinished()
            yield Completed()

    settings = Settings(default_backend="slow")
    app = create_app(settings, Registry.of({"slow": Slow}, settings), mock=Scopes())
    client = app.test_client()
    monkeypatch.setattr(settling, "PATIENCE_S", 3600)
    job_id = client.post("/research", json={"query": "Why?"}).json["id"]
    assert client.get(f"/research/{job_id}").json["status"] == "queued"
    app.extensions["caesar_server"].close()


def test_the_limits_of_a_key_are_met_exactly_in_each_scope() -> None:
    key = "k" * 32
    headers = {"Authorization": f"Bearer {key}"}
    settings = Settings(api_keys=(key,), account_jobs_in_progress=2)
    scopes = Scopes()
    for name in ("a", "b"):
        held = conditions(query="held")
        scopes.get(name).add(Rule(conditions=held, replies=(Reply(queued_polls=9),)))
    app = create_app(settings, mock=scopes)
    client = app.test_client()

    def create(name: str, query: str) -> int:
        path = f"/t/{name}/research"
        return client.post(path, json={"query": query}, headers=headers).status_code

    for name in ("a", "b"):
        assert [create(name, f"{number}?") for number in range(10)] == [200] * 10
        assert [create(name, "held") for _ in range(3)] == [200, 200, 429]
    app.extensions["caesar_server"].close()
