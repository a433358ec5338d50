"""Uploads over real sockets: gunicorn with threads, and the server of the tests."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from caesar_server.testing.live import LiveServer

FILES = "/research/files"
LIMIT = 3_000_000
WITHIN_S = 60.0
MIB = 1024 * 1024


class Target:
    """A server, and the folder of its files."""

    def __init__(self, port: int, folder: Path) -> None:
        self.port, self.folder = port, folder

    def send(self, parts: Iterable[bytes], *headers: str) -> tuple[int, Any]:
        """Send a request as it is, up to where the server wants no more; return the answer."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=WITHIN_S) as sock:
            head = "".join(f"{header}\r\n" for header in headers)
            sock.sendall(f"POST {FILES} HTTP/1.1\r\nHost: localhost\r\n{head}\r\n".encode())
            # who is refused early may find the connection closed
            with contextlib.suppress(ConnectionError):
                for part in parts:
                    sock.sendall(part)
            return self.answer(sock)

    @staticmethod
    def answer(sock: socket.socket) -> tuple[int, Any]:
        response = http.client.HTTPResponse(sock)
        response.begin()
        return response.status, json.loads(response.read())

    def get(self, path: str) -> Any:
        with socket.create_connection(("127.0.0.1", self.port), timeout=WITHIN_S) as sock:
            sock.sendall(f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
            return self.answer(sock)[1]

    def kept(self) -> list[Path]:
        return [path for path in self.folder.rglob("*") if path.is_file()]

    def wait_until(self, *, empty: bool) -> None:
        deadline = time.monotonic() + WITHIN_S
        while bool(self.kept()) is empty:
            assert time.monotonic() < deadline, self.kept()
            time.sleep(0.01)


def gunicorn(port: int) -> list[str]:
    """Return the command of a server whose files and jobs are in the current folder."""
    return [
        *(sys.executable, "-m", "caesar_server", "serve", "--port", str(port)),
        *("--default-backend", "mock", "--store", "sqlite:///jobs.sqlite3", "--files", "files"),
        *("--max-file-bytes", os.environ.get("TEST_MAX_FILE_BYTES", str(LIMIT))),
    ]


@pytest.fixture(scope="module")
def on_gunicorn(serve: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    folder = tmp_path_factory.mktemp("gunicorn")
    with serve(gunicorn, folder) as port:
        yield Target(port, folder / "files")


@pytest.fixture
def on_test_server(serve_files: Any) -> Iterator[Target]:
    served = serve_files(max_file_bytes=LIMIT)
    with LiveServer(served.app) as live:
        yield Target(live.port, served.folder)


@pytest.fixture(params=["gunicorn", "test_server"])
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    found: Target = request.getfixturevalue(f"on_{request.param}")
    yield found
    for path in found.kept():
        path.unlink()


def length(body: bytes) -> str:
    return f"Content-Length: {len(body)}"


def chunks(body: bytes, size: int) -> Iterator[bytes]:
    for start in range(0, len(body), size):
        piece = body[start : start + size]
        yield b"%x\r\n%b\r\n" % (len(piece), piece)
    yield b"0\r\n\r\n"


@pytest.mark.parametrize("size", [1, 200_000, LIMIT])
def test_a_file_arrives(target: Target, forms: Any, size: int) -> None:
    data = random.Random(size).randbytes(size)
    body = forms.part("file", data, "a.bin") + forms.end
    kind = f"Content-Type: {forms.content_type}"
    for parts, header in (
        ([body], length(body)),
        (chunks(body, 7_777), "Transfer-Encoding: chunked"),
    ):
        status, told = target.send(parts, kind, header)
        assert (status, told["size"]) == (200, size), told
    # equal bytes are stored once
    (path,) = target.kept()
    assert path.read_bytes() == data


def test_a_client_may_send_byte_by_byte(target: Target, forms: Any) -> None:
    body = forms.part("file", b"hello\r\n--boundary", "a.txt") + forms.end
    status, told = target.send(
        (bytes([byte]) for byte in body), f"Content-Type: {forms.content_type}", length(body)
    )
    assert (status, told["size"]) == (200, 17)


Bad = tuple[Callable[[Any], Iterable[bytes]], Callable[[Any], str], str]
BAD: dict[str, Bad] = {
    "announced too large": (
        lambda f: [f.part("file", b"x", "a")],
        lambda f: "Content-Length: 1000000000",
        "expected at most",
    ),
    "too large in chunks": (
        lambda f: chunks(f.part("file", b"x" * 2 * LIMIT, "a") + f.end, 50_000),
        lambda f: "Transfer-Encoding: chunked",
        "expected at most",
    ),
    "chunks that are none": (
        lambda f: [b"zz\r\n" + f.part("file", b"x", "a")],
        lambda f: "Transfer-Encoding: chunked",
        "",
    ),
    "cut off in chunks": (
        lambda f: chunks(f.part("file", b"x" * 100_000, "a")[:50_000], 1_000),
        lambda f: "Transfer-Encoding: chunked",
        "cut off",
    ),
    "many parts": (
        lambda f: [f.part("a", b"x") * 10_000 + f.end],
        lambda f: f"Content-Length: {len(f.part('a', b'x') * 10_000 + f.end)}",
        "too many parts",
    ),
    "two files": (
        lambda f: [f.part("file", b"x" * 500_000, "a") * 2 + f.end],
        lambda f: f"Content-Length: {len(f.part('file', b'x' * 500_000, 'a') * 2 + f.end)}",
        "got a second",
    ),
    "an endless head": (
        lambda f: [b"--%b\r\nX: " % f.boundary + b"y" * 2_000_000],
        lambda f: f"Content-Length: {2_000_000 + len(f.boundary) + 7}",
        "too much in the head",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_upload_is_refused_and_leaves_nothing(target: Target, forms: Any, case: str) -> None:
    parts, header, words = BAD[case]
    began = time.monotonic()
    status, told = target.send(parts(forms), f"Content-Type: {forms.content_type}", header(forms))
    assert (status, list(told)) == (400, ["error"])
    assert words in told["error"]
    assert time.monotonic() - began < 20
    assert target.kept() == []
    assert target.get("/healthz")


def test_who_is_refused_early_is_told_that_the_connection_ends(
    on_gunicorn: Target, forms: Any
) -> None:
    """A client that keeps connections would lose its next request to the closing one."""
    url, kind = f"http://127.0.0.1:{on_gunicorn.port}", {"Content-Type": forms.content_type}
    refused = forms.part("file", b"a", "a") + forms.part("file", b"b", "b") + forms.end
    kept = 0
    with requests.Session() as session:
        for turn in range(40):
            rest = bytes((0, 30_000, 400_000, 1_000_000)[turn % 4])
            with contextlib.suppress(requests.ConnectionError):
                # whose body was cut short is free to say so
                reply = session.post(url + FILES, data=refused + rest, headers=kind)
                assert reply.status_code == 400
                ends = reply.headers["Connection"] == "close"
                assert ends if len(rest) > 200_000 else True
                kept += not ends
            assert session.get(f"{url}/healthz").status_code == 200
    assert kept >= 10


@pytest.mark.parametrize("share", [0.3, 0.9, 0.999])
def test_a_client_that_leaves_leaves_nothing(target: Target, forms: Any, share: float) -> None:
    body = forms.part("file", b"x" * 1_000_000, "a") + forms.end
    files = target.get(FILES)["pagination"]["total"]
    with socket.create_connection(("127.0.0.1", target.port), timeout=WITHIN_S) as sock:
        sock.sendall(
            f"POST {FILES} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {forms.content_type}\r\n"
            f"{length(body)}\r\n\r\n".encode()
        )
        sock.sendall(body[: int(share * len(body))])
        target.wait_until(empty=False)
    target.wait_until(empty=True)
    assert target.get(FILES)["pagination"]["total"] == files


def memory_kib(pid: int, name: str) -> int:
    """Return ``VmRSS`` or ``VmHWM``, the most that there was of it."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise AssertionError(name)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="/proc tells of memory")
def test_a_file_of_one_gibibyte_takes_no_memory(
    serve: Any, forms: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 1024 * MIB
    stat = os.statvfs(tmp_path)
    if stat.f_bavail * stat.f_frsize < 3 * size:
        pytest.skip("there is no room for a file of 1 GiB")
    monkeypatch.setenv("TEST_MAX_FILE_BYTES", str(size))
    with serve(gunicorn, tmp_path) as port:
        target = Target(port, tmp_path / "files")
        head = forms.part("file", b"", "large.bin").removesuffix(b"\r\n")
        end = b"\r\n" + forms.end

        def upload(count: int) -> Any:
            piece = bytes(MIB)
            whole = len(head) + count * MIB + len(end)
            parts = (head, *(piece for _ in range(count)), end)
            headers = (f"Content-Type: {forms.content_type}", f"Content-Length: {whole}")
            status, told = target.send(parts, *headers)
            assert status == 200, told
            return told

        upload(4)  # what is loaded with the first upload
        workers = _workers()
        before = {pid: memory_kib(pid, "VmRSS") for pid in workers}
        for pid in workers:
            Path(f"/proc/{pid}/clear_refs").write_text("5")  # VmHWM begins anew
        began = time.monotonic()
        told = upload(1024)
        took_s = time.monotonic() - began
        grown = max(memory_kib(pid, "VmHWM") - before[pid] for pid in workers) / 1024
        print(f"1 GiB in {took_s:.1f} s; memory grew by {grown:.1f} MiB at most")
        assert told["size"] == size
        assert grown < 30


def _workers() -> list[int]:
    """Return the processes that this one has started, and those that they have."""
    found: list[int] = []
    waiting = [os.getpid()]
    while waiting:
        pid = waiting.pop()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        waiting += map(int, children)
        found += map(int, children)
    return found
