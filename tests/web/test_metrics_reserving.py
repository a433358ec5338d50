"""Numbers of several processes where the disk has no room for them.

A write into a hole of a mapped file ends the process there, so no file may have one.
"""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path

import pytest
from prometheus_client.mmap_dict import MmapedDict

from caesar_server.web.observing.shared import sharing
from caesar_server.web.observing.shared.reserving import ReservedFile, SharedFile

MANY = [f"number {number} {'x' * 200}" for number in range(2000)]


def bytes_on_disk(path: Path) -> int:
    return path.stat().st_blocks * 512


def numbers_in(path: Path) -> dict[str, float]:
    found = MmapedDict.read_all_values_from_file(str(path))
    return {key: value for key, value, _, _ in found}


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Let the disk be full after ``room`` bytes."""
    left, write = {"room": 0}, os.pwrite

    def pwrite(descriptor: int, data: bytes, offset: int) -> int:
        if not left["room"]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = write(descriptor, data[: left["room"]], offset)
        left["room"] -= written
        return written

    monkeypatch.setattr(os, "pwrite", pwrite)
    return left


def test_new_file_has_no_holes(tmp_path: Path) -> None:
    shared = SharedFile(str(tmp_path / "counter_1.db"))
    shared.read_value("a")
    shared.close()
    assert bytes_on_disk(tmp_path / "counter_1.db") >= 65536


def test_file_that_grows_has_no_holes(tmp_path: Path) -> None:
    path = tmp_path / "counter_1.db"
    shared = SharedFile(str(path))
    for key in MANY:
        shared.read_value(key)
        assert bytes_on_disk(path) >= path.stat().st_size
        shared.write_value(key, 2.0, 0.0)
    shared.close()
    assert numbers_in(path) == dict.fromkeys(MANY, 2.0)


def test_numbers_without_room_are_counted_apart(
    tmp_path: Path, disk: dict[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "counter_1.db"
    disk["room"] = 70_000
    shared = SharedFile(str(path))
    with caplog.at_level(logging.WARNING):
        for key in MANY:
            assert shared.read_value(key) == (0.0, 0.0)
            shared.write_value(key, 3.0, 0.0)
    assert [shared.read_value(key)[0] for key in MANY] == [3.0] * len(MANY)
    shared.close()
    kept = numbers_in(path)
    assert 0 < len(kept) < len(MANY)
    assert set(kept.values()) == {3.0}
    assert path.stat().st_size == 65536
    (record,) = caplog.records
    assert "No space left on device" in record.getMessage()
    assert str(path) in record.getMessage()


def test_file_comes_when_there_is_room(tmp_path: Path, disk: dict[str, int]) -> None:
    path = tmp_path / "counter_1.db"
    shared = SharedFile(str(path))
    shared.read_value("before")
    shared.write_value("before", 1.0, 0.0)
    assert path.stat().st_size == 0
    disk["room"] = 65536
    shared.read_value("after")
    shared.write_value("after", 2.0, 0.0)
    shared.close()
    assert numbers_in(path) == {"after": 2.0}


def test_numbers_of_the_dead_count_once_where_there_is_no_room(
    tmp_path: Path, disk: dict[str, int], server_log: list[str]
) -> None:
    disk["room"] = 1 << 30
    for pid in (7, 8):
        one = ReservedFile(str(tmp_path / f"counter_{pid}.db"))
        for key in MANY if pid == 8 else MANY[:3]:
            one.read_value(key)
            one.write_value(key, 1.0, 0.0)
        one.close()
    # enough for those of the one, not for those of both
    disk["room"] = 70_000
    server = Server(tmp_path, server_log)
    sharing.keep_numbers(server, Server.Worker(8))
    files = tmp_path.glob("counter_*.db")
    total = [numbers_in(path) for path in files if path.stat().st_size]
    assert sum(numbers.get(MANY[0], 0.0) for numbers in total) == 2.0
    assert sum(numbers.get(MANY[-1], 0.0) for numbers in total) == 1.0
    assert ["No space left" in line for line in server_log] == [True]
    disk["room"] = 1 << 30
    sharing.keep_numbers(server, Server.Worker(9))
    assert [path.name for path in tmp_path.glob("counter_*.db")] == ["counter_gone.db"]
    assert numbers_in(tmp_path / "counter_gone.db")[MANY[0]] == 2.0


class Server:
    """As much of gunicorn's master as the hook looks at."""

    class Worker:
        def __init__(self, pid: int) -> None:
            self.pid = pid

    def __init__(self, folder: Path, lines: list[str]) -> None:
        self.WORKERS: dict[int, None] = {}
        self.metrics_folder = folder
        self.log = self
        self._lines = lines

    def warning(self, message: str, *arguments: object) -> None:
        self._lines.append(message % arguments)


@pytest.fixture
def server_log() -> list[str]:
    return []
