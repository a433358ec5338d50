"""Fixture files to read, good ones and broken ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from caesar_server.mock.files import FixturesError, load_fixtures

WriteFile = Callable[[str, str], Path]
ProblemsOf = Callable[[str, str], list[str]]


@pytest.fixture
def write_file(tmp_path: Path) -> WriteFile:
    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.fixture
def problems_of(write_file: WriteFile) -> ProblemsOf:
    """Return what the loader says of a file, problem by problem; it must have some."""

    def read(name: str, text: str) -> list[str]:
        with pytest.raises(FixturesError) as caught:
            load_fixtures(write_file(name, text))
        assert all(problem.file for problem in caught.value.problems)
        return str(caught.value).split("\n")

    return read
