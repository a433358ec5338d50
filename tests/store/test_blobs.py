"""The bytes of files, in a directory and in a bucket: one suite for both."""

from __future__ import annotations

import logging
import os
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from caesar_server.errors import SettingsError
from caesar_server.settings import Settings
from caesar_server.store.blobs.base import (
    PIECE_BYTES,
    BlobError,
    BlobStore,
    UnknownBlobError,
    new_key,
)
from caesar_server.store.blobs.directory import DirectoryBlobs
from caesar_server.store.blobs.opening import open_blobs

SECRET = "very-secret-access-key"
HOUR_S = 3600.0


def put(blobs: BlobStore, *pieces: bytes) -> str:
    with blobs.stage() as staged:
        for piece in pieces:
            staged.write(piece)
        staged.keep()
    return staged.key


def get(blobs: BlobStore, key: str, start: int = 0, stop: int | None = None) -> bytes:
    return b"".join(blobs.read(key, start, stop))


def keys(blobs: BlobStore) -> set[str]:
    return {stored.key for stored in blobs.stored_keys()}


@pytest.fixture
def bucket(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A new bucket; credentials are where boto3 looks for them."""
    boto3 = pytest.importorskip("boto3")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test-key-id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    name = f"bucket-{new_key()}"
    client = boto3.session.Session().client("s3", endpoint_url=s3_url)
    with closing(client):
        client.create_bucket(Bucket=name)
        yield name


@pytest.fixture
def s3(bucket: str, s3_url: str) -> Iterator[Any]:
    blobs = open_blobs(Settings(files=f"s3://{bucket}/some/prefix", s3_endpoint_url=s3_url))
    yield blobs
    blobs.close()


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[DirectoryBlobs]:
    blobs = DirectoryBlobs(tmp_path / "files")
    yield blobs
    blobs.close()


@pytest.fixture(params=["directory", "s3"])
def blobs(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


def test_what_was_kept_is_read(blobs: BlobStore) -> None:
    key = put(blobs, b"one, ", b"", b"two")
    assert get(blobs, key) == b"one, two"
    assert keys(blobs) == {key}


def test_large_bytes_are_read_in_pieces(blobs: BlobStore) -> None:
    data = os.urandom(3 * PIECE_BYTES + 17)
    pieces = list(blobs.read(put(blobs, data)))
    assert b"".join(pieces) == data
    assert max(map(len, pieces)) <= PIECE_BYTES


@pytest.mark.parametrize(("start", "stop"), [(0, 3), (2, None), (3, 7), (9, 10), (0, None)])
def test_a_range_is_read(blobs: BlobStore, start: int, stop: int | None) -> None:
    assert get(blobs, put(blobs, b"0123456789"), start, stop) == b"0123456789"[start:stop]


def test_reading_can_end_early_or_never_begin(blobs: BlobStore) -> None:
    key = put(blobs, b"x" * 3 * PIECE_BYTES)
    reading = blobs.read(key)
    assert next(reading)
    reading.close()
    reading.close()
    blobs.read(key).close()


@pytest.mark.parametrize(
    "key",
    [pytest.param(new_key(), id="a new one"), "../../etc/passwd", "", "A" * 32, "0" * 31 + "\0"],
)
def test_unknown_keys_are_told(blobs: BlobStore, key: str, tmp_path: Path) -> None:
    with pytest.raises(UnknownBlobError):
        blobs.read(key)
    with pytest.raises(UnknownBlobError):
        blobs.lend(key, tmp_path / "lent")
    assert not (tmp_path / "lent").exists()


def test_what_is_not_kept_leaves_nothing(blobs: BlobStore) -> None:
    with pytest.raises(RuntimeError, match="the client left"), blobs.stage() as staged:
        staged.write(b"x" * 100)
        raise RuntimeError("the client left")
    assert keys(blobs) == set()
    with pytest.raises(UnknownBlobError):
        blobs.read(staged.key)
    assert blobs.sweep_staged(-HOUR_S) == 0


def test_nobody_sees_bytes_before_they_are_kept(blobs: BlobStore) -> None:
    with blobs.stage() as staged:
        staged.write(b"half")
        assert keys(blobs) == set()
        with pytest.raises(UnknownBlobError):
            blobs.read(staged.key)


def test_deleting_is_harmless_when_repeated(blobs: BlobStore) -> None:
    first, second = put(blobs, b"a"), put(blobs, b"b")
    blobs.delete(first)
    blobs.delete(first)
    assert keys(blobs) == {second}


def test_what_is_lent_outlives_its_deletion(blobs: BlobStore) -> None:
    key = put(blobs, b"lasting")
    with blobs.lending() as folder:
        path = folder / "report.txt"
        blobs.lend(key, path)
        blobs.delete(key)
        assert path.read_bytes() == b"lasting"
        assert not path.stat().st_mode & (stat.S_IWUSR | stat.S_IRWXG | stat.S_IRWXO)
    assert not folder.exists()


def test_each_loan_has_its_own_folder(blobs: BlobStore) -> None:
    with blobs.lending() as one, blobs.lending() as other:
        assert one != other
        assert stat.S_IMODE(one.stat().st_mode) == 0o700


def test_keys_tell_their_age(blobs: BlobStore) -> None:
    put(blobs, b"x")
    (stored,) = blobs.stored_keys()
    assert abs(stored.stored_at - time.time()) < 60


def test_all_is_well(blobs: BlobStore) -> None:
    blobs.check()
    assert keys(blobs) == set()


def test_many_threads_keep_at_once(blobs: BlobStore) -> None:
    stored: dict[int, str] = {}

    def work(number: int) -> None:
        stored[number] = put(blobs, b"%d" % number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {get(blobs, key) for key in stored.values()} == {b"%d" % n for n in range(8)}


# The directory


def test_nothing_is_made_before_it_is_needed(tmp_path: Path) -> None:
    blobs = DirectoryBlobs(tmp_path / "files")
    assert keys(blobs) == set()
    assert (blobs.sweep_staged(0), blobs.sweep_lent(0)) == (0, 0)
    blobs.close()
    assert list(tmp_path.iterdir()) == []


def test_files_are_for_their_owner_alone(directory: DirectoryBlobs) -> None:
    key = put(directory, b"private")
    path = directory.root / "blobs" / key[:2] / key[2:4] / key
    assert stat.S_IMODE(path.stat().st_mode) == 0o400
    for folder in (directory.root, *path.parents[:3]):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def _protected_by_modes(monkeypatch: pytest.MonkeyPatch, yes: bool) -> None:
    """Let it be as for any user, or as for root, to whom modes mean nothing."""
    monkeypatch.setattr(os, "access", lambda *_, **__: not yes)


def test_a_loan_costs_no_room(directory: DirectoryBlobs, monkeypatch: pytest.MonkeyPatch) -> None:
    _protected_by_modes(monkeypatch, True)
    key = put(directory, b"x")
    with directory.lending() as folder:
        directory.lend(key, folder / "x")
        assert (folder / "x").stat().st_nlink == 2


def test_who_could_write_to_it_is_lent_a_copy(
    directory: DirectoryBlobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    _protected_by_modes(monkeypatch, False)
    key = put(directory, b"mine")
    with directory.lending() as folder:
        path = folder / "x"
        directory.lend(key, path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o400
        path.chmod(0o600)
        path.write_bytes(b"not")
        assert get(directory, key) == b"mine"
        with pytest.raises(UnknownBlobError):
            directory.lend(new_key(), folder / "y")


@pytest.mark.parametrize("some", [True, False], ids=["no further", "not at all"])
def test_where_links_fail_bytes_are_copied(
    directory: DirectoryBlobs, monkeypatch: pytest.MonkeyPatch, some: bool
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(31, "Too many links")

    copied: list[int] = []

    def copy_some(source: int, target: int, _: int) -> int:
        """Copy a piece, then fail as a file system may."""
        if copied or not some:
            raise OSError(18, "Invalid cross-device link")
        copied.append(os.write(target, os.read(source, 1_000_000)))
        return copied[0]

    data = bytes(range(256)) * 12_000
    key = put(directory, data)
    _protected_by_modes(monkeypatch, True)
    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(os, "copy_file_range", copy_some)
    with directory.lending() as folder:
        directory.lend(key, folder / "x")
        assert (folder / "x").stat().st_nlink == 1
        assert (folder / "x").read_bytes() == data


def _age(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


def test_a_running_upload_is_never_swept(directory: DirectoryBlobs) -> None:
    with directory.stage() as staged:
        staged.write(b"slow")
        (path,) = (directory.root / "staging").iterdir()
        _age(path, 10 * HOUR_S)
        assert directory.sweep_staged(HOUR_S) == 0
        staged.keep()
    # its age begins with its end
    (stored,) = directory.stored_keys()
    assert stored.stored_at > time.time() - 60


def test_what_dead_processes_left_is_swept(directory: DirectoryBlobs) -> None:
    with directory.lending() as kept:
        dead = subprocess.Popen(
            [sys.executable, "-c", _DIES, str(directory.root)], stdout=subprocess.PIPE
        )
        with closing(dead.stdout):  # type: ignore[type-var]
            assert dead.stdout is not None
            assert dead.stdout.readline() == b"ready\n"
            lent = [path for path in (directory.root / "lent").iterdir() if path != kept]
            for path in (kept, *lent, *(directory.root / "staging").iterdir()):
                _age(path, 2 * HOUR_S)
            assert (directory.sweep_staged(HOUR_S), directory.sweep_lent(HOUR_S)) == (0, 0)
            dead.kill()
            dead.wait()
        assert (directory.sweep_staged(3 * HOUR_S), directory.sweep_lent(3 * HOUR_S)) == (0, 0)
        assert (directory.sweep_staged(HOUR_S), directory.sweep_lent(HOUR_S)) == (1, 1)
        assert list((directory.root / "lent").iterdir()) == [kept]
    assert list((directory.root / "staging").iterdir()) == []


_DIES = """
import sys
from pathlib import Path
from caesar_server.store.blobs.directory import DirectoryBlobs
blobs = DirectoryBlobs(Path(sys.argv[1]))
with blobs.stage() as staged, blobs.lending() as folder:
    staged.write(b"half")
    (folder / "file").write_text("lent")
    print("ready", flush=True)
    sys.stdin.read() or __import__("time").sleep(60)
"""


def test_a_full_disk_is_told(directory: DirectoryBlobs, tmp_path: Path) -> None:
    (tmp_path / "files").write_text("no folder")
    with pytest.raises(BlobError, match="cannot write in"):
        directory.stage()
    with pytest.raises(BlobError):
        directory.check()


# The bucket


def test_large_objects_are_sent_in_parts(s3: Any) -> None:
    from caesar_server.store.blobs.s3 import PART_BYTES

    data = os.urandom(2 * PART_BYTES + 5)
    with s3.stage() as staged:
        for start in range(0, len(data), PIECE_BYTES):
            staged.write(data[start : start + PIECE_BYTES])
            assert len(staged._buffer) <= PART_BYTES
        assert keys(s3) == set()
        staged.keep()
    assert get(s3, staged.key) == data
    assert get(s3, staged.key, PART_BYTES - 1, PART_BYTES + 1) == data[PART_BYTES - 1 :][:2]


def test_an_upload_in_parts_that_fails_leaves_none(s3: Any) -> None:
    from caesar_server.store.blobs.s3 import PART_BYTES

    with s3.stage() as staged:
        staged.write(b"x" * (PART_BYTES + 1))
        assert _pending(s3) == 1
    assert (_pending(s3), keys(s3)) == (0, set())


def test_abandoned_parts_are_swept(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from caesar_server.store.blobs import s3 as module

    staged = s3.stage()
    staged.write(b"x" * (module.PART_BYTES + 1))
    assert (s3.sweep_staged(0), _pending(s3)) == (0, 1)  # for a day it may just be slow
    now = time.time()
    monkeypatch.setattr(module.time, "time", lambda: now + 25 * HOUR_S)
    assert (s3.sweep_staged(HOUR_S), _pending(s3)) == (1, 0)


def _pending(s3: Any) -> int:
    return len(s3.client.list_multipart_uploads(Bucket=s3.bucket).get("Uploads", ()))


def test_prefixes_keep_servers_apart(bucket: str, s3_url: str, s3: Any) -> None:
    mine = put(s3, b"mine")
    other = open_blobs(Settings(files=f"s3://{bucket}", s3_endpoint_url=s3_url))
    with closing(other):
        put(other, b"other")
        assert keys(s3) == {mine}


def test_nothing_is_lent_in_a_folder_of_somebody_else(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / f"caesar-server-lent-{os.getuid()}").symlink_to(tmp_path / "elsewhere")
    blobs = open_blobs(Settings(files=f"s3://{bucket}"))
    with closing(blobs), pytest.raises(BlobError, match="somebody else's"):
        blobs.lending()


def test_a_bucket_that_is_not_there_is_told_without_secrets(
    bucket: str, s3_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    blobs = open_blobs(Settings(files="s3://no-such-bucket", s3_endpoint_url=s3_url))
    with closing(blobs):
        with pytest.raises(BlobError, match="no-such-bucket"):
            blobs.check()
        with pytest.raises(BlobError, match="NoSuchBucket") as refused:
            put(blobs, b"x")
    assert SECRET not in str(refused.value) + caplog.text


def test_a_server_that_is_away_is_told(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        blobs = open_blobs(Settings(files=f"s3://{bucket}", s3_endpoint_url=url))
        with closing(blobs), pytest.raises(BlobError, match="Could not connect"):
            blobs.check()


def test_boto3_is_loaded_only_for_a_bucket() -> None:
    code = (
        "import sys; from caesar_server.settings import Settings;"
        "from caesar_server.store.blobs.opening import open_blobs;"
        "open_blobs(Settings()).close(); assert 'boto3' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# From the settings


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"files": "s3://"}, "expected a directory, or s3://BUCKET"),
        ({"files": "s3:///prefix"}, "expected a directory, or s3://BUCKET"),
        ({"files": "https://example.org/"}, "expected a directory"),
        ({"files": " "}, "expected a directory"),
        ({"files": "s3://b", "s3_endpoint_url": "minio:9000"}, "s3_endpoint_url: expected http"),
    ],
)
def test_other_places_are_refused(settings: dict[str, str], problem: str) -> None:
    with pytest.raises(SettingsError, match=problem):
        open_blobs(Settings(**settings))


def test_beside_a_database_file(tmp_path: Path) -> None:
    blobs = open_blobs(Settings(store=f"sqlite:///{tmp_path}/jobs.sqlite3"))
    with closing(blobs):
        assert get(blobs, put(blobs, b"x")) == b"x"
        assert (tmp_path / "jobs.sqlite3-files" / "blobs").is_dir()


def test_of_jobs_in_memory_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    blobs = open_blobs(Settings())
    assert get(blobs, put(blobs, b"x")) == b"x"
    assert len(list(tmp_path.iterdir())) == 1
    blobs.close()
    blobs.close()
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


KILLED = """
import os, signal, tempfile, sys
tempfile.tempdir = sys.argv[1]
from caesar_server.settings import Settings
from caesar_server.store.blobs.opening import open_blobs
with open_blobs(Settings()).stage() as staged:
    staged.write(b"x")
    staged.keep()
os.kill(os.getpid(), signal.SIGKILL)
"""


def _age_lock(folder: Path) -> None:
    then = time.time() - HOUR_S
    os.utime(folder / ".lock", (then, then))


def test_what_a_killed_process_left_goes_with_the_next_first_upload(temporary: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(temporary)], timeout=60)
    assert done.returncode == -9
    (left,) = temporary.iterdir()
    _age_lock(left)
    blobs = open_blobs(Settings())
    with closing(blobs):
        assert left.exists()
        put(blobs, b"x")
        assert not left.exists()
        assert len(list(temporary.iterdir())) == 1


def test_what_others_use_or_may_use_stays(temporary: Path) -> None:
    running = open_blobs(Settings())
    strange = temporary / "caesar-server-files-strange"
    strange.mkdir()
    link = temporary / "caesar-server-files-link"
    link.symlink_to(strange)
    young = temporary / "caesar-server-files-young"
    young.mkdir()
    (young / ".lock").touch()
    with closing(running):
        key = put(running, b"x")
        _age_lock(running.root)  # type: ignore[attr-defined]
        blobs = open_blobs(Settings())
        with closing(blobs):
            put(blobs, b"y")
        assert get(running, key) == b"x"
    assert {path.name.rpartition("-")[2] for path in temporary.iterdir()} == {
        *("strange", "link", "young")
    }


def test_whether_there_are_bytes(blobs: BlobStore) -> None:
    key = put(blobs, b"x")
    assert (blobs.has(key), blobs.has(new_key())) == (True, False)


def test_several_machines_need_a_place_by_name() -> None:
    blobs = open_blobs(Settings(store="postgresql://caesar@db.internal/caesar"))
    with closing(blobs), pytest.raises(BlobError, match="name a directory"):
        blobs.stage()
    with pytest.raises(BlobError, match="name a directory"):
        blobs.check()
