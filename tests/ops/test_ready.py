"""``/readyz`` says within a second whether the server can answer, whatever its parts do."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from flask import Flask

from caesar_server.app import create_app
from caesar_server.blueprints.ops.readiness import HealthChecks, ReadinessView
from caesar_server.contract import (
    Backend,
    BackendUnavailableError,
    ChoiceFinished,
    Completed,
    ContentDelta,
    Health,
    option,
)
from caesar_server.registry import Registry
from caesar_server.settings import Settings
from caesar_server.store.base import StoreError
from caesar_server.store.memory import MemoryStore
from caesar_server.testing import ScriptedBackend, scripted_backend

HELLO = (ContentDelta("hello"), ChoiceFinished(), Completed())
#: More than a look may take, and less than anything that hangs.
AT_ONCE_S = 30.0
LONG_S = 60.0


@pytest.fixture
def app_of() -> Iterator[Callable[..., Flask]]:
    """Make an app with these backends, loaded by a request each; the first is the default."""
    apps = []

    def make(store: Any = None, load: bool = True, **backends: type[Backend]) -> Flask:
        settings = Settings(default_backend=next(iter(backends)))
        app = create_app(settings, Registry.of(backends, settings), store=store)
        apps.append(app)
        for name in backends if load else ():
            app.test_client().post("/compat/completions", json={"model": name, "prompt": "p"})
        return app

    yield make
    for app in apps:
        app.extensions["caesar_server"].close()


AppOf = Callable[..., Flask]


def backend(health: Callable[[], Any] = Health) -> type[Backend]:
    class Checked(ScriptedBackend):
        script = scripted_backend(HELLO).script

        def health(self) -> Health:
            return health()

    return Checked


def look(app: Flask) -> tuple[int, Any]:
    reply = app.test_client().get("/readyz")
    return reply.status_code, reply.json


@pytest.fixture
def hang() -> Iterator[Callable[[], Health]]:
    """Return a check that hangs until the test is over."""
    over = threading.Event()

    def wait() -> Health:
        over.wait(LONG_S)
        return Health()

    yield wait
    over.set()


def test_ready(app_of: AppOf) -> None:
    assert look(app_of(good=backend(), other=backend(lambda: Health("degraded", "slow")))) == (
        200,
        {
            "status": "ready",
            "reasons": [],
            "default_backend": "good",
            "backends": {
                "good": {"status": "ok", "message": ""},
                "other": {"status": "degraded", "message": "slow"},
            },
            "store": {"status": "ok", "message": ""},
            "files": {"status": "ok", "message": ""},
            "failed": {},
            "warnings": [],
        },
    )


def test_first_look_loads_the_default_backend_alone(app_of: AppOf) -> None:
    status, body = look(app_of(good=backend(), other=backend(), load=False))
    assert (status, body["backends"]) == (200, {"good": {"status": "ok", "message": ""}})


@dataclass(frozen=True)
class PrefixOptions:
    prefix: str = option("", help="The words to begin with.")


class Picky(ScriptedBackend):
    script = scripted_backend(HELLO).script
    options_schema = PrefixOptions


class Unmade(Picky):
    def __init__(self, options: Any) -> None:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("kind", "option_name", "reason"),
    [
        (
            Picky,
            "prefx",
            "its options are wrong: backends.b.prefx: unknown; did you mean backends.b.prefix?",
        ),
        (Unmade, "prefix", "the constructor raised RuntimeError"),
    ],
)
def test_default_backend_that_cannot_be_loaded_is_told_before_any_request(
    kind: type[Backend], option_name: str, reason: str
) -> None:
    settings = Settings(default_backend="b", backends={"b": {option_name: "x"}})
    app = create_app(settings, Registry.of({"b": kind}, settings))
    for _ in range(2):
        status, body = look(app)
        assert (status, body["backends"], body["failed"]) == (503, {}, {"b": reason})
        assert body["reasons"] == [f"the default backend b could not be loaded: {reason}"]
    app.extensions["caesar_server"].close()


def test_default_backend_that_loads_long_is_not_ready_and_loaded_once(app_of: AppOf) -> None:
    gate, opened = threading.Event(), []

    class Slow(ScriptedBackend):
        script = scripted_backend(HELLO).script

        def open(self) -> None:
            opened.append(1)
            gate.wait(LONG_S)

    app = app_of(slow=Slow, load=False)
    view = ReadinessView(limit_s=0.01)
    app.add_url_rule("/hasty", view_func=view.show_readiness)
    for _ in range(3):
        reply = app.test_client().get("/hasty")
        assert (reply.status_code, reply.json["backends"]) == (503, {})
        assert reply.json["reasons"] == ["the default backend slow is being loaded"]
    gate.set()
    app.extensions["caesar_server"].registry.load("slow")
    assert look(app)[0] == 200
    assert opened == [1]


def test_default_backend_that_failed_for_now_is_tried_again(app_of: AppOf) -> None:
    outcomes = [BackendUnavailableError("not yet"), None]

    class Late(ScriptedBackend):
        script = scripted_backend(HELLO).script

        def open(self) -> None:
            if error := outcomes.pop(0):
                raise error

    app = app_of(late=Late, load=False)
    status, body = look(app)
    assert (status, body["failed"]) == (503, {"late": "open(): not yet"})
    assert look(app)[0] == 200


def test_default_backend_that_is_down_is_the_reason(app_of: AppOf) -> None:
    status, body = look(app_of(bad=backend(lambda: Health("down", "no GPU")), good=backend()))
    assert (status, body["status"]) == (503, "not ready")
    assert body["reasons"] == ["the default backend bad is down: no GPU"]
    assert body["backends"]["good"]["status"] == "ok"


def test_degraded_default_and_another_one_down_are_no_reason(app_of: AppOf) -> None:
    degraded = backend(lambda: Health("degraded", "slow"))
    status, body = look(app_of(slow=degraded, bad=backend(lambda: Health("down"))))
    assert (status, body["backends"]["bad"]["status"]) == (200, "down")


class Broken(ScriptedBackend):
    script = scripted_backend(HELLO).script
    secret: ClassVar[str] = "token-XYZZY"

    def open(self) -> None:
        raise RuntimeError(f"cannot reach https://user:{self.secret}@host")


def test_default_backend_that_does_not_load_is_the_reason_and_its_secret_is_kept(
    app_of: AppOf,
) -> None:
    status, body = look(app_of(broken=Broken, good=backend()))
    assert status == 503
    assert body["reasons"] == [
        "the default backend broken could not be loaded: open() raised RuntimeError"
    ]
    assert body["failed"] == {"broken": "open() raised RuntimeError"}
    assert "XYZZY" not in str(body)


def test_another_one_that_does_not_load_is_only_listed(app_of: AppOf) -> None:
    status, body = look(app_of(good=backend(), broken=Broken))
    assert (status, list(body["failed"]), body["reasons"]) == (200, ["broken"], [])


@pytest.mark.parametrize("error", [RuntimeError("key XYZZY"), SystemExit("XYZZY")])
def test_check_that_raises_counts_as_down_and_is_logged(
    app_of: AppOf, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    def fail() -> Health:
        raise error

    status, body = look(app_of(bad=backend(fail)))
    name = type(error).__name__
    assert (status, body["backends"]["bad"]["status"]) == (503, "down")
    assert body["backends"]["bad"]["message"] == f"the check raised {name}; see the log"
    assert "XYZZY" not in str(body)
    (record,) = [one for one in caplog.records if one.levelno == logging.ERROR]
    assert record.getMessage() == "backend bad: the health check raised"
    assert record.exc_info is not None


@pytest.mark.parametrize("answer", [None, "ok", Health("fine")])  # type: ignore[arg-type]
def test_check_that_returns_something_else_counts_as_down(app_of: AppOf, answer: Any) -> None:
    status, body = look(app_of(bad=backend(lambda: answer)))
    assert (status, body["backends"]["bad"]["message"]) == (503, "the check returned no Health")


def test_check_that_hangs_does_not_hold_the_answer_up(
    app_of: AppOf, hang: Callable[[], Health]
) -> None:
    app = app_of(good=backend(), stuck=backend(hang), also=backend(hang))
    began = time.monotonic()
    status, body = look(app)
    assert time.monotonic() - began < AT_ONCE_S
    assert status == 200
    assert body["backends"]["good"]["status"] == "ok"
    for name in ("stuck", "also"):
        assert body["backends"][name]["status"] == "down"
        assert body["backends"][name]["message"].startswith("no answer for ")


def test_default_backend_that_hangs_is_not_ready(app_of: AppOf, hang: Callable[[], Health]) -> None:
    status, body = look(app_of(stuck=backend(hang)))
    assert status == 503
    assert body["reasons"][0].startswith("the default backend stuck is down: no answer for ")


def test_check_that_hangs_is_not_started_again_until_it_is_back() -> None:
    gate, calls = threading.Event(), []

    def check() -> Health:
        calls.append(1)
        gate.wait(LONG_S)
        return Health("ok", f"call {len(calls)}")

    checks = HealthChecks(limit_s=0.01)
    for _ in range(3):
        assert checks.run({"one": check})["one"].status == "down"
    assert len(calls) == 1
    gate.set()
    patient = HealthChecks(limit_s=LONG_S)
    assert patient.run({"one": check})["one"] == Health("ok", "call 2")
    deadline = time.monotonic() + LONG_S
    while checks.run({"one": check})["one"].status == "down":
        assert time.monotonic() < deadline


class BrokenStore(MemoryStore):
    def __init__(self, error: Exception) -> None:
        super().__init__(10)
        self.error = error

    def check(self) -> None:
        raise self.error


GONE = "postgres://user:XYZZY@host is gone"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (StoreError(GONE), "it cannot be read and written now; see the log"),
        (ConnectionError(GONE), "the check raised ConnectionError; see the log"),
    ],
)
def test_store_that_fails_is_the_reason(app_of: AppOf, error: Exception, reason: str) -> None:
    status, body = look(app_of(store=BrokenStore(error), good=backend()))
    assert (status, body["store"]["status"]) == (503, "down")
    assert body["reasons"] == [f"the store is down: {reason}"]
    assert "XYZZY" not in str(body)


def test_warnings_are_told(app_of: AppOf) -> None:
    settings = Settings()
    app = create_app(settings, Registry.of({"mock": backend()}, settings))
    body = app.test_client().get("/readyz").json
    app.extensions["caesar_server"].close()
    assert len(body["warnings"]) == 1


def test_health_stays_trivial_whatever_happens(app_of: AppOf, hang: Callable[[], Health]) -> None:
    app = app_of(store=BrokenStore(StoreError(GONE)), stuck=backend(hang))
    began = time.monotonic()
    reply = app.test_client().get("/healthz")
    assert time.monotonic() - began < AT_ONCE_S
    assert (reply.status_code, reply.json["status"]) == (200, "ok")
