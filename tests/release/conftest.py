from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: How long a build or an install may take, in seconds; both fetch packages.
PATIENCE_S = 550


def run(*command: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
    """Run ``command`` and return what it printed; fail with all of it."""
    result = subprocess.run(
        command, cwd=cwd, env=env, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"
    return result.stdout


def projects() -> dict[str, Path]:
    """Return the folder of each distribution by its file name's stem: the server, then backends."""
    found = {"caesar_server": ROOT}
    for config in sorted(ROOT.glob("backends/*/setup.cfg")):
        found[f"caesar_backend_{config.parent.name}"] = config.parent
    return found


@dataclass(frozen=True)
class Distribution:
    """One distribution, built: its source folder and its two files."""

    name: str
    source: Path
    wheel: Path
    sdist: Path

    @classmethod
    def find(cls, name: str, source: Path, folder: Path) -> Distribution:
        (wheel,) = folder.glob(f"{name}-*.whl")
        (sdist,) = folder.glob(f"{name}-*.tar.gz")
        return cls(name, source, wheel, sdist)

    def wheel_names(self) -> set[str]:
        with zipfile.ZipFile(self.wheel) as archive:
            return set(archive.namelist())

    def metadata(self) -> Message:
        """Return the wheel's ``METADATA``."""
        (name,) = (n for n in self.wheel_names() if n.endswith(".dist-info/METADATA"))
        with zipfile.ZipFile(self.wheel) as archive:
            return message_from_bytes(archive.read(name))

    def sdist_names(self) -> set[str]:
        """Return the names in the sdist without its top folder."""
        with tarfile.open(self.sdist) as archive:
            return {name.partition("/")[2] for name in archive.getnames()}


MADE_BY_TOOLS = (
    ".git",
    ".venv",
    ".wheels",
    "*.egg-info",
    "build",
    "dist",
    "node_modules",
    ".*_cache",
    ".hypothesis",
    "__pycache__",
    "_build",
    "_generated",
)


@pytest.fixture(scope="session")
def copied() -> Callable[[Path], Path]:
    """Copy the sources, and nothing that tools made of them, to a new folder; gives it back."""

    def copy(folder: Path) -> Path:
        shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(*MADE_BY_TOOLS))
        return folder

    return copy


@pytest.fixture(scope="session")
def distributions(
    request: pytest.FixtureRequest,
    once: Callable[..., Path],
    copied: Callable[[Path], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Distribution]:
    """The distributions of this repository: built now, or those of ``--dist-dir``."""

    def build(folder: Path) -> None:
        # of a copy: a build puts files beside the sources, which other tests look at meanwhile
        sources = copied(tmp_path_factory.mktemp("sources") / "copy")
        for source in projects().values():
            place = sources / source.relative_to(ROOT)
            # `make wheels` tries what a build fetches; here that would be done for each anew
            build = (sys.executable, "-m", "build", "--no-isolation")
            run(*build, "--outdir", folder, place, cwd=sources)

    folder = request.config.getoption("--dist-dir") or once("dist", build)
    return {
        name: Distribution.find(name, source, folder.resolve())
        for name, source in projects().items()
    }


@dataclass(frozen=True)
class Environment:
    """A virtual environment with the distributions of this repository and nothing else of it."""

    folder: Path

    def run(self, program: str, *arguments: str) -> str:
        """Run a program of the environment, away from the sources."""
        return run(self.program(program), *arguments, cwd=self.folder, env=self.variables())

    def program(self, name: str) -> Path:
        return self.folder / "bin" / name

    def variables(self) -> dict[str, str]:
        return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


#: What it depends on is compiled for minutes; that it is missing must disturb nobody else.
WITHOUT_DEPENDENCIES = "caesar_backend_local_llm"


@pytest.fixture(scope="session")
def environment(distributions: dict[str, Distribution], once: Callable[..., Path]) -> Environment:
    """A fresh environment with the wheels of the server and of its backends."""

    def install(folder: Path) -> None:
        venv.create(folder, with_pip=False)
        wheels = {name: distribution.wheel for name, distribution in distributions.items()}
        alone = wheels.pop(WITHOUT_DEPENDENCIES)
        pip = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python"]
        run(*pip, "install", "--quiet", *wheels.values(), cwd=folder)
        run(*pip, "install", "--quiet", "--no-deps", alone, cwd=folder)

    return Environment(once("clean", install))
