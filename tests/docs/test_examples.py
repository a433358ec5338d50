"""The examples of README and manual, run as they stand against a server that they start.

A ``code-block`` takes part if it has a ``:class:``:

``run``
    a shell or Python program; 127.0.0.1:8000 is replaced by the server's address
``output``
    what the block before it prints; ids, times and ports may differ
``file``
    a file named by its ``:caption:``, for the blocks below it
``fails``
    the same, but it ends with an exit status other than 0
``serve``
    the command of another server, which the blocks below it talk to
"""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: All but those below ``docs/extending``, which need an environment of their own.
PAGES = [ROOT / "README.rst", *sorted(ROOT.glob("docs/*.rst"))]
PAGES += sorted(ROOT.glob("docs/testing/*.rst"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_do_what_the_page_says(page: Path, follow) -> None:
    follow(page)


def test_the_readme_has_examples_of_each_kind(code_blocks) -> None:
    kinds = [block.kind for block in code_blocks(ROOT / "README.rst")]
    assert kinds.count("run") >= 3
    assert kinds.count("output") >= 3
    assert kinds.count("install") == 1
