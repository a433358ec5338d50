"""The imports between packages point one way, and the check that says so can fail."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

LINT = (
    "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
)


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    """Check the ``caesar_server`` of ``folder``, which is first on the path, by its own rules."""
    return subprocess.run(
        [sys.executable, "-c", LINT], cwd=folder, capture_output=True, text=True, timeout=100
    )


def test_every_import_points_downwards(root: Path) -> None:
    result = lint_imports(root)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.fixture
def copy(root: Path, tmp_path: Path) -> Path:
    shutil.copytree(
        root / "caesar_server",
        tmp_path / "caesar_server",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    shutil.copy(root / ".importlinter", tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("module", "line", "broken"),
    [
        ("errors.py", "import caesar_server.settings", "Imports point downwards"),
        ("jobs/planted.py", "import caesar_server.web", "Imports point downwards"),
        ("registry_helper.py", "", "Imports point downwards"),
        ("store/planted.py", "import caesar_server.registry", "Imports point downwards"),
        ("jobs/planted.py", "import caesar_server.mock", "knows the mock"),
        ("contract/planted.py", "import flask", "HTTP stays in web and blueprints"),
        ("store/planted.py", "import marshmallow", "HTTP stays in web and blueprints"),
        ("blueprints/ops/planted.py", "import caesar_server.blueprints.compat", "Surfaces"),
    ],
)
def test_a_forbidden_import_is_found(copy: Path, module: str, line: str, broken: str) -> None:
    path = copy / "caesar_server" / module
    before = path.read_text() if path.exists() else ""
    path.write_text(f"{before}\n{line}\n")
    result = lint_imports(copy)
    assert result.returncode == 1, result.stdout + result.stderr
    kept_or_broken = [row for row in result.stdout.splitlines() if broken in row]
    assert any("BROKEN" in row for row in kept_or_broken), result.stdout
