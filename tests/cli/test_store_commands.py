"""``caesar-server store``: the tables of the database that the settings name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from caesar_server.cli import main
from caesar_server.store.sql.schema import REVISION
from caesar_server.store.sql.sqlite import SqliteDatabase
from caesar_server.store.sql.store import SqlStore

SECRET = "XYZZY"


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "state" / "jobs.sqlite3"
    monkeypatch.setenv("CAESAR_SERVER_STORE", f"sqlite:///{path}")
    monkeypatch.chdir(tmp_path)
    return path


def run(*arguments: str, **options: Any) -> Result:
    return CliRunner().invoke(main, ["store", *arguments], **options)


def test_tables_are_made_looked_at_and_removed(path: Path) -> None:
    before = run("current")
    assert (before.exit_code, before.output) == (
        1,
        f"the file {path} is at revision base; needed: {REVISION}\n",
    )
    assert not path.exists()
    assert run("upgrade").output == f"the file {path}: from revision base to {REVISION}\n"
    assert run("upgrade").output == f"the file {path} is at revision {REVISION} already\n"
    found = run("current", "--json")
    assert found.exit_code == 0
    assert json.loads(found.output) == {
        "store": f"the file {path}",
        "revision": REVISION,
        "needed": REVISION,
    }
    assert run("downgrade", "base", input="n\n").exit_code == 1
    assert run("current").exit_code == 0
    assert run("downgrade", "base", "--yes").output == (
        f"the file {path}: from revision {REVISION} to base\n"
    )
    assert run("current").exit_code == 1


def test_another_store_can_be_named(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.sqlite3"
    named = ("--store", f"sqlite:///{other}")
    assert run("upgrade", *named).output == f"the file {other}: from revision base to {REVISION}\n"
    assert run("current", *named).exit_code == 0
    assert run("downgrade", "base", "--yes", *named).exit_code == 0
    assert not path.exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["downgrade", "0815", "--yes"], "no revision 0815; there are: base, "),
        (["downgrade", "base", "--yes"], "nothing to undo"),
    ],
)
def test_what_cannot_be_done_is_told(path: Path, arguments: list[str], sentence: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 1
    assert sentence in result.stderr


def test_memory_has_no_tables(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAESAR_SERVER_STORE", "memory")
    for command in ("upgrade", "current"):
        result = run(command)
        assert (result.exit_code, result.output) == (
            1,
            "Error: store: jobs are kept in memory, which has no tables\n",
        )


def test_a_wrong_setting_is_told_with_its_place(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAESAR_SERVER_STORE", f"mysql://u:{SECRET}@host/db")
    result = run("upgrade")
    assert result.exit_code == 2
    assert "environment CAESAR_SERVER_STORE: store: expected memory, sqlite" in result.stderr
    assert SECRET not in result.output


def test_passwords_are_not_shown_nor_taken_from_the_command_line(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"postgresql://u:{SECRET}@127.0.0.1:1/db"
    monkeypatch.setenv("CAESAR_SERVER_STORE", url)
    shown = CliRunner().invoke(main, ["settings"])
    assert "postgresql://u:***@127.0.0.1:1/db" in shown.output
    seen = [shown, CliRunner().invoke(main, ["settings", "--json"]), run("upgrade"), run("current")]
    assert seen[-1].exit_code == 1
    assert "127.0.0.1:1/db" in seen[-1].output
    refused = CliRunner().invoke(main, ["serve", "--store", url])
    assert refused.exit_code == 2
    assert "a password does not belong there" in refused.output
    assert SECRET not in "".join(result.output for result in [*seen, refused])


def test_serve_refuses_a_database_that_it_cannot_use(tmp_path: Path) -> None:
    path = tmp_path / "jobs.sqlite3"
    path.write_text("no database" * 100)
    done = subprocess.run(
        [sys.executable, "-m", "caesar_server", "serve", "--port", "0"],
        env={**os.environ, "CAESAR_SERVER_STORE": f"sqlite:///{path}"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert "no database of SQLite" in done.stderr
    assert "Traceback" not in done.stderr


def test_routes_need_no_database(path: Path) -> None:
    assert CliRunner().invoke(main, ["routes"]).exit_code == 0
    assert not path.exists()


@pytest.mark.parametrize("by", ["serve", "gunicorn"])
def test_a_server_makes_its_tables_before_it_serves(
    by: str, serve: Any, root: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "state"
    variables = {**os.environ, "XDG_STATE_HOME": str(folder), "CAESAR_SERVER_STORE": "sqlite"}

    def command(port: int) -> list[str]:
        variables["CAESAR_SERVER_PORT"] = str(port)
        if by == "serve":
            return [sys.executable, "-m", "caesar_server", "serve"]
        config = str(root / "gunicorn.conf.py")
        return [sys.executable, "-m", "gunicorn", "-c", config, "--chdir", str(root), "wsgi:app"]

    with serve(command, tmp_path, variables) as port:
        body = json.dumps({"model": "mock", "prompt": "p"}).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/compat/completions",
            body,
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            id = json.load(response)["id"]
    database = SqliteDatabase(folder / "caesar-server" / "jobs.sqlite3")
    store = SqlStore(database)
    try:
        assert store.job(id).status == "completed"
    finally:
        store.close()
