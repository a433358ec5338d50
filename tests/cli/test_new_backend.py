"""``caesar-server new-backend``: what it writes works; what it refuses leaves no trace."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from caesar_server.cli.plugins import scaffold

ROOT = Path(__file__).resolve().parents[2]
LONGEST = "wonderful_weather_for_ducks1"


@pytest.fixture
def make(run, folder: Path):
    """Write a backend into the current folder and return its folder."""

    def make(name: str) -> Path:
        result = run("new-backend", name)
        assert result.exit_code == 0, result.output
        return folder / name

    return make


def tool(project: Path, *command: str) -> None:
    """Run a tool of this environment in a project, as its author would."""
    env = {**os.environ, "PYTHONPATH": str(project), "MYPYPATH": str(ROOT)}
    # pytest's plugins of others take several seconds to load
    env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=project,
        env=env,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["a", "weather_report", LONGEST])
def test_what_is_written_passes_ruff(make, name: str) -> None:
    assert len(LONGEST) == scaffold.LONGEST_NAME
    project = make(name)
    tool(project, "ruff", "check", "--no-cache", ".")
    tool(project, "ruff", "format", "--no-cache", "--check", ".")


@pytest.mark.slow
def test_what_is_written_passes_its_own_tests_and_mypy(make) -> None:
    project = make("weather_report")
    tool(project, "pytest", "-q", "-p", "no:cacheprovider")
    tool(project, "mypy", "--cache-dir", os.devnull)


def test_at_most_ten_files_are_written_and_listed(run, folder: Path) -> None:
    result = run("new-backend", "weather_report", "--dir", ".")
    written = {path for path in (folder / "weather_report").rglob("*") if path.is_file()}
    assert 1 < len(written) <= 10
    for path in written:
        assert f"wrote {path.relative_to(folder)}" in result.stdout.splitlines()
    for line in (
        "  pip install -e ./weather_report",
        "  caesar-server check weather_report",
        "  caesar-server serve --default-backend weather_report --reload",
    ):
        assert line in result.stdout.splitlines()


def test_it_can_be_written_elsewhere(run, folder: Path) -> None:
    (folder / "projects").mkdir()
    result = run("new-backend", "weather", "--dir", "projects")
    assert (folder / "projects" / "weather" / "setup.cfg").is_file()
    assert "  pip install -e ./projects/weather" in result.stdout.splitlines()


def test_no_file_names_another_project(make) -> None:
    for path in make("weather").rglob("*"):
        if path.is_file():
            assert "$" not in path.read_text()
            assert "echo" not in path.name


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("My-Bot", "use a-z and 0-9, a letter first, words joined by one underscore; 'my_bot'"),
        ("1st", "a letter first"),
        ("a__b", "'a_b' would do"),
        ("", "'' cannot be the name"),
        ("../up", "'up' would do"),
        ("schön", "cannot be the name"),
        (LONGEST + "2", f"too long: 29 characters of {scaffold.LONGEST_NAME}"),
        ("mock", "a backend called 'mock' is installed already, by caesar-server "),
    ],
)
def test_a_bad_or_taken_name_is_refused(run, folder: Path, name: str, words: str) -> None:
    before = sorted(folder.iterdir())
    result = run("new-backend", name)
    assert result.exit_code == 2
    assert words in " ".join(result.stderr.split())
    assert sorted(folder.iterdir()) == before


def test_a_name_whose_package_is_there_under_another_is_refused(
    run, folder: Path, monkeypatch
) -> None:
    monkeypatch.syspath_prepend(folder)
    (folder / "caesar_backend_lonely.py").touch()
    assert (
        "package called caesar_backend_lonely is installed" in run("new-backend", "lonely").stderr
    )
    info = folder / "caesar_backend_renamed-2.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: caesar-backend-renamed\nVersion: 2\n"
    )
    result = run("new-backend", "renamed")
    assert "caesar-backend-renamed 2 is installed already" in result.stderr


@pytest.mark.parametrize("kind", ["empty folder", "full folder", "file", "broken link"])
def test_what_exists_is_left_alone(run, folder: Path, kind: str) -> None:
    target = folder / "weather"
    if kind == "file":
        target.write_text("mine")
    elif kind == "broken link":
        target.symlink_to(folder / "nowhere")
    else:
        target.mkdir()
    if kind == "full folder":
        (target / "setup.cfg").write_text("mine")
    result = run("new-backend", "weather")
    assert result.exit_code == 1
    assert "weather exists already; take another name, or another place with --dir" in result.stderr
    if kind == "full folder":
        assert [path.name for path in target.iterdir()] == ["setup.cfg"]
        assert (target / "setup.cfg").read_text() == "mine"
    elif kind == "empty folder":
        assert list(target.iterdir()) == []
    elif kind == "file":
        assert target.read_text() == "mine"


def test_a_place_that_is_not_there_is_refused(run, folder: Path) -> None:
    result = run("new-backend", "weather", "--dir", "no/such/place")
    assert result.exit_code == 2
    assert "there is no folder no/such/place" in result.stderr
    assert not (folder / "no").exists()


def test_a_failure_half_way_leaves_nothing(folder: Path) -> None:
    files = {Path("a.txt"): "a", Path("a.txt/b.txt"): "a file cannot be a folder"}
    with pytest.raises(OSError, match=r"a\.txt"):
        scaffold.write(folder / "weather", files)
    assert not (folder / "weather").exists()
