"""What gunicorn's master does with the numbers of its workers; real ones are in tests/live."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

import pytest

from caesar_server.web.observing.shared import sharing


class Server:
    """As much of gunicorn's master as the hooks look at."""

    class Config:
        uid, gid, preload_app = os.getuid(), os.getgid(), False

    class Worker:
        def __init__(self, pid: int) -> None:
            self.pid = pid

    cfg = Config()

    def __init__(self, folder: Path | None) -> None:
        self.WORKERS = {1: None}
        self.log = logging.getLogger("gunicorn.error")
        if folder is not None:
            self.metrics_folder = folder
            self.metrics_lock = os.open(folder, os.O_RDONLY)


def test_hooks_do_nothing_where_no_folder_was_made() -> None:
    server = Server(None)
    sharing.place_numbers(server, Server.Worker(7))
    sharing.keep_numbers(server, Server.Worker(7))
    sharing.drop_numbers(server)


def test_worker_killed_before_its_first_number_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "counter_7.db").touch()
    (tmp_path / "histogram_7.db").write_bytes(bytes(65536))
    sharing.keep_numbers(Server(tmp_path), Server.Worker(7))
    assert {path.name for path in tmp_path.iterdir()} == {"counter_gone.db", "histogram_gone.db"}


def test_numbers_that_are_being_read_stay_where_they_are(tmp_path: Path) -> None:
    (tmp_path / "counter_7.db").write_bytes(bytes(65536))
    with sharing._locked(tmp_path, sharing.fcntl.LOCK_SH):
        sharing.keep_numbers(Server(tmp_path), Server.Worker(7))
        assert (tmp_path / "counter_7.db").exists()
    sharing.keep_numbers(Server(tmp_path), Server.Worker(8))
    assert not (tmp_path / "counter_7.db").exists()


def test_a_folder_that_was_removed_is_made_anew_for_the_next_worker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "numbers"
    folder.mkdir()
    server = Server(folder)
    shutil.rmtree(folder)
    sharing.keep_numbers(server, Server.Worker(7))
    sharing.place_numbers(server, Server.Worker(8))
    assert [path.name for path in folder.iterdir()] == ["lock"]
    assert folder.stat().st_mode & 0o777 == 0o700
    sharing.place_numbers(server, Server.Worker(9))  # it is there
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2
    assert told[0].startswith("cannot add up numbers of /metrics: ")
    assert told[1] == f"{folder} was removed, and the numbers of /metrics with it"
    sharing.drop_numbers(server)
    assert not folder.exists()


def test_a_folder_that_cannot_be_made_anew_ends_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "temporary" / "numbers"
    folder.mkdir(parents=True)
    server = Server(folder)
    shutil.rmtree(folder.parent)
    sharing.place_numbers(server, Server.Worker(8))
    assert "there is no place for the numbers" in caplog.text
    sharing.drop_numbers(server)
