"""``caesar-server backends`` explains what pip installed, as a program of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HEAD = "from caesar_server.contract import *\nfrom dataclasses import dataclass\n"
RUN = "\n    def run(self, request, context): yield Completed()\n"
SETTINGS = """
default_backend = "good"
allowed_backends = ["good", "lost", "new", "same", "shut", "picky"]

[backends.picky]
sise = 3
"""


@pytest.fixture
def program(site, good_module, tmp_path):
    """Install one distribution of each kind and return a function that runs the command."""
    site.add("good-one", {"good": "good_module:GoodBackend"}, {"good_module": good_module})
    site.add("lost-one", {"lost": "lost_module:Lost"}, {"lost_module": "import torch_of_tomorrow"})
    new = f"{HEAD}class New(Backend):\n    contract_version = 99{RUN}"
    site.add("new-one", {"new": "new_module:New"}, {"new_module": new}, version="9.0")
    site.add("same-b", {"same": "good_module:GoodBackend"}, version="2.0")
    site.add("same-a", {"same": "good_module:GoodBackend"}, version="1.5")
    shut = f"{HEAD}class Shut(Backend):\n    def open(self): raise OSError('no such disk'){RUN}"
    site.add("shut-one", {"shut": "shut_module:Shut"}, {"shut_module": shut})
    site.add("barred", {"barred": "barred_module:Bar"}, {"barred_module": "raise SystemExit(7)"})
    picky = (
        f"{HEAD}@dataclass(frozen=True)\nclass PickyOptions:\n"
        "    size: int = option(1, help='How large.', minimum=1, maximum=2)\n"
        f"class Picky(Backend):\n    options_schema = PickyOptions{RUN}"
    )
    site.add("picky-one", {"picky": "picky_module:Picky"}, {"picky_module": picky})
    (tmp_path / "caesar-server.toml").write_text(SETTINGS)
    root = Path(__file__).resolve().parents[2]

    def run(*arguments: str) -> str:
        result = subprocess.run(
            [sys.executable, "-m", "caesar_server", "backends", *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": f"{site.path}:{root}"},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert result.returncode == 0, result.stderr
        assert "Traceback" not in result.stderr
        return result.stdout

    return run


EXPLAINED = [
    ("good", "good-one", "1.0", "good_module:GoodBackend", "loaded", None, None),
    ("lost", "lost-one", "1.0", "lost_module:Lost", "failed", "torch_of_tomorrow", "pip install"),
    ("new", "new-one", "9.0", "new_module:New", "failed", "contract version 99", "--upgrade"),
    ("same", "same-a", "1.5", "good_module:GoodBackend", "loaded", None, None),
    (
        "same",
        "same-b",
        "2.0",
        "good_module:GoodBackend",
        "shadowed",
        "same-a 1.5",
        "uninstall same-b",
    ),
    ("shut", "shut-one", "1.0", "shut_module:Shut", "failed", "open() raised OSError", "--verbose"),
    ("barred", "barred", "1.0", "barred_module:Bar", "disabled", "allowed_backends", None),
    (
        "picky",
        "picky-one",
        "1.0",
        "picky_module:Picky",
        "failed",
        "did you mean backends.picky.size",
        "",
    ),
]


def test_each_is_explained_in_json(program) -> None:
    found = {
        (one["name"], one["distribution"]): one for one in json.loads(program("--json"))["backends"]
    }
    for name, distribution, version, entry_point, state, reason, hint in EXPLAINED:
        report = found[name, distribution]
        assert (report["version"], report["entry_point"]) == (version, entry_point)
        assert report["state"] == state
        if reason is None:
            assert report["reason"] is None
        else:
            assert reason in report["reason"]
            assert (hint or "") in (report["hint"] or "")
    assert found["shut", "shut-one"]["detail"] == "no such disk"


def test_each_is_explained_in_text(program) -> None:
    text = program()
    for name, distribution, version, entry_point, state, reason, hint in EXPLAINED:
        (line,) = (
            line
            for line in text.splitlines()
            if line.split() == [name, state, distribution, version, entry_point]
        )
        if reason is not None:
            entry = text.split(line, 1)[1].split("\n\n")[0].split("\n    hint")[0]
            assert reason in entry
            assert (hint or "") in text
    assert "default backend: good" in text
    assert "warning: two backends are called same: that of same-a 1.5 is used" in text


def test_one_is_explained_with_its_options(program) -> None:
    body = json.loads(program("picky", "--json"))
    assert [report["name"] for report in body["backends"]] == ["picky"]
    assert [(option["name"], option["range"]) for option in body["options"]] == [("size", "1 to 2")]
    assert "disabled" in program("barred")
