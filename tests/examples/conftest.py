"""The examples installed as their readers would, once for all tests of this folder."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def examples(linked_environment, root: Path, once, tmp_path_factory):
    """An environment with both example distributions."""

    def fill(folder: Path) -> None:
        # a copy: building leaves files beside the sources
        copy = tmp_path_factory.mktemp("copy")
        left = shutil.ignore_patterns("__pycache__")
        shutil.copytree(root / "examples", copy / "examples", ignore=left)
        linked_environment.make(folder).shell(
            # tests/release tries that what a build needs is fetched
            "pip install --quiet --disable-pip-version-check --no-build-isolation "
            "./examples/hello_backend ./examples/research_backend",
            copy,
        )

    return linked_environment(once("examples", fill))
