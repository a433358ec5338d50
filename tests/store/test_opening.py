"""From the settings to a store."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from caesar_server.contract import CompletionRequest
from caesar_server.errors import SettingsError
from caesar_server.settings import Settings, load_settings, without_password
from caesar_server.store.base import Job, StoreError
from caesar_server.store.memory import MemoryStore
from caesar_server.store.opening import database_of, kept_jobs, open_store, prepare_store
from caesar_server.store.sql.store import SqlStore

JOB = Job(
    id="job", created_at=1.0, model="m", backend="b", request=CompletionRequest(prompts=("p",))
)
SECRET = "XYZZY"


@pytest.mark.parametrize("store", [None, "memory"])
def test_memory_is_a_store(store: str | None) -> None:
    settings = Settings(store=store, stored_jobs=0)
    prepare_store(settings)
    opened = open_store(settings)
    assert isinstance(opened, MemoryStore)
    opened.close()


def test_a_file_is_made_then_opened(tmp_path: Path) -> None:
    settings = Settings(store=f"sqlite:///{tmp_path}/jobs.sqlite3")
    with pytest.raises(SettingsError, match="caesar-server store upgrade"):
        open_store(settings)
    assert list(tmp_path.iterdir()) == []
    prepare_store(settings)
    prepare_store(settings)
    store = open_store(settings)
    assert isinstance(store, SqlStore)
    store.create(JOB)
    store.close()
    again = open_store(settings)
    assert again.job("job") == JOB
    again.close()


def test_a_relative_path_is_below_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    prepare_store(Settings(store="sqlite:///data/jobs.sqlite3"))
    assert (tmp_path / "data" / "jobs.sqlite3").exists()


def test_postgres_is_opened_by_its_url(postgres_url: str) -> None:
    for url in (postgres_url, postgres_url.replace("postgresql:", "postgres:")):
        settings = Settings(store=url)
        prepare_store(settings)
        store = open_store(settings)
        store.check()
        store.close()


def test_sqlite_in_memory_is_not_made_a_file_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for call in (open_store, prepare_store):
        with pytest.raises(SettingsError, match=r"store: SQLite .* say memory"):
            call(Settings(store="sqlite:///:memory:"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "store",
    [
        "",
        "sqlite",  # only those who read the settings know where
        "sqlite://",
        "sqlite:///",
        "sqlite:///a?mode=ro",
        "sqlite:///:memory:?x",
        "jobs.sqlite3",
        f"mysql://user:{SECRET}@host/db",
        f"postgresql://user:{SECRET}@host:port/db",
    ],
)
def test_what_is_no_store_is_refused_without_quoting_it(store: str) -> None:
    for call in (open_store, prepare_store):
        with pytest.raises(SettingsError, match="store: expected memory, sqlite") as raised:
            call(Settings(store=store))
        assert SECRET not in str(raised.value)
        assert raised.value.__cause__ is None


def test_a_database_that_cannot_be_reached_may_come_later(caplog: pytest.LogCaptureFixture) -> None:
    url = f"postgresql://user:{SECRET}@127.0.0.1:1/db?connect_timeout=2"
    with pytest.raises(SettingsError, match=r"127\.0\.0\.1:1/db") as raised:
        prepare_store(Settings(store=url))
    store = open_store(Settings(store=url))
    store.close()
    assert "127.0.0.1:1/db" in caplog.text
    assert SECRET not in caplog.text + str(raised.value)


def test_no_error_of_a_store_tells_a_password(caplog: pytest.LogCaptureFixture) -> None:
    url = f"postgresql://user:{SECRET}@127.0.0.1:1/db"
    database = database_of(Settings(store=url))
    assert database is not None
    store = SqlStore(database, retry_s=0)
    for call in (store.check, store.jobs):
        with pytest.raises(StoreError) as raised:
            call()
        assert SECRET not in f"{raised.value} {raised.value.__cause__!r} {caplog.text}"
        assert "postgresql://user:***@127.0.0.1:1/db" in str(raised.value)
    store.close()


@pytest.mark.parametrize("before", ["pw", "p/w", "p?w", "p:w"])
def test_a_password_with_an_at_sign_must_be_encoded(before: str) -> None:
    """What follows the sign would be looked for as a host, and told in each error."""
    for after in (SECRET, f"x/{SECRET}", f"@{SECRET}"):
        with pytest.raises(SettingsError) as raised:
            database_of(Settings(store=f"postgresql://user:{before}@{after}@127.0.0.1:1/db"))
        assert "%40" in str(raised.value)
        assert SECRET not in str(raised.value)
    encoded = database_of(Settings(store=f"postgresql://user:{before}%40{SECRET}@127.0.0.1:1/db"))
    assert encoded is not None
    assert encoded.name == "the database postgresql://user:***@127.0.0.1:1/db"


def test_without_a_setting_jobs_are_kept_in_the_users_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    expected = f"sqlite:///{tmp_path}/caesar-server/jobs.sqlite3"
    for environ in ({}, {"CAESAR_SERVER_STORE": "sqlite"}):
        loaded = load_settings(environ=environ)
        assert loaded.settings.store == expected
    assert load_settings(environ={"CAESAR_SERVER_STORE": "memory"}).settings.store == "memory"
    assert list(tmp_path.iterdir()) == []


def test_how_many_jobs_are_kept_depends_on_where() -> None:
    assert kept_jobs(Settings()) == kept_jobs(Settings(store="memory")) == 1000
    assert kept_jobs(Settings(store="sqlite:///x")) == 100_000
    assert kept_jobs(Settings(store="sqlite:///x", stored_jobs=7)) == 7
    assert kept_jobs(Settings(stored_jobs=0)) == 0


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("memory", "memory"),
        ("sqlite:////a:b@c/d", "sqlite:////a:b@c/d"),
        ("postgresql://host/db", "postgresql://host/db"),
        ("postgresql://user@host:5/db", "postgresql://user@host:5/db"),
        ("postgresql://user:pw@host/db", "postgresql://user:***@host/db"),
        ("postgresql://user:p@w:/x@host/db", "postgresql://user:***@host/db"),
        ("postgresql://:pw@host/db", "postgresql://:***@host/db"),
        ("postgresql:///db?host=h&password=pw&x=1", "postgresql:///db?host=h&password=***&x=1"),
        ("postgresql://h/db?SSLPASSWORD=pw", "postgresql://h/db?SSLPASSWORD=***"),
    ],
)
def test_passwords_are_hidden(url: str, shown: str) -> None:
    assert without_password(url) == shown


def test_databases_are_imported_only_where_they_are_used() -> None:
    code = (
        "import sys; from caesar_server.app import create_app\n"
        "from caesar_server.settings import Settings\n"
        "create_app(Settings()).extensions['caesar_server'].close()\n"
        "print({'sqlalchemy', 'alembic', 'psycopg', 'sqlite3'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "set()"


def test_a_store_that_is_up_to_date_needs_no_alembic(tmp_path: Path) -> None:
    settings = Settings(store=f"sqlite:///{tmp_path}/jobs.sqlite3")
    prepare_store(settings)
    code = (
        "import sys; from caesar_server.settings import Settings\n"
        "from caesar_server.store.opening import open_store, prepare_store\n"
        f"settings = Settings(store={settings.store!r})\n"
        "prepare_store(settings); open_store(settings).close()\n"
        "print({'alembic', 'psycopg'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "set()"
