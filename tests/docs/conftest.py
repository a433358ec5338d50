from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def manual(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The manual as HTML, built with every warning an error."""
    folder = tmp_path_factory.mktemp("manual")
    strict = ["--fail-on-warning", "--keep-going", "--quiet"]
    result = subprocess.run(
        [sys.executable, "-m", "sphinx", *strict, "-d", folder / "trees", "docs", folder / "html"],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert result.returncode == 0, result.stderr
    return folder / "html"
