"""What the Dockerfile does, done without Docker: its steps in a folder that stands for the image.

A path that the Dockerfile names stands below that folder instead, and two programs that would
change this machine (``useradd``, ``chown``) only note how they were called.  What this cannot show
is the base image and the isolation.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

#: How long one step may take, in seconds; pip fetches packages.
STEP_S = 280
#: What begins a path in the image that a step may make.
PLACES = ("/opt/caesar-server", "/etc/caesar-server", "/var/lib/caesar-server", "/src")


def instructions(dockerfile: Path) -> Iterator[tuple[str, str]]:
    """Yield each instruction and its text, with continued lines joined and comments left out."""
    lines = [line for line in dockerfile.read_text().splitlines() if not line.startswith("#")]
    for line in re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines():
        if line.strip():
            name, _, text = line.partition(" ")
            yield name, text


@dataclass
class Image:
    """The image's file system below ``root``, and what the Dockerfile says of its processes."""

    context: Path
    root: Path
    programs: Path
    directory: str = "/"
    user: str = "root"
    variables: dict[str, str] = field(default_factory=dict)
    commands: dict[str, list[str]] = field(default_factory=dict)
    volumes: list[str] = field(default_factory=list)
    stages: int = 0

    def here(self, text: str) -> str:
        """Return ``text`` with the image's paths below ``root``."""
        places = "|".join(map(re.escape, PLACES))
        return re.sub(rf"(?<![\w/.-])({places})(?![\w-])", rf"{self.root}\1", text)

    def environment(self) -> dict[str, str]:
        path = f"{self.programs}:{os.environ['PATH']}"
        variables = {name: self.here(value) for name, value in self.variables.items()}
        if "PATH" in variables:
            path = variables["PATH"].replace("$PATH", path)
        return {**os.environ, **variables, "PATH": path}

    def cwd(self) -> Path:
        path = self.root / self.directory.lstrip("/")
        path.mkdir(parents=True, exist_ok=True)
        return path

    def build(self) -> None:
        """Carry out every instruction."""
        for name, text in instructions(self.context / "deploy" / "Dockerfile"):
            getattr(self, f"_do_{name.lower()}")(text)

    def _do_arg(self, text: str) -> None:
        name, _, value = text.partition("=")
        self.variables[name] = value.strip('"')

    def _do_from(self, text: str) -> None:
        self.stages += 1
        self.directory, self.variables = "/", {}
        # what a stage has outside of what is copied from it is not in the next one
        shutil.rmtree(self.root / "src", ignore_errors=True)

    def _do_workdir(self, text: str) -> None:
        self.directory = text

    def _do_run(self, text: str) -> None:
        result = subprocess.run(
            ["/bin/sh", "-ec", self.here(text)],
            cwd=self.cwd(),
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=STEP_S,
        )
        assert result.returncode == 0, f"RUN {text}\n{result.stdout}\n{result.stderr}"

    def _do_copy(self, text: str) -> None:
        *sources, target = text.split()
        if sources[0].startswith("--from="):
            assert sources[1:] == [target], "only the same path can be copied here"
            return
        for source in sources:
            path, to = self.context / source, self.cwd() / target
            if path.is_dir():
                # as Dockerfile.dockerignore has it
                left_out = shutil.ignore_patterns("__pycache__", "*.egg-info", "build", "tests")
                shutil.copytree(path, to, ignore=left_out)
            else:
                shutil.copy(path, to)

    def _do_env(self, text: str) -> None:
        self.variables.update(part.split("=", 1) for part in shlex.split(text))

    def _do_volume(self, text: str) -> None:
        self.volumes.append(text)

    def _do_user(self, text: str) -> None:
        self.user = text

    def _do_expose(self, text: str) -> None:
        assert text == self.variables["CAESAR_SERVER_PORT"]

    def _do_stopsignal(self, text: str) -> None:
        assert text == "SIGTERM"

    def _do_healthcheck(self, text: str) -> None:
        self.commands["HEALTHCHECK"] = json.loads(text.partition("CMD ")[2])

    def _do_entrypoint(self, text: str) -> None:
        self.commands["ENTRYPOINT"] = json.loads(text)

    def _do_cmd(self, text: str) -> None:
        self.commands["CMD"] = json.loads(text)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command as a container would."""
        return subprocess.run(
            command,
            cwd=self.cwd(),
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=STEP_S,
        )

    def files(self) -> dict[Path, int]:
        """Return when each file outside of volumes was last changed."""
        volumes = tuple(self.here(volume) for volume in self.volumes)
        files = [path for path in self.root.rglob("*") if path.is_file()]
        outside = [path for path in files if not str(path).startswith(volumes)]
        return {path: path.stat().st_mtime_ns for path in outside}


@pytest.fixture(scope="module")
def image(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Image:
    """The image, built; `python` is the one that runs the tests."""
    folder = tmp_path_factory.mktemp("docker")
    programs = folder / "programs"
    programs.mkdir()
    (programs / "python").symlink_to(sys.executable)
    for name in ("useradd", "chown"):
        (programs / name).write_text(f'#!/bin/sh\necho {name} "$@" >>{folder}/noted\n')
        (programs / name).chmod(0o755)
    image = Image(root, folder / "image", programs)
    image.build()
    return image


def test_it_is_built_in_two_stages_for_a_user_without_rights(image: Image) -> None:
    assert image.stages == 2
    assert not (image.root / "src").exists()
    assert image.user.isdigit()
    assert image.user != "0"
    noted = (image.programs.parent / "noted").read_text()
    assert f"--uid {image.user}" in noted
    (volume,) = image.volumes
    assert f"chown {image.user} {image.here(volume)}" in noted
    assert (image.root / volume.lstrip("/")).stat().st_mode & 0o777 == 0o700


def test_a_container_without_a_key_does_not_listen_to_the_network(image: Image) -> None:
    result = image.run(*image.commands["ENTRYPOINT"], *image.commands["CMD"])
    assert result.returncode != 0
    assert "--insecure" in result.stderr
    assert "Traceback" not in result.stderr


def test_the_container_runs_and_its_health_is_told_and_it_writes_to_its_volume_only(
    image: Image, serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    entrypoint, command = image.commands["ENTRYPOINT"], image.commands["CMD"]
    monkeypatch.setitem(image.variables, "CAESAR_SERVER_HOST", "127.0.0.1")
    created = image.run(*entrypoint, "keys", "create", "--account", "me")
    assert created.returncode == 0, created.stderr
    (volume,) = image.volumes
    assert (image.root / volume.lstrip("/") / "keys.json").is_file()
    before = image.files()

    def start(port: int) -> list[str]:
        monkeypatch.setitem(image.variables, "CAESAR_SERVER_PORT", str(port))
        return [*entrypoint, *command, "--port", str(port)]

    with serve(start, image.cwd(), image.environment()):
        assert image.run(*image.commands["HEALTHCHECK"]).returncode == 0
        # Docker gives a container the proxy of its user, which knows nothing of the container
        monkeypatch.setitem(image.variables, "http_proxy", "http://127.0.0.1:9")
        assert image.run(*image.commands["HEALTHCHECK"]).returncode == 0
    assert image.run(*image.commands["HEALTHCHECK"]).returncode != 0
    logs = {path for path in image.files() if path.name.startswith("server-")}
    assert {path: at for path, at in image.files().items() if path not in logs} == before
