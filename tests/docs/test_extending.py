"""The pages below ``docs/extending``, followed literally, each in an environment of its own."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from caesar_server.settings.plugin_defaults import ALLOWED
from caesar_server.testing.conformance import RULES

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "extending"
PAGES = sorted(FOLDER.glob("*.rst"))
#: Pages that install something, which have tests of their own.
INSTALLED = {"tutorial", "research"}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_tutorial_leads_to_a_tested_package(follow, make_environment, code_blocks) -> None:
    page = FOLDER / "tutorial.rst"
    commands = " ".join(block.code for block in code_blocks(page) if block.kind == "run")
    for step in ("check hello.py", "new-backend", "pip install", "check weather", "pytest"):
        assert step in commands
    assert follow(page, make_environment().variables()) >= 20


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_research_example_does_what_its_page_says(
    follow, make_environment, root: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    # a copy: building leaves files beside the sources
    copy = tmp_path_factory.mktemp("copy") / "research_backend"
    left = shutil.ignore_patterns("__pycache__")
    shutil.copytree(root / "examples" / "research_backend", copy, ignore=left)
    environment = make_environment()
    environment.shell("pip install --quiet --disable-pip-version-check .", copy)
    assert follow(FOLDER / "research.rst", environment.variables()) >= 7


@pytest.mark.parametrize(
    "page", [p for p in PAGES if p.stem not in INSTALLED], ids=lambda p: p.name
)
def test_examples_do_what_the_page_says(page: Path, follow) -> None:
    follow(page)


def test_every_block_takes_part(code_blocks) -> None:
    for page in PAGES:
        for block in code_blocks(page):
            assert block.kind, f"{block.where} is not tested"


def test_every_mistake_shows_its_message(code_blocks) -> None:
    page = FOLDER / "mistakes.rst"
    titles = re.findall(r"^(.+)\n-+\n", page.read_text(), re.MULTILINE)
    shown = [block for block in code_blocks(page) if block.kind == "output"]
    assert len(shown) == len(titles) >= 10
    for block in shown:
        assert re.search(r"^fail  |reason: |^Error: ", block.code, re.MULTILINE), block.where


def test_every_rule_is_in_the_table(manual: Path) -> None:
    page = (manual / "extending" / "rules.html").read_text()
    assert [rule.id for rule in RULES if f">{rule.id}<" not in page] == []


def test_what_a_plugin_may_set_is_told() -> None:
    text = (FOLDER / "commands_and_defaults.rst").read_text()
    assert [name for name in ALLOWED if f"``{name}``" not in text] == []


def test_every_page_is_listed() -> None:
    index = (FOLDER / "index.rst").read_text()
    listed = set(re.findall(r"^   (\w+)$", index, re.MULTILINE))
    assert {page.stem for page in PAGES} - listed == {"index"}
