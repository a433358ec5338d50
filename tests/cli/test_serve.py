"""``caesar-server serve`` and ``gunicorn wsgi:app`` as real processes."""

from __future__ import annotations

import json
import re
import signal
import socket
import time
import urllib.error
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from caesar_server.cli import main
from caesar_server.cli.gunicorn_options import bind_address, gunicorn_options
from caesar_server.cli.plugins.apart import wrong_options_apart
from caesar_server.cli.serve import listen
from caesar_server.cli.startup import read_settings
from caesar_server.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
SERVE = ("caesar_server", "serve", "--port", "0", "--backend", "hello:HelloBackend")


def get(url: str, body: object = None) -> dict:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)


def answer(url: str) -> str:
    body = get(f"{url}/compat/completions", {"model": "any", "prompt": "Who?"})
    return body["choices"][0]["text"]


def test_serves_on_a_free_port_and_ends_with_sigterm(start, folder) -> None:
    server = start(*SERVE)
    assert answer(server.url) == "Hello"
    # the line of serve and gunicorn's own name the same port
    server.wait_for("Listening at")
    assert len(set(re.findall(r"http://127\.0\.0\.1:(\d+)", server.log))) == 1
    assert server.stop() == 0
    assert "Traceback" not in server.log
    (opened,), (closed,) = folder.glob("opened-*"), folder.glob("closed-*")
    assert opened.name.partition("-")[2] == closed.name.partition("-")[2]


def test_ends_with_sigint(start) -> None:
    server = start(*SERVE)
    answer(server.url)
    assert server.stop(signal.SIGINT) == 0
    assert "Traceback" not in server.log


def test_names_the_default_backend(start) -> None:
    server = start(*SERVE)
    server.wait_for(r"Serving on http://127\.0\.0\.1:\d+ \(default backend: hello\)")


def test_leaves_no_file_in_the_home_directory(start, folder, tmp_path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    server = start(*SERVE, HOME=str(home), XDG_RUNTIME_DIR=str(home))
    answer(server.url)
    server.stop()
    assert list(home.rglob("*")) == []


def test_settings_come_from_file_environment_and_flags(start, folder) -> None:
    (folder / "my.toml").write_text(
        'unknown_model = "reject"\n[backends.hello]\ngreeting = "Hi"\ntimes = 2\n'
    )
    server = start(
        *SERVE, "--config", "my.toml", "--no-insecure", CAESAR_SERVER_BACKENDS__HELLO__TIMES="3"
    )
    body = get(f"{server.url}/compat/completions", {"model": "hello", "prompt": "Who?"})
    assert body["choices"][0]["text"] == "Hi Hi Hi"
    with pytest.raises(urllib.error.HTTPError) as caught:
        answer(server.url)
    assert caught.value.code == 404
    caught.value.close()


def test_workers_do_not_keep_jobs_to_themselves(start, folder) -> None:
    server = start(*SERVE, "--workers=2", "--store=memory")
    assert server.wait() == 2
    assert "store: each of the 2 workers would have jobs of its own in memory" in server.log


def test_each_worker_opens_and_closes_backends_of_its_own(start, folder) -> None:
    # strict: both open theirs at once, whichever of them would get the requests
    shared = ("--workers=2", f"--store=sqlite:///{folder}/jobs.sqlite3")
    server = start(*SERVE, *shared, "--strict-plugins", "--allowed-backends=hello")
    deadline = time.monotonic() + 60
    while len(list(folder.glob("opened-*"))) < 2:
        assert time.monotonic() < deadline, server.log
        answer(server.url)
    assert server.stop() == 0
    assert len(list(folder.glob("closed-*"))) == 2


def test_hangup_replaces_the_workers_behind_the_same_port(start, folder) -> None:
    server = start(*SERVE)
    answer(server.url)
    server.process.send_signal(signal.SIGHUP)
    server.wait_for(r"(?s)Booting worker.*Booting worker")
    server.wait_for(r"Worker exiting")
    assert answer(server.url) == "Hello"
    assert server.stop() == 0
    assert len(list(folder.glob("closed-*"))) == 2


def test_a_hangup_with_another_address_says_that_it_stays(start, folder) -> None:
    settings = folder / "caesar-server.toml"
    settings.write_text('host = "127.0.0.1"\nport = 0\n')
    server = start("caesar_server", "serve", *SERVE[-2:])
    assert answer(server.url) == "Hello"
    settings.write_text('host = "localhost"\nport = 0\n')
    server.process.send_signal(signal.SIGHUP)
    server.wait_for(
        r"host and port stay as they were .*: it listens on 127.0.0.1:0, "
        r"and the settings say localhost:0 now"
    )
    server.wait_for(r"Worker exiting")
    assert answer(server.url) == "Hello"
    # as it is again: nothing to tell
    settings.write_text('host = "127.0.0.1"\nport = 0\n')
    server.process.send_signal(signal.SIGHUP)
    server.wait_for(r"(?s)(Worker exiting.*){2}")
    assert server.log.count("host and port stay") == 1
    assert server.stop() == 0


#: What no app can be made of, with a word of the sentence that says so.
UNFIT = [
    ('api_version = "soon"', "2025-08-08 or 2025-11-27"),
    ('files = "http://files.example"', "files: expected a directory"),
    ('files = "s3://files"\ns3_endpoint_url = "here"', "s3_endpoint_url: expected http"),
    ('allowed_hosts = ["*"]', "allowed_hosts: '\\*' is no name"),
]


def test_a_hangup_with_settings_that_do_not_fit_leaves_the_server_as_it_was(start, folder) -> None:
    server = start(*SERVE)
    answer(server.url)
    (folder / "caesar-server.toml").write_text(UNFIT[0][0])
    server.process.send_signal(signal.SIGHUP)
    server.wait_for(r"the settings stay as they were: file .*caesar-server.toml: api_version: ")
    # the second time the first is over: no worker came or went
    server.process.send_signal(signal.SIGHUP)
    server.wait_for(r"(?s)(settings stay as they were.*){2}")
    assert answer(server.url) == "Hello"
    assert server.log.count("Booting worker") == 1
    assert "Worker exiting" not in server.log
    assert server.stop() == 0


WRONG_OPTIONS = """
[backends.not_there]
greeting = "Hi"
[backends.hello]
greting = "Hi"
[models.twice]
backend = "hello"
options = {times = 10}
"""


def install_hello(folder: Path) -> None:
    """Leave what an installed distribution leaves."""
    info = folder / "hello-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hello\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[caesar_server.backends]\nhello = hello:HelloBackend\n")


