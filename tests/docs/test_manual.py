"""The manual is valid and names everything that there is."""

from __future__ import annotations

import inspect
import zlib
from pathlib import Path

import click
import pytest
from docutils.core import publish_doctree
from docutils.utils import Reporter

import caesar_server.contract
from caesar_server.cli import main
from caesar_server.settings import setting_fields

PAGES = ("README.rst", "CHANGES.rst", "CONTRIBUTING.rst")


@pytest.mark.parametrize("name", PAGES)
def test_page_is_plain_restructuredtext(root: Path, name: str) -> None:
    # Forges and package indexes render these pages with docutils alone, without Sphinx.
    source = (root / name).read_text()
    publish_doctree(source, settings_overrides={"halt_level": Reporter.INFO_LEVEL})


def test_every_setting_is_documented(manual: Path) -> None:
    page = (manual / "settings.html").read_text()
    missing = [name for name in setting_fields() if f"<h2>{name}<" not in page]
    assert missing == []


def command_names(name: str, command: click.Command) -> list[str]:
    below = command.commands.items() if isinstance(command, click.Group) else ()
    return [name, *(found for sub, item in below for found in command_names(f"{name} {sub}", item))]


def test_every_command_is_documented(manual: Path) -> None:
    page = (manual / "cli.html").read_text()
    names = command_names("caesar-server", main)
    assert len(names) > 1
    assert [name for name in names if f"<h2>{name}<" not in page] == []


def test_every_public_name_of_the_contract_is_documented(manual: Path) -> None:
    # Sphinx's inventory: four lines of text, then one packed line "NAME KIND ..." for each object.
    *_, packed = (manual / "objects.inv").read_bytes().split(b"\n", 4)
    objects = [line.split(" ")[0] for line in zlib.decompress(packed).decode().splitlines()]
    documented = {name.rpartition(".")[2] for name in objects if "contract" in name}
    names = set(caesar_server.contract.__all__)
    assert names - documented == set()


def test_every_public_class_of_the_contract_has_a_docstring() -> None:
    exported = [getattr(caesar_server.contract, name) for name in caesar_server.contract.__all__]
    own = [item for item in exported if inspect.isclass(item) or inspect.isfunction(item)]
    assert [item for item in own if not inspect.getdoc(item)] == []
