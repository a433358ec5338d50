"""The manual's page on clients: its versions are those that these tests run, its programs work."""

from __future__ import annotations

import json
import re
import subprocess
from importlib import metadata
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PAGE = ROOT / "docs" / "clients.rst"
ADDRESS = "http://127.0.0.1:8000"

_ROW = re.compile(
    r"^   \* - .+\n     - (?P<registry>PyPI|npm) ``(?P<name>[^`]+)``\n     - (?P<version>\S+)$",
    re.MULTILINE,
)


def rows() -> list[tuple[str, str, str]]:
    """Return registry, package and version of each row of the page's table."""
    return [tuple(row) for row in _ROW.findall(PAGE.read_text())]


def npm_versions() -> dict[str, str]:
    lock = json.loads((HERE / "node" / "package-lock.json").read_text())
    own = lock["packages"][""]["dependencies"]
    return {name: lock["packages"][f"node_modules/{name}"]["version"] for name in own}


def test_every_client_of_these_tests_is_in_the_table():
    named = {(registry, name) for registry, name, _ in rows()}
    assert named == {
        ("PyPI", "caesar-data"),
        ("PyPI", "openai"),
        ("PyPI", "langchain-openai"),
        ("PyPI", "llm"),
        *(("npm", name) for name in npm_versions()),
    }


@pytest.mark.parametrize(("registry", "name", "version"), rows())
def test_the_version_in_the_table_is_the_one_that_runs(registry, name, version):
    installed = npm_versions()[name] if registry == "npm" else metadata.version(name)
    assert version == ".".join(installed.split(".")[:2])


def test_the_lock_file_names_no_registry():
    assert '"resolved"' not in (HERE / "node" / "package-lock.json").read_text()


def test_the_installed_node_packages_are_those_of_the_lock_file(node):
    for name, version in npm_versions().items():
        package = HERE / "node" / "node_modules" / name / "package.json"
        assert json.loads(package.read_text())["version"] == version


def test_the_programs_of_the_page_for_node_work(node, server, code_blocks):
    blocks = [block for block in code_blocks(PAGE) if block.language == "javascript"]
    assert len(blocks) == 2
    for block in blocks:
        result = subprocess.run(
            [node, "--input-type=module"],
            input=block.code.replace(ADDRESS, server.url),
            cwd=HERE / "node",
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert result.returncode == 0, f"{block.where}: {result.stderr}"
        assert result.stdout == "Why is the sky blue?\n" * 2, block.where
