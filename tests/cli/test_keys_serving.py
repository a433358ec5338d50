"""Keys and a server that runs, and what must never be seen of a key."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from caesar_server.app import create_app
from caesar_server.settings import Settings, load_settings
from caesar_server.web.access.keys import generate_key

SERVE = ("caesar_server", "serve", "--port", "0", "--backend", "hello:HelloBackend")


def ask(url: str, key: str | None = None, **headers: str) -> tuple[int, dict[str, Any]]:
    body = json.dumps({"model": "any", "prompt": "Who?"}).encode()
    headers["Content-Type"] = "application/json"
    if key is not None:
        headers["Authorization"] = f"Bearer {key}"
    request = urllib.request.Request(f"{url}/compat/completions", body, headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def wait_until(condition) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_key_that_is_made_and_revoked_while_the_server_runs(run, start, folder) -> None:
    file = ("--keys-file", str(folder / "keys.json"))
    server = start(*SERVE, *file)
    assert ask(server.url)[0] == 200
    key = run("keys", "create", *file).stdout.strip()
    # from now on a key is asked for
    wait_until(lambda: ask(server.url)[0] == 401)
    assert ask(server.url, key)[0] == 200
    (listed,) = json.loads(run("keys", "list", "--json", *file).stdout)
    run("keys", "revoke", listed["id"], *file)
    wait_until(lambda: ask(server.url, key)[0] == 401)
    # and still is, although no key is valid any more
    assert ask(server.url)[0] == 401
    assert server.stop() == 0


def test_with_keys_any_address_can_be_listened_on(run, start, folder) -> None:
    file = ("--keys-file", str(folder / "keys.json"))
    refused = run("serve", "--port", "0", "--host", "0.0.0.0", *file)
    assert refused.exit_code == 2
    assert "caesar-server keys create" in refused.stderr
    key = run("keys", "create", *file).stdout.strip()
    server = start(*SERVE, "--host", "0.0.0.0", *file)
    url = server.url.replace("0.0.0.0", "127.0.0.1")
    assert ask(url, key, Host="api.example")[0] == 200
    assert ask(url, Host="api.example")[0] == 401


def test_a_file_of_keys_that_is_named_and_not_there_is_warned_of(run, start, folder) -> None:
    file = ("--keys-file", str(folder / "kyes.json"))
    server = start(*SERVE, *file)
    server.wait_for("Serving on")
    (line,) = [line for line in server.log.splitlines() if "kyes.json" in line]
    told = json.loads(line)
    assert told["level"] == "warning"
    assert told["message"].startswith("command line: keys_file: ")
    assert "asks nobody" in told["message"]
    server.stop()
    run("keys", "create", *file)
    for there in (file, ()):
        server = start(*SERVE, *there)
        server.wait_for("Serving on")
        assert "asks nobody" not in server.log


@pytest.mark.parametrize("renew", ["kill", "hup"])
def test_a_new_worker_asks_for_keys_although_their_file_is_gone(run, start, folder, renew) -> None:
    file = ("--keys-file", str(folder / "keys.json"))
    key = run("keys", "create", *file).stdout.strip()
    server = start(*SERVE, *file)
    assert ask(server.url, key)[0] == 200
    (folder / "keys.json").unlink()
    (worker,) = re.findall(r"Booting worker with pid: (\d+)", server.log)
    if renew == "kill":
        os.kill(int(worker), signal.SIGKILL)
    else:
        server.process.send_signal(signal.SIGHUP)
        server.wait_for(rf"Worker exiting \(pid: {worker}\)")
    server.wait_for("is not there; no API key is valid until it is")
    assert ask(server.url)[0] == 401
    assert ask(server.url, key)[0] == 401


def test_a_hangup_while_their_file_is_broken_shuts_nobody_out(run, start, folder) -> None:
    file = ("--keys-file", str(folder / "keys.json"))
    key = run("keys", "create", *file).stdout.strip()
    server = start(*SERVE, *file)
    assert ask(server.url, key)[0] == 200
    (folder / "keys.json").write_text("{broken")
    for times in (1, 2):
        server.process.send_signal(signal.SIGHUP)
        server.wait_for(rf"(?s)(settings stay as they were: \S+ ?\S*: keys_file: .*){{{times}}}")
    assert ask(server.url, key)[0] == 200
    assert server.log.count("Booting worker") == 1


def test_a_file_that_others_can_read_keeps_the_server_from_starting(run, folder) -> None:
    file = ("--keys-file", str(folder / "keys.json"))
    run("keys", "create", *file)
    (folder / "keys.json").chmod(0o644)
    result = run("serve", "--port", "0", *file)
    assert result.exit_code == 2
    assert "chmod 600" in result.stderr
    assert "command line: keys_file: " in result.stderr


def test_bad_keys_in_the_environment_keep_the_server_from_starting(run, monkeypatch) -> None:
    monkeypatch.setenv("CAESAR_SERVER_API_KEYS", "good-enough-key-1, hush-hush")
    result = run("serve", "--port", "0")
    assert result.exit_code == 2
    assert "CAESAR_SERVER_API_KEYS: api_keys: number 2 has 9 characters" in result.stderr
    assert "hush" not in result.output


def test_a_storage_that_is_none_keeps_the_server_from_starting(run, monkeypatch) -> None:
    monkeypatch.setenv("CAESAR_SERVER_LIMITS_STORAGE", "redsi://:hush@host")
    result = run("serve", "--port", "0")
    assert result.exit_code == 2
    assert "limits_storage: redsi is no kind of storage" in result.stderr
    assert "hush" not in result.output


@pytest.mark.parametrize("flag", ["--api-keys", "--limits-storage"])
def test_secrets_are_no_flags(run, flag) -> None:
    assert run("serve", flag, "x").exit_code == 2
    assert flag not in run("serve", "--help").stdout


def exchange(port: int, lines: list[str], body: bytes = b"") -> bytes:
    """Send a request as it stands and return all that comes back."""
    head = "\r\n".join([*lines, "Host: localhost", "Connection: close", "", ""]).encode()
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(head + body)
        return b"".join(iter(lambda: client.recv(65536), b""))


def test_no_key_is_ever_seen(serve, run, folder: Path) -> None:
    """Keys are planted wherever one may be put, by mistake too; then everything is searched."""
    in_file = run("keys", "create", "--keys-file", "keys.json").stdout.strip()
    in_environment, in_use_wrongly = generate_key(), generate_key()
    planted = [key.encode() for key in (in_file, in_environment, in_use_wrongly)]
    root = Path(__file__).resolve().parents[2]
    environment = {
        **os.environ,
        "PYTHONPATH": f"{root}:{folder}",
        "CAESAR_SERVER_KEYS_FILE": "keys.json",
        "CAESAR_SERVER_API_KEYS": in_environment,
        "CAESAR_SERVER_LOG_LEVEL": "debug",
        "CAESAR_SERVER_UNKNOWN_FIELDS": "reject",
        "CAESAR_SERVER_KEY_REQUESTS_PER_MINUTE": "4",
        "CAESAR_SERVER_EXTRA_BACKENDS": "hello:HelloBackend",
    }
    command = [sys.executable, "-m", "caesar_server"]
    seen: dict[str, bytes] = {}

    with serve(lambda port: [*command, "serve", "--port", str(port)], folder, environment) as port:

        def send(what: str, authorization: str, fields: dict[str, Any], status: int) -> None:
            body = json.dumps({"model": "hello", "prompt": "p", **fields}).encode()
            lines = [
                "POST /compat/completions HTTP/1.1",
                authorization,
                "Content-Type: application/json",
                f"Content-Length: {len(body)}",
            ]
            seen[what] = exchange(port, lines, body)
            assert seen[what].startswith(b"HTTP/1.1 %d " % status), seen[what]

        for key in (in_file, in_environment):
            good = f"Authorization: Bearer {key}"
            send(f"good {key}", good, {}, 200)
            send(f"stream {key}", good, {"stream": True}, 200)
            send(f"unknown field {key}", good, {"api_key": key}, 400)
            send(f"bad value {key}", good, {"n": 0, "user": key}, 400)
            send(f"too many {key}", good, {}, 429)
        for key in (in_file, in_use_wrongly):
            for wrong in (
                f"Authorization: Basic {key}",
                f"Authorization: {key}",
                f"Authorization: Bearer {key}x",
                f"Authorization: Bearer {key}, Bearer {key}",
                f"X-Api-Key: {key}",
                f"Cookie: key={key}",
            ):
                send(wrong, wrong, {}, 401)
        # what gunicorn itself refuses
        for line in (
            f"Authorization Bearer {in_file}",
            f"Authorization: Bearer {in_file}\x00",
            f"Authorization: Bearer {in_file}\x7f",
        ):
            seen[line] = exchange(port, ["GET /compat/models HTTP/1.1", line])
            assert seen[line].startswith(b"HTTP/1.1 400 ")
        for path in ("/metrics", "/readyz", "/compat/models", "/openapi.json"):
            good = f"Authorization: Bearer {in_file}"
            seen[path] = exchange(port, [f"GET {path} HTTP/1.1", good])
    (log,) = folder.glob("server-*.log")
    seen["log"] = log.read_bytes()
    assert b"debug" in seen["log"].lower()
    assert b"/compat/completions" in seen["log"]

    for arguments in (
        ["settings"],
        ["settings", "--json"],
        ["keys", "list"],
        ["keys", "list", "--json"],
        ["keys", "show-limits"],
        ["keys", "revoke", "nobody"],
        ["--help"],
        ["serve", "--help"],
        ["keys", "create", "--help"],
        ["backends", "--verbose"],
        ["routes"],
    ):
        result = subprocess.run(
            [*command, *arguments], cwd=folder, env=environment, capture_output=True, timeout=60
        )
        seen[" ".join(arguments)] = result.stdout + result.stderr
    for what, text in seen.items():
        for key in planted:
            assert key not in text, what
    # nor beside the file of keys
    for path in folder.rglob("*"):
        if path.is_file():
            assert not any(key in path.read_bytes() for key in planted), path


def test_objects_do_not_show_keys() -> None:
    key = generate_key()
    loaded = load_settings(environ={"CAESAR_SERVER_API_KEYS": key, "CAESAR_SERVER_PORT": "1"})
    settings = Settings(api_keys=(key,))
    app = create_app(settings)
    services = app.extensions["caesar_server"]
    try:
        found = services.keyring.find(key)
        shown = [loaded, settings, app, services, services.keyring, found, vars(services.keyring)]
        assert key not in repr(shown)
    finally:
        services.close()
