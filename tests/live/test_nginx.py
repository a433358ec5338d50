"""The configuration for nginx in ``deploy``, in a real nginx in front of a real server."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "deploy" / "nginx"
NAME = "api.example"
GRACE = ("--graceful-timeout-s", "3")
#: With the end of the line before it: a header may end with "0" as well.
LAST_CHUNK = b"\r\n0\r\n\r\n"

#: What a distribution's nginx.conf has, in the test's own folder and in the foreground.
MAIN = """
daemon off;
pid nginx.pid;
error_log error.log info;
worker_processes 2;
{user}
events {{}}
http {{
    access_log access.log;
    client_body_temp_path bodies;
    proxy_temp_path answers;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    gzip on;
    include {site};
}}
"""


@dataclass
class Proxied:
    """A server and nginx in front of it.

    :param server: what ``start`` gives.
    :param port: nginx's port.
    """

    server: Any
    port: int

    def request(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        """Return status, headers and body of a request through nginx."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(connection):
            data = body if body is None or isinstance(body, bytes) else json.dumps(body)
            given = {"Host": NAME, "Content-Type": "application/json", **headers}
            connection.request(method, path, data, given)
            response = connection.getresponse()
            return response.status, response.headers, response.read()

    def send(self, model: str, prompt: str, **fields: Any) -> socket.socket:
        """Send a completion through nginx and return the open connection."""
        body = json.dumps({"model": model, "prompt": prompt, **fields}).encode()
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        sock.sendall(
            b"POST /compat/completions HTTP/1.1\r\nHost: %b\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
            % (NAME.encode(), len(body), body)
        )
        return sock


def accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except ConnectionError:
        return False
    return True


def write_site(folder: Path, port: int, server_port: int) -> Path:
    """Copy the two files, with other addresses in place of theirs."""
    upstream, site = folder / "upstream.conf", folder / "site.conf"
    for source, target, replaced in (
        ("caesar-server-upstream.conf", upstream, {"127.0.0.1:8000": f"127.0.0.1:{server_port}"}),
        (
            "caesar-server.conf",
            site,
            {
                "listen 80;": f"listen 127.0.0.1:{port};",
                "/etc/nginx/caesar-server-upstream.conf": str(upstream),
            },
        ),
    ):
        text = (FOLDER / source).read_text()
        for old, new in replaced.items():
            assert text.count(old) >= 1, f"{source}: no {old!r}"
            text = text.replace(old, new)
        target.write_text(text)
    return site


@pytest.fixture
def proxied(
    start: Any, free_port: Callable[[], int], tmp_path: Path
) -> Iterator[Callable[..., Proxied]]:
    """Start a server with the given flags, and nginx in front of it."""
    nginx = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    if nginx is None:
        pytest.skip("nginx is not installed")
    running: list[subprocess.Popen[bytes]] = []

    def start_both(*flags: str) -> Proxied:
        server = start("--allowed-hosts", f"127.0.0.1,localhost,{NAME}", *flags)
        folder = tmp_path / "nginx"
        folder.mkdir()
        port = free_port()
        site = write_site(folder, port, server.port)
        # the default account of its workers could not enter a folder of root's
        user = "user root;" if os.geteuid() == 0 else ""
        (folder / "nginx.conf").write_text(MAIN.format(user=user, site=site))
        command = [nginx, "-p", str(folder), "-c", "nginx.conf", "-e", "error.log"]
        with (folder / "output").open("wb") as output:
            process = subprocess.Popen(
                command, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        running.append(process)
        deadline = time.monotonic() + 60
        while not accepts(port):
            assert process.poll() is None, (folder / "error.log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return Proxied(server, port)

    yield start_both
    for process in running:
        process.terminate()
        process.wait(60)


def read_until(sock: socket.socket, end: bytes, data: bytes = b"") -> bytes:
    """Read on from ``data`` until ``end`` has come, and return all of it."""
    while end not in data:
        part = sock.recv(65536)
        assert part, data
        data += part
    return data


def test_answers_and_errors_come_through(proxied) -> None:
    site = proxied()
    body = {"model": "slow", "prompt": "x", "tenths": 0}
    status, headers, data = site.request(
        "POST", "/compat/completions", body, **{"x-request-id": "mine"}
    )
    assert (status, headers["x-request-id"]) == (200, "mine")
    assert json.loads(data)["choices"][0]["text"].startswith("from ")
    status, _, data = site.request("POST", "/compat/completions", {**body, "temperature": 9})
    assert (status, json.loads(data)["error"]["param"]) == (400, "temperature")


def test_each_chunk_of_a_stream_comes_before_the_next_one_is_made(proxied) -> None:
    site = proxied()
    with site.send("steps", "x", stream=True) as sock:
        raw = b""
        for number in range(3):
            (site.server.folder / f"step-{number}").touch()
            raw = read_until(sock, b'"step %d"' % number, raw)
        assert b"data: [DONE]\n\n" in read_until(sock, LAST_CHUNK, raw)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("model", ["ticks", "silent"])
def test_who_leaves_nginx_leaves_the_server(proxied, model, stream) -> None:
    # no heartbeat: it must be seen without a byte being written
    site = proxied("--heartbeat-s", "0")
    sock = site.send(model, "left", stream=stream)
    site.server.wait(lambda: any("began left" in line for line in site.server.journal))
    sock.close()
    site.server.wait(lambda: any("ended left" in line for line in site.server.journal))


def test_a_body_as_large_as_the_server_takes_passes_and_a_larger_one_is_413(proxied) -> None:
    site = proxied()
    limit = 10 * 1024 * 1024
    frame = json.dumps({"model": "slow", "prompt": "", "tenths": 0}).encode()
    largest = frame.replace(b'""', b'"%b"' % (b"x" * (limit - len(frame))))
    assert len(largest) == limit
    assert site.request("POST", "/compat/completions", largest)[0] == 200
    status, headers, data = site.request("POST", "/compat/completions", largest + b" ")
    # nginx's own page, and not OpenAI's error object
    assert (status, headers["Content-Type"]) == (413, "text/html")
    assert b"413 Request Entity Too Large" in data


def connections_to(port: int) -> int:
    """Return how many connections to a port there are or were a moment ago."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(int(row[2].rpartition(":")[2], 16) == port for row in rows)


def test_connections_to_the_server_are_used_again(proxied) -> None:
    site = proxied()
    before = connections_to(site.server.port)
    for _ in range(20):
        assert site.request("GET", "/healthz")[0] == 200
    # one for each of nginx's two workers
    assert connections_to(site.server.port) - before <= 2


def test_other_names_are_refused_behind_nginx_too(proxied) -> None:
    site = proxied()
    assert site.request("GET", "/healthz", Host="evil.example")[0] == 403


def test_a_stream_gets_its_last_frame_when_the_server_is_told_to_stop(proxied) -> None:
    site = proxied(*GRACE)
    with site.send("ticks", "stream", stream=True) as sock:
        site.server.wait(lambda: any("began stream" in line for line in site.server.journal))
        site.server.signal(signal.SIGTERM)
        raw = read_until(sock, LAST_CHUNK)
    assert b'"code":"shutting_down"' in raw
    assert raw.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
    assert site.server.exit_code() == 0
    assert site.request("GET", "/healthz")[0] == 502
