"""Apps whose backend does research, is asked about it, and asks back."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from caesar_server.app import create_app
from caesar_server.contract import (
    Backend,
    ChoiceFinished,
    Completed,
    ContentDelta,
    LoopFinished,
    ResultFound,
    SourceStored,
)
from caesar_server.registry import Registry
from caesar_server.settings import Settings
from caesar_server.store.base import Job, Store
from caesar_server.store.memory import MemoryStore
from caesar_server.store.opening import open_store, prepare_store
from caesar_server.testing import LiveServer, SseClient, scripted_backend
from caesar_server.web.access.key_file import edit_key_file
from caesar_server.web.access.keys import Key, KeyLimits, generate_id, generate_key, hash_key
from caesar_server.web.services import Services, services_of

WITHIN_S = 60.0

IONS = ResultFound("ions", "Ion traps", "https://ions.example/a", 0.9, 1)
QUBITS = ResultFound("qubits", "Qubits", "https://qubits.example/b", 0.7, 2)
UNCITED = ResultFound("other", "Other", "https://other.example/c", 0.1, 3)
FOUND = (
    IONS,
    SourceStored("ions", raw="<p>Ion traps are slow.</p>", markdown="Ion traps are slow."),
    QUBITS,
    SourceStored("qubits", markdown="Qubits are noisy. Codes help noisy qubits. Costs are 3.5 M."),
    UNCITED,
    SourceStored("other", markdown="Of no use."),
    LoopFinished(1),
    ContentDelta("Traps [1] and "),
    ContentDelta("qubits [2]."),
    ChoiceFinished(),
    Completed(),
)
ANSWER = "Traps [1] and qubits [2]."


class Stage:
    """What the backend does for each kind of request: steps, or a function that makes them."""

    def __init__(self) -> None:
        self.steps: dict[str, Any] = {"research": FOUND}

    def play(self, request: Any) -> Any:
        """Return the steps for a request."""
        steps = self.steps.get(request.type, ())
        return steps(request) if callable(steps) else steps


class Served:
    """One process's server; its app is asked directly unless a test asks for a socket."""

    def __init__(
        self, stage: Stage, backend: Any, app: Flask, store: Store, stack: ExitStack
    ) -> None:
        self.stage = stage
        self.backend = backend
        self.app = app
        self.store = store
        self._stack = stack
        self._live: LiveServer | None = None

    @property
    def client(self) -> FlaskClient:
        return self.app.test_client()

    @property
    def parts(self) -> Services:
        return services_of(self.app)

    def live(self, **kwargs: Any) -> SseClient:
        """Return a client over a real socket."""
        if self._live is None:
            self._live = self._stack.enter_context(LiveServer(self.app))
        return self._live.client(**{"timeout_s": WITHIN_S, **kwargs})

    @property
    def port(self) -> int:
        """The port of that socket."""
        assert self._live is not None
        return self._live.port

    def ended(self, job_id: str) -> Job:
        """Wait until a job has ended, and return it."""
        following = self.parts.runner.follow_stored(self.store.job(job_id))
        until = time.monotonic() + WITHIN_S
        while not following.drained:
            assert time.monotonic() < until
            following.take(WITHIN_S)
        return self.store.job(job_id)

    def research(self, headers: Any = None, **body: Any) -> str:
        """Have a question answered, and return the job's id."""
        made = self.client.post("/research", json={"query": "qubits?", **body}, headers=headers)
        assert made.status_code == 200, made.text
        job_id: str = made.get_json()["id"]
        assert self.ended(job_id).status == "completed"
        return job_id

    def ask(self, job_id: str, content: str = "And then?", **more: Any) -> Any:
        """Ask about a job; return the message as it was made."""
        headers = more.pop("headers", None)
        made = self.client.post(
            f"/research/{job_id}/chat", json={"content": content, **more}, headers=headers
        )
        assert made.status_code == 200, made.text
        return made.get_json()

    def asked(self, job_id: str, content: str = "And then?", **more: Any) -> Any:
        """Ask about a job; return the message once it is answered."""
        headers = more.get("headers")
        message = self.ask(job_id, content, **more)
        self.ended(message["id"])
        polled = self.client.get(f"/research/{job_id}/chat/{message['id']}", headers=headers)
        assert polled.status_code == 200
        return polled.get_json()


MakeServed = Callable[..., Served]


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a SQLite database with the store's tables, to be copied: making it is slow."""
    path = tmp_path_factory.mktemp("database") / "empty.sqlite3"
    prepare_store(Settings(store=f"sqlite:///{path}"))
    return path


@pytest.fixture
def make_key(tmp_path: Path) -> Callable[..., dict[str, str]]:
    """Add a key of an account to the file of keys, and return the headers that show it."""

    def make(
        account: str = "acme", *, limits: KeyLimits | None = None, **fields: Any
    ) -> dict[str, str]:
        secret = generate_key()
        key = Key(
            id=generate_id(),
            sha256=hash_key(secret),
            account=account,
            limits=limits or KeyLimits(),
            **fields,
        )
        edit_key_file(tmp_path / "keys.json", lambda keys: (*keys, key))
        return {"Authorization": f"Bearer {secret}"}

    return make


@pytest.fixture
def serve(tmp_path: Path, empty_database: Path) -> Iterator[MakeServed]:
    """Make servers; those of one test and kind of store have the same jobs.

    Called with what the backend accepts, or a backend; ``keys=True`` lets it ask for those that
    were made before, ``store="sqlite"`` keeps its jobs in a database.
    """
    shared = MemoryStore()
    database = tmp_path / "jobs.sqlite3"
    with ExitStack() as stack:

        def make(
            backend: type[Backend] | None = None,
            *,
            accepts: tuple[str, ...] = ("research", "follow_up", "brainstorm"),
            keys: bool = False,
            store: str = "memory",
            clock: Any = None,
            capabilities: Any = None,
            **settings: Any,
        ) -> Served:
            stage = Stage()
            backend = backend or scripted_backend(
                stage.play, accepts=frozenset(accepts), **(capabilities or {})
            )
            name = "memory"
            if store == "sqlite":
                if not database.exists():
                    shutil.copy(empty_database, database)
                name = f"sqlite:///{database}"
            fields = {
                "default_backend": "b",
                "store": name,
                "files": str(tmp_path / "files"),
                **({"keys_file": str(tmp_path / "keys.json")} if keys else {}),
            }
            values = Settings(**{**fields, **settings})
            opened = shared if name == "memory" else open_store(values)
            app = create_app(values, Registry.of({"b": backend}, values), opened, clock=clock)
            served = Served(stage, backend, app, opened, stack)
            stack.callback(app.extensions["caesar_server"].close)
            return served

        yield make
