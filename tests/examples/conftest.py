"""The examples installed as their readers would, once for all tests of this folder."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def examples(make_environment, root: Path, tmp_path_factory):
    """An environment with both example distributions."""
    environment = make_environment()
    # a copy: building leaves files beside the sources
    copy = tmp_path_factory.mktemp("copy")
    left = shutil.ignore_patterns("__pycache__")
    shutil.copytree(root / "examples", copy / "examples", ignore=left)
    environment.shell(
        "pip install --quiet --disable-pip-version-check "
        "./examples/hello_backend ./examples/research_backend",
        copy,
    )
    return environment
