"""The manual's and the README's examples are valid, and every option is in the manual."""

from __future__ import annotations

import re
import textwrap
import tomllib
from pathlib import Path

import pytest

from caesar_backend_upstream import UpstreamBackend, UpstreamOptions
from caesar_backend_upstream.options import check_servers
from caesar_server.contract.options import parse_options

ROOT = Path(__file__).resolve().parents[3]
PAGES = (ROOT / "docs" / "upstream.rst", ROOT / "backends" / "upstream" / "README.rst")


def examples() -> list[str]:
    found = []
    for page in PAGES:
        blocks = re.findall(r"(?:toml|``::|MODEL``::)\n\n((?: +\S.*\n|\n)+)", page.read_text())
        found += [textwrap.dedent(block) for block in blocks if "[backends.upstream" in block]
    return found


def test_there_are_examples() -> None:
    assert len(examples()) >= 7


@pytest.mark.parametrize("example", examples())
def test_an_example_is_valid(example: str) -> None:
    values = tomllib.loads(example)["backends"]["upstream"]
    options = parse_options(UpstreamOptions, values)
    check_servers(options.servers)
    assert UpstreamBackend(options).options == options
