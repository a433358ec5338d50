"""What the sources must look like, read without importing them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

MAX_LINES = 400
#: Besides ``__init__.py``.
MAX_MODULES = 10
VAGUE_NAMES = {"utils", "util", "helpers", "common", "manager", "misc"}


def sources(folder: Path) -> list[Path]:
    found = sorted(folder.rglob("*.py"))
    assert found, f"no Python file below {folder}"
    return found


def imported(path: Path) -> Iterator[str]:
    """Yield the absolute names that a file imports, wherever in it the import stands."""
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            # A relative import stays in its own package, which is all that matters here.
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def reads_environment(path: Path) -> bool:
    """Whether a file names ``os.environ`` or ``os.getenv``, however imported."""
    names = {"environ", "environb", "getenv", "getenvb", "putenv"}
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        match node:
            case ast.Attribute(value=ast.Name(id="os"), attr=attr) if attr in names:
                return True
            case ast.ImportFrom(module="os", names=found) if names & {name.name for name in found}:
                return True
    return False


@pytest.fixture(scope="session")
def server(root: Path) -> Path:
    return root / "caesar_server"


def plugin_sources(root: Path) -> Iterator[tuple[str, Path]]:
    for init in sorted(root.glob("backends/*/caesar_backend_*/__init__.py")):
        yield from ((init.parent.name, path) for path in sources(init.parent))


def test_only_settings_reads_the_environment(server: Path) -> None:
    readers = [path for path in sources(server) if reads_environment(path)]
    assert len(readers) == 1
    assert readers[0].relative_to(server).with_suffix("").parts[0] == "settings"


@pytest.mark.parametrize(
    "code",
    [
        "import os\nos.environ['X']",
        "import os\ndef f():\n    return os.getenv('X')",
        "from os import environ as e",
        "from os import path, getenv",
    ],
)
def test_reading_the_environment_is_noticed(tmp_path: Path, code: str) -> None:
    (tmp_path / "module.py").write_text(code)
    assert reads_environment(tmp_path / "module.py")


def test_wsgi_environ_is_not_the_environment(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text("import os\nrequest.environ['gunicorn.socket']")
    assert not reads_environment(tmp_path / "module.py")


def test_modules_stay_short(server: Path) -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in sources(server)}
    assert {path: n for path, n in lengths.items() if n > MAX_LINES} == {}


def test_folders_stay_small(server: Path) -> None:
    folders = {path.parent for path in sources(server)}
    sizes = {folder: len({*folder.glob("*.py")} - {folder / "__init__.py"}) for folder in folders}
    assert {folder: n for folder, n in sizes.items() if n > MAX_MODULES} == {}


def test_every_folder_of_modules_is_a_package(server: Path) -> None:
    # `find:` leaves a folder without __init__.py out of wheels, while an editable install has it.
    folders = {path.parent for path in sources(server)}
    assert [folder for folder in folders if not (folder / "__init__.py").exists()] == []


def test_names_say_what_is_inside(server: Path) -> None:
    assert [path for path in sources(server) if path.stem in VAGUE_NAMES] == []


def test_the_package_root_imports_nothing(server: Path) -> None:
    assert list(imported(server / "__init__.py")) == []


def test_the_server_imports_no_plugin(server: Path) -> None:
    found = {
        (path, name)
        for path in sources(server)
        for name in imported(path)
        if name.startswith("caesar_backend_")
    }
    assert found == set()


def test_plugins_import_nothing_of_the_server_but_the_contract(root: Path) -> None:
    checked = list(plugin_sources(root))
    assert checked, "no plugin found"
    found = {
        (path, name)
        for own, path in checked
        for name in imported(path)
        if name.startswith(("caesar_server", "caesar_backend_"))
        and not f"{name}.".startswith(("caesar_server.contract.", f"{own}."))
    }
    assert found == set()


def test_there_is_one_setup_py(root: Path) -> None:
    # A second one makes mypy stop with "source file found twice".
    assert list(root.glob("backends/*/setup.py")) == []
