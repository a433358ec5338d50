"""What crashes leave behind is removed, and nothing else."""

from __future__ import annotations

import io
import os
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from caesar_server.cli import main
from caesar_server.jobs.files import Files, Swept
from caesar_server.store.blobs.base import BlobStore

HOUR_S = 3600.0


def orphan(blobs: BlobStore) -> str:
    """Store bytes that no file refers to."""
    with blobs.stage() as staged:
        staged.write(b"orphan")
        staged.keep()
    return staged.key


def age(served: Any, seconds: float = 2 * HOUR_S) -> None:
    """Make everything older."""
    then = time.time() - seconds
    for path in served.folder.rglob("*"):
        os.utime(path, (then, then))


def test_bytes_without_a_file_are_swept_once_they_are_old(served: Any) -> None:
    told = served.upload()
    key = orphan(served.services.blobs)
    files: Files = served.services.files
    assert files.sweep() == Swept()
    age(served)
    assert files.sweep() == Swept(unreferenced=1)
    (kept,) = served.kept()
    assert kept.name != key
    assert served.client.get(f"/research/files/{told['id']}/content").data == b"hello"
    assert files.sweep() == Swept()


def test_an_upload_that_was_interrupted_is_swept(served: Any) -> None:
    served.upload()
    staging = served.folder / "staging"
    (staging / ("0" * 32)).write_bytes(b"half")
    lent = served.folder / "lent" / "run"
    lent.mkdir(parents=True)
    (lent / ".lock").touch()
    (lent / "report.txt").write_text("lent")
    age(served)
    assert served.services.files.sweep() == Swept(staged=1, lent=1)
    assert len(served.kept()) == 1


def test_many_strange_keys_are_left_alone(served: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Rather the wrong database was opened than all files were lost."""
    for _ in range(11):
        orphan(served.services.blobs)
    age(served)
    assert served.services.files.sweep() == Swept()
    assert "does the setting files name the place" in caplog.text
    served.upload()
    age(served)
    assert served.services.files.sweep() == Swept(unreferenced=11)


def test_a_temporary_place_has_no_wrong_database(
    serve_files: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    served = serve_files(files=None)
    for _ in range(11):
        orphan(served.services.blobs)
    served.folder = tmp_path
    age(served)
    assert served.services.files.sweep() == Swept(unreferenced=11)


def test_a_few_strange_keys_are_swept(served: Any) -> None:
    for _ in range(10):
        orphan(served.services.blobs)
    age(served)
    assert served.services.files.sweep() == Swept(unreferenced=10)


def test_the_server_sweeps_by_itself_once_an_hour(served: Any) -> None:
    files: Files = served.services.files
    assert files.sweep_if_due() == Swept()
    orphan(served.services.blobs)
    age(served)
    assert files.sweep_if_due() == Swept()
    assert files.sweep() == Swept(unreferenced=1)


def test_an_upload_whose_row_may_be_stored_keeps_its_bytes(
    served: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database that is lost during its commit may have the row."""
    from caesar_server.store.base import StoreError

    def lost(*_: object) -> None:
        raise StoreError("the connection was lost")

    monkeypatch.setattr(type(served.services.store.owned), "add_file", lost)
    reply = served.client.post("/research/files", data={"file": (io.BytesIO(b"x"), "x")})
    assert reply.status_code == 503
    assert len(served.kept()) == 1
    age(served)
    assert served.services.files.sweep() == Swept(unreferenced=1)


# The command


def prune(*arguments: str, **variables: str) -> Any:
    environment = {f"CAESAR_SERVER_{name.upper()}": value for name, value in variables.items()}
    return CliRunner().invoke(main, ["jobs", "prune", *arguments], env=environment)


@pytest.fixture
def database(serve_files: Any, tmp_path: Path) -> Any:
    """An app with one file, and old bytes that no file refers to."""
    served = serve_files(store=f"sqlite:///{tmp_path}/jobs.sqlite3", files=None)
    served.folder = tmp_path / "jobs.sqlite3-files"
    served.upload()
    orphan(served.services.blobs)
    age(served)
    return served


def test_prune_sweeps(database: Any, tmp_path: Path) -> None:
    done = prune(store=f"sqlite:///{tmp_path}/jobs.sqlite3")
    assert done.output == "0 removed\n1 removed that uploads and runs had left behind\n"
    assert len(database.kept()) == 1
    assert prune(store=f"sqlite:///{tmp_path}/jobs.sqlite3").output == "0 removed\n"


def test_prune_of_a_database_by_name_sweeps_what_is_beside_it(
    database: Any, tmp_path: Path
) -> None:
    done = prune("--store", f"sqlite:///{tmp_path}/jobs.sqlite3")
    assert "1 removed that" in done.output


def test_prune_of_another_database_leaves_files_by_name_alone(
    database: Any, tmp_path: Path
) -> None:
    done = prune("--store", f"sqlite:///{tmp_path}/jobs.sqlite3", files=str(database.folder))
    assert done.output == "0 removed\n"
    assert len(database.kept()) == 2


def test_prune_tells_what_is_wrong_with_the_place(database: Any, tmp_path: Path) -> None:
    done = prune(store=f"sqlite:///{tmp_path}/jobs.sqlite3", files="https://example.org")
    assert done.exit_code != 0
    assert "files: expected a directory" in done.output