@pytest.mark.parametrize("installed", [False, True])
def test_a_hangup_with_options_that_do_not_fit_leaves_the_server_as_it_was(
    start, folder, installed
) -> None:
    if installed:
        install_hello(folder)
    named = ("--default-backend", "hello") if installed else SERVE[-2:]
    server = start(*SERVE[:-2], *named)
    assert answer(server.url) == "Hello"
    settings = folder / "caesar-server.toml"
    settings.write_text(WRONG_OPTIONS)
    server.process.send_signal(signal.SIGHUP)
    kept = r"the settings stay as they were: file .*caesar-server.toml: "
    server.wait_for(kept + r"backends.hello.greting: unknown")
    server.wait_for(kept + r"models.twice.options.times: expected 1 to 9, got 10")
    assert answer(server.url) == "Hello"
    settings.write_text('[backends.hello]\ngreeting = "Hi"\n')
    server.process.send_signal(signal.SIGHUP)
    server.wait_for(r"(?s)Booting worker.*Booting worker")
    server.wait_for(r"Worker exiting")
    assert server.log.count("Booting worker") == 2
    assert answer(server.url) == "Hi"
    assert server.stop() == 0
    assert "were not checked" not in server.log


def test_wrong_options_of_an_installed_backend_are_told_at_the_start(start, folder) -> None:
    install_hello(folder)
    (folder / "caesar-server.toml").write_text(WRONG_OPTIONS)
    server = start(*SERVE[:-2], "--default-backend", "hello")
    where = r"file .*caesar-server\.toml: "
    server.wait_for(
        where + r"backends\.hello\.greting: unknown; .* \(until then the backend is fai"
    )
    server.wait_for(where + r"models\.twice\.options\.times: expected 1 to 9, got 10")
    # nobody had asked for it
    server.wait_for(r"Serving on[\s\S]*Booting worker")
    assert server.stop() == 0


@pytest.mark.parametrize(
    ("importing", "words"),
    [("import time; time.sleep(600)", "that took 0.1 s"), ("import os; os._exit(0)", "ended the")],
)
def test_a_check_of_options_that_comes_to_no_end_refuses_nothing(
    folder, monkeypatch, caplog, importing, words
) -> None:
    (folder / "stuck.py").write_text(importing)
    (folder / "caesar-server.toml").write_text("[backends.stuck]\nx = 1\n")
    monkeypatch.chdir(folder)
    loaded = read_settings(None, {"extra_backends": ("stuck=stuck:Stuck",)})
    assert wrong_options_apart(loaded, patience_s=0.1 if "sleep" in importing else 60) == []
    assert words in caplog.text


