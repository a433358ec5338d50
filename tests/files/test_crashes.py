"""Killed at any point of an upload: neither a row without bytes nor bytes without a row."""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from caesar_server.jobs.files import Files
from caesar_server.settings import Settings
from caesar_server.store.blobs.directory import DirectoryBlobs
from caesar_server.store.opening import open_store

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

WITHIN_S = 60.0
CHILD = Path(__file__).with_name("child") / "files_server.py"
#: Points of an upload, and whether the file is there afterwards.
UPLOADING = {
    "after-the-beginning": False,
    "inside-the-bytes": False,
    "after-the-bytes": False,
    "before-the-rename": False,
    "before-the-folder-is-flushed": False,
    "after-the-rename": False,
    "before-the-row": False,
    "after-the-row": True,
}
SIZE = 300_000
FILES = "/research/files"


class Server:
    """A server whose worker dies now and then, and is replaced."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url = folder, url
        self._log = folder / "log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, CHILD, "serve", "--port", "0", "--graceful-timeout-s", "1"],
                cwd=folder,
                env={
                    **os.environ,
                    "CRASH_FOLDER": str(folder),
                    "CAESAR_SERVER_STORE": url,
                    "CAESAR_SERVER_FILES": str(folder / "files"),
                    "CAESAR_SERVER_DEFAULT_BACKEND": "mock",
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def port(self) -> int:
        deadline = time.monotonic() + WITHIN_S
        while not (found := re.search(r"Serving on http://\S+:(\d+)", self._log.read_text())):
            assert time.monotonic() < deadline, self._log.read_text()
            assert self.process.poll() is None, self._log.read_text()
            time.sleep(0.02)
        return int(found[1])

    def dies(self, point: str, method: str, path: str, *more: Any) -> None:
        """Let a request be the worker's last."""
        (self.folder / point).touch()
        assert self.request(method, path, *more) is None
        assert not (self.folder / point).exists()

    def request(self, method: str, path: str, body: bytes = b"", kind: str = "") -> Any:
        """Return the JSON of an answer, or None if the connection broke."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WITHIN_S)
        with closing(connection):
            try:
                connection.request(method, path, body, {"Content-Type": kind} if kind else {})
                response = connection.getresponse()
                return json.loads(response.read())
            except (http.client.HTTPException, OSError):
                return None

    def end(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(WITHIN_S)
        finally:
            self.process.kill()
            self.process.wait()


@pytest.fixture(params=["sqlite", "postgresql"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/jobs.sqlite3"
    else:
        url = request.getfixturevalue("postgres_url")
    started = Server(tmp_path, url)
    try:
        yield started
    finally:
        started.end()


def form(data: bytes) -> tuple[bytes, str]:
    head = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.bin"\r\n\r\n'
    return head + data + b"\r\n--b--\r\n", "multipart/form-data; boundary=b"


def check(server: Server) -> list[str]:
    """Sweep and check that rows and bytes fit; return the names of the files, and remove them."""
    folder = server.folder / "files"
    blobs = DirectoryBlobs(folder)
    with closing(open_store(Settings(store=server.url))) as store:
        rows = store.owned.files("")
        for row in rows:
            assert len(b"".join(blobs.read(row.key))) == row.size
        Files(store, blobs).sweep(older_than_s=-1)
        assert {stored.key for stored in blobs.stored_keys()} == {row.key for row in rows}
        # nothing else is there, and a second sweep has nothing to do
        left = [path for path in folder.rglob("*") if path.is_file()]
        assert len(left) == len({row.key for row in rows})
        assert Files(store, blobs).sweep(older_than_s=-1).total == 0
        for row in rows:
            if (unused := store.owned.delete_file("", row.id)) is not None:
                blobs.delete(unused)
    return [row.name for row in rows]


def test_kills_leave_nothing_half_done(server: Server) -> None:
    for point, is_there in UPLOADING.items():
        server.dies(point, "POST", FILES, *form(b"x" * SIZE))
        assert check(server) == (["a.bin"] if is_there else []), point
    for point in ("after-the-row-is-gone", "before-the-bytes-go"):
        told = server.request("POST", FILES, *form(b"x" * SIZE))
        server.dies(point, "DELETE", f"{FILES}/{told['id']}")
        assert check(server) == [], point
    # the bytes of a second copy go again, after its row came
    server.request("POST", FILES, *form(b"x" * SIZE))
    server.dies("before-the-bytes-go", "POST", FILES, *form(b"x" * SIZE))
    assert check(server) == ["a.bin", "a.bin"]
