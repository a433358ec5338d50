"""What linters and parsers say of the files in ``deploy``, and that they agree with each other."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from caesar_server.cli.gunicorn_options import gunicorn_options
from caesar_server.settings import Settings
from caesar_server.web.uploads.receiving import FORM_BYTES

UNIT = "systemd/caesar-server.service"
PROGRAM = "/opt/caesar-server/bin/caesar-server"
#: How exposed systemd says the service is, of 10.
EXPOSED_AT_MOST = 1.5


@pytest.fixture(scope="session")
def deploy(root: Path) -> Path:
    """The folder."""
    return root / "deploy"


def seconds(text: str) -> int:
    """Return the number of seconds that nginx or systemd reads in ``30s``, ``30`` or ``10m``."""
    number, unit = re.fullmatch(r"(\d+)([sm]?)", text).groups()
    return int(number) * (60 if unit == "m" else 1)


def nginx_value(deploy: Path, name: str) -> str:
    text = (deploy / "nginx" / "caesar-server.conf").read_text()
    (value,) = re.findall(rf"^\s*{name} ([^;]+);", text, re.MULTILINE)
    return value


def unit_value(deploy: Path, name: str) -> str:
    (value,) = re.findall(rf"^{name}=(.*)$", (deploy / UNIT).read_text(), re.MULTILINE)
    return value


def test_hadolint_has_nothing_to_say(deploy: Path) -> None:
    hadolint = shutil.which("hadolint", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if hadolint is None:
        pytest.skip("hadolint is not installed")
    result = subprocess.run(
        [hadolint, "--strict-labels", deploy / "Dockerfile"], capture_output=True, text=True
    )
    assert (result.returncode, result.stdout + result.stderr) == (0, "")


def test_compose_file_is_valid(deploy: Path) -> None:
    compose = pytest.importorskip("compose_spec")
    parsed = compose.PyCompose.from_yaml((deploy / "compose.yaml").read_text())
    assert set(parsed.service_names()) == {"server", "nginx"}


def test_compose_file_gives_every_service_as_little_as_it_needs(deploy: Path) -> None:
    yaml = pytest.importorskip("yaml")
    parsed = yaml.safe_load((deploy / "compose.yaml").read_text())
    for name, service in parsed["services"].items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert "no-new-privileges:true" in service["security_opt"], name
        # published to this machine alone, and only by nginx
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ())), name
    assert "ports" not in parsed["services"]["server"]
    for mount in parsed["services"]["nginx"]["volumes"]:
        assert (deploy / mount.partition(":")[0]).is_file()
    build = parsed["services"]["server"]["build"]
    assert (deploy / build["context"] / build["dockerfile"]).is_file()


@pytest.fixture
def unit(deploy: Path, tmp_path: Path) -> Path:
    """The unit, with a program that is here in place of the installed one."""
    text = (deploy / UNIT).read_text()
    assert f"ExecStart={PROGRAM} serve" in text
    path = tmp_path / "caesar-server.service"
    path.write_text(text.replace(PROGRAM, "/bin/true"))
    return path


def systemd_analyze(*arguments: str | Path) -> str:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed")
    result = subprocess.run(
        [program, "--no-pager", *arguments], capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout + result.stderr


def test_systemd_takes_the_unit_without_a_word(unit: Path) -> None:
    assert systemd_analyze("verify", "--man=no", unit) == ""


def test_systemd_finds_the_unit_hardened(unit: Path) -> None:
    told = systemd_analyze("security", "--offline=true", unit)
    exposed = float(re.search(r"Overall exposure level for \S+: ([\d.]+)", told)[1])
    assert exposed <= EXPOSED_AT_MOST


def test_the_server_tells_systemd_when_it_is_ready(deploy: Path, tmp_path: Path) -> None:
    assert unit_value(deploy, "Type") == "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        notified.bind(str(tmp_path / "notify"))
        notified.settimeout(60)
        server = subprocess.Popen(
            [sys.executable, "-m", "caesar_server", "serve", "--port", "0"],
            cwd=tmp_path,
            env={**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify")},
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            assert b"READY=1" in notified.recv(4096)
        finally:
            server.terminate()
            server.wait(60)


def test_everything_waits_longer_than_the_server(deploy: Path) -> None:
    settings = Settings()
    compose = (deploy / "compose.yaml").read_text()
    (grace,) = re.findall(r"stop_grace_period: (\S+)", compose)
    assert seconds(grace) > settings.graceful_timeout_s
    assert seconds(unit_value(deploy, "TimeoutStopSec")) > settings.graceful_timeout_s
    assert seconds(nginx_value(deploy, "proxy_read_timeout")) > settings.request_timeout_s
    assert seconds(nginx_value(deploy, "send_timeout")) == settings.write_timeout_s
    kept = gunicorn_options(settings)["keepalive"]
    assert seconds(nginx_value(deploy, "keepalive_timeout")) < kept
    nginx = (deploy / "nginx" / "caesar-server.conf").read_text()
    body, upload = (
        int(megabytes) * 1024**2 for megabytes in re.findall(r"client_max_body_size (\d+)m;", nginx)
    )
    assert body == settings.max_body_bytes
    assert upload == settings.max_file_bytes + FORM_BYTES