def test_a_hangup_makes_the_tables_of_another_store(start, folder) -> None:
    settings = folder / "caesar-server.toml"
    settings.write_text('store = "sqlite:///one.sqlite3"')
    server = start(*SERVE, CAESAR_SERVER_STORE="")
    answer(server.url)
    settings.write_text('store = "sqlite:///caesar-server.toml/jobs.sqlite3"')
    server.process.send_signal(signal.SIGHUP)
    server.wait_for(r"the settings stay as they were: file .*caesar-server.toml: store: the file ")
    settings.write_text('store = "sqlite:///other.sqlite3"')
    server.process.send_signal(signal.SIGHUP)
    server.wait_for(r"Worker exiting")
    assert get(f"{server.url}/research")["data"] == []
    assert (folder / "other.sqlite3").exists()
    assert server.stop() == 0


@pytest.mark.parametrize(("line", "words"), UNFIT)
def test_settings_that_do_not_fit_are_told_before_anything_listens(run, folder, line, words):
    (folder / "caesar-server.toml").write_text(line)
    result = run("serve", "--port", "0")
    assert result.exit_code == 2
    assert re.search(f"file .*caesar-server.toml: .*{words}", result.stderr)
    assert "Serving on" not in result.stderr


def test_taken_port_is_told_at_once_in_one_line(start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = start(*SERVE[:2], "--port", str(port), *SERVE[4:])
        assert server.wait() == 1
    assert re.fullmatch(rf"Error: port {port} of 127\.0\.0\.1 is taken; .*--port.*\n", server.log)


def test_port_that_was_just_in_use_can_be_taken_again(start, free_port) -> None:
    serve = (*SERVE[:2], "--port", str(free_port()), *SERVE[4:])
    server = start(*serve)
    answer(server.url)
    server.stop()
    assert answer(start(*serve).url) == "Hello"


def has_loopback_of_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


# no skip: what a machine lacks in its network nobody can install there
@pytest.mark.xfail(not socket.has_dualstack_ipv6(), reason="no IPv6 here", run=False)
def test_all_addresses_of_ipv6_are_those_of_ipv4_too(start) -> None:
    server = start(*SERVE, "--host", "::", "--insecure")
    port = urllib.parse.urlsplit(server.url).port
    # many containers have IPv6 without any address of it
    for address in ("127.0.0.1", *["[::1]"] * has_loopback_of_ipv6()):
        assert answer(f"http://{address}:{port}") == "Hello"


def test_a_name_that_has_no_address_of_ipv4_is_listened_on(monkeypatch) -> None:
    real = socket.getaddrinfo
    listened: list[Any] = []

    def looked_up(host: str, *rest: Any, **named: Any) -> Any:
        return real("::1" if host == "six.example" else host, *rest, **named)

    def listening(address: Any, *, family: int, **named: Any) -> socket.socket:
        listened.append((family, address[0]))
        return socket.socket()

    monkeypatch.setattr(socket, "getaddrinfo", looked_up)
    monkeypatch.setattr(socket, "create_server", listening)
    listen(Settings(host="six.example", port=0)).close()
    assert listened == [(socket.AF_INET6, "::1")]


def test_a_service_of_kubernetes_may_have_the_servers_name(start) -> None:
    place = "tcp://10.96.12.7:8000"
    service = {"CAESAR_SERVER_PORT": place, "CAESAR_SERVER_SERVICE_HOST": "10.96.12.7"}
    assert answer(start(*SERVE, **service).url) == "Hello"


#: What systemd does for a ``.socket`` unit: listen, pass the socket as descriptor 3, begin.
ACTIVATE = """
import os, socket, sys
kind, address, *command = sys.argv[1:]
if kind == "unix":
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
else:
    listener = socket.create_server(("127.0.0.1", int(address)))
os.dup2(listener.fileno(), 3)
os.set_inheritable(3, True)
os.environ["LISTEN_FDS"], os.environ["LISTEN_PID"] = "1", str(os.getpid())
os.execv(sys.executable, [sys.executable, "-m", *command])
"""


def test_a_socket_that_systemd_listens_on_is_served_in_place_of_host_and_port(
    start, folder, free_port
) -> None:
    (folder / "activate.py").write_text(ACTIVATE)
    port = str(free_port())
    server = start("activate", "tcp", port, SERVE[0], "serve", "--port", port, *SERVE[4:])
    assert answer(server.url) == "Hello"
    server.process.send_signal(signal.SIGHUP)
    server.wait_for(r"Worker exiting")
    assert answer(f"http://127.0.0.1:{port}") == "Hello"
    assert f"Serving on http://127.0.0.1:{port} (" in server.log
    assert server.stop() == 0


def test_a_unix_socket_of_systemd_is_served_too_and_stays(start, folder) -> None:
    (folder / "activate.py").write_text(ACTIVATE)
    path = folder / "run.sock"
    server = start("activate", "unix", str(path), *SERVE)
    server.wait_for("Booting worker")
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert client.recv(1000).startswith(b"HTTP/1.1 200 OK")
    assert f"Serving on unix:{path} (" in server.log
    assert server.stop() == 0
    assert path.exists()  # it is systemd's


def test_name_that_cannot_be_listened_on_is_told(start) -> None:
    server = start(*SERVE, "--host", "no-such-host.invalid", "--insecure")
    assert server.wait() == 1
    assert re.fullmatch(
        r"Error: cannot listen on port 0 of no-such-host\.invalid: .*\n", server.log
    )


def test_strict_ends_the_server_if_a_backend_does_not_open(start) -> None:
    server = start(*SERVE, "--backend", "hello:FragileBackend", "--strict-plugins")
    assert server.wait() == 3
    assert "backend fragile (hello:FragileBackend) is failed: open() raised RuntimeError" in (
        server.log
    )


def test_broken_backend_does_not_stop_the_server(start) -> None:
    server = start(*SERVE, "--backend", "hello:FragileBackend")
    assert answer(server.url) == "Hello"
    with pytest.raises(urllib.error.HTTPError) as caught:
        get(f"{server.url}/compat/completions", {"model": "fragile", "prompt": "Who?"})
    with caught.value as error:
        assert error.code == 503
        assert json.load(error)["error"]["code"] == "backend_failed_to_load"
    server.wait_for(r"backend fragile .* open\(\) raised RuntimeError")


def test_gunicorn_itself_serves_with_the_same_settings(start, folder) -> None:
    variables = {
        "PYTHONPATH": f"{ROOT}:{folder}",
        "CAESAR_SERVER_PORT": "0",
        "CAESAR_SERVER_EXTRA_BACKENDS": "hello:HelloBackend",
    }
    server = start("gunicorn", "--print-config", "wsgi:app", cwd=ROOT, **variables)
    assert server.wait() == 0
    server = start("gunicorn", "wsgi:app", cwd=ROOT, **variables)
    assert answer(server.url) == "Hello"
    worker = gunicorn_options(Settings())["worker_class"]
    assert f"Using worker: {worker.__name__}" in server.log
    assert server.stop() == 0
    assert list(folder.glob("closed-*"))


@pytest.mark.parametrize(
    ("host", "address"),
    [("127.0.0.1", "127.0.0.1:80"), ("::1", "[::1]:80"), ("[::1]", "[::1]:80")],
)
def test_address_for_gunicorn(host, address) -> None:
    assert bind_address(Settings(host=host, port=80)) == address


def test_gunicorn_gets_room_for_idle_connections() -> None:
    options = gunicorn_options(Settings(threads=8, workers=3, graceful_timeout_s=1.5))
    # with as many threads as connections gunicorn switches keep-alive off
    assert options["worker_connections"] > options["threads"] == 8
    assert (options["workers"], options["graceful_timeout"]) == (3, 2 + 7)


def test_a_mock_that_is_to_end_does_not_wait_for_idle_connections() -> None:
    assert gunicorn_options(Settings(), is_mock=True)["worker_class"].idle_s == 0
    assert gunicorn_options(Settings())["worker_class"].idle_s == 2


def test_gunicorn_itself_refuses_bad_settings(start) -> None:
    server = start("gunicorn", "wsgi:app", cwd=ROOT, CAESAR_SERVER_HOST="0.0.0.0")
    assert server.wait() == 1
    assert "--insecure" in server.log
    assert "Traceback" not in server.log


def test_a_mistake_in_a_named_file_is_told_with_a_command_that_shows_more(run, folder) -> None:
    (folder / "broken.py").write_text("class HelloBackend(\n")
    result = run("serve", "--port", "0", "--backend", "broken.py")
    assert result.exit_code == 2
    assert "SyntaxError: '(' was never closed (broken.py, line 1)" in result.stderr
    assert "(caesar-server backends broken.py --verbose prints the traceback)" in result.stderr
    assert "class HelloBackend(\n" in run("backends", "broken.py", "--verbose").stderr


@pytest.mark.parametrize(
    ("backend", "words"),
    [
        ("nope:Nope", "extra_backends: nope:Nope: "),
        ("json:Nope", "extra_backends: json:Nope: "),
        ("json:JSONDecoder", "extra_backends: json:JSONDecoder: "),
    ],
)
def test_a_named_class_that_is_none_is_told_before_anything_listens(backend, words):
    result = CliRunner().invoke(main, ["serve", "--port", "0", "--backend", backend])
    assert result.exit_code == 2
    assert "command line: extra_backends: " in result.stderr
    assert words in result.stderr
    assert "Serving on" not in result.stderr


@pytest.mark.parametrize("command", ["serve", "mock"])
def test_without_a_folder_for_temporary_files_it_says_what_to_mount(
    command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nowhere() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found in ['/tmp', '/srv']")

    monkeypatch.setattr("tempfile.gettempdir", nowhere)
    result = CliRunner().invoke(main, [command, "--port", "0"])
    assert result.exit_code == 2
    assert "no folder for temporary files (No usable temporary directory found in ['/tmp'" in (
        result.stderr
    )
    assert "TMPDIR" in result.stderr


#: As in a container that is allowed few threads: eight more than when the first request comes.
FEW_THREADS = """
import threading
from caesar_server.contract import *

start = threading.Thread.start

class FewBackend(Backend):
    def open(self):
        allowed = threading.active_count() + 8

        def start_if_allowed(thread):
            if threading.active_count() >= allowed:
                raise RuntimeError("can't start new thread")
            start(thread)

        threading.Thread.start = start_if_allowed

    def run(self, request, context):
        context.sleep(0.01)
        yield ContentDelta("enough")
        yield ChoiceFinished()
        yield Completed()
"""


@pytest.mark.slow
def test_a_limit_on_threads_makes_requests_wait_and_ends_no_worker(start, folder) -> None:
    (folder / "few.py").write_text(FEW_THREADS)
    server = start("caesar_server", "serve", "--port", "0", "--backend", "few.py")
    url = f"{server.url}/compat/completions"

    def ask(_: int) -> bytes:
        body = json.dumps({"model": "few", "prompt": "x", "stream": True}).encode()
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.read()

    ask(0)
    with ThreadPoolExecutor(40) as clients:
        answers = list(clients.map(ask, range(120)))
    assert all(b"enough" in one and one.endswith(b"data: [DONE]\n\n") for one in answers)
    assert "allows no further thread" in server.log
    assert server.log.count("Booting worker") == 1
    assert server.stop() == 0


#: As under a small ``ulimit -n``: twelve more than are open when the first request comes.
FEW_FILES = """
import os, resource
from caesar_server.contract import *

class FewBackend(Backend):
    def open(self):
        allowed = max(map(int, os.listdir("/proc/self/fd"))) + 12
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, allowed))

    def run(self, request, context):
        yield ContentDelta("enough")
        yield ChoiceFinished()
        yield Completed()
"""


@pytest.mark.slow
def test_a_limit_on_open_files_makes_connections_wait_and_ends_no_worker(start, folder) -> None:
    (folder / "few.py").write_text(FEW_FILES)
    server = start("caesar_server", "serve", "--port", "0", "--backend", "few.py", "--store=memory")
    port = int(server.url.rpartition(":")[2])
    body = json.dumps({"model": "few", "prompt": "x"})

    def ask(connection: HTTPConnection) -> bytes:
        headers = {"Content-Type": "application/json"}
        connection.request("POST", "/compat/completions", body, headers)
        return connection.getresponse().read()

    with closing(HTTPConnection("127.0.0.1", port, timeout=60)) as kept:
        assert b"enough" in ask(kept)
        idle = [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(30)]
        server.wait_for("new connections have to wait")
        assert b"enough" in ask(kept)
        for one in idle:
            one.close()
    with closing(HTTPConnection("127.0.0.1", port, timeout=60)) as late:
        assert b"enough" in ask(late)
    assert server.log.count("Booting worker") == 1
    assert server.stop() == 0
