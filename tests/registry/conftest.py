"""Distributions that are made for a test: what pip would have installed."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from caesar_server.contract import Backend, Completed, ContentDelta
from caesar_server.registry import ENTRY_POINT_GROUP, Candidate, discover

#: A module with a backend that works.
GOOD = """
from caesar_server.contract import *

class GoodBackend(Backend):
    def run(self, request, context):
        yield ContentDelta("good")
        yield ChoiceFinished()
        yield Completed()
"""


@dataclass(frozen=True)
class Site:
    """A folder on the import path with fabricated distributions."""

    path: Path

    def add(
        self,
        distribution: str,
        entry_points: Mapping[str, str],
        modules: Mapping[str, str] | None = None,
        *,
        version: str = "1.0",
    ) -> None:
        """Install a distribution.

        :param entry_points: backend name -> ``module:Class``.
        :param modules: module name -> source.
        """
        lines = [f"[{ENTRY_POINT_GROUP}]", *(f"{k} = {v}" for k, v in entry_points.items())]
        self.add_raw(distribution, "\n".join(lines), version=version)
        for name, source in (modules or {}).items():
            (self.path / f"{name}.py").write_text(source)

    def add_raw(self, distribution: str, entry_points_txt: str, *, version: str = "1.0") -> None:
        """Install a distribution with this ``entry_points.txt`` and no module."""
        info = self.path / f"{distribution.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n"
        )
        (info / "entry_points.txt").write_text(entry_points_txt)

    def candidates(self) -> list[Candidate]:
        """Return what ``discover`` finds of these distributions, and of no others."""
        own = {path.name.partition("-")[0] for path in self.path.glob("*.dist-info")}
        return [
            candidate
            for candidate in discover()
            if (candidate.distribution or "").replace("-", "_") in own
        ]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A new folder at the front of the import path; its modules are forgotten afterwards."""
    path = tmp_path / "site"
    path.mkdir()
    monkeypatch.syspath_prepend(path)
    yield Site(path)
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(str(path)):
            del sys.modules[name]
    importlib.invalidate_caches()


class EventlessBackend(Backend):
    """Answers with one word; the base of backends whose life matters, not their text."""

    def run(self, request, context):
        yield ContentDelta("word")
        yield Completed()


@pytest.fixture
def backend_class() -> Callable[..., type[Backend]]:
    """Make a backend class from methods: ``backend_class(open=lambda self: ...)``."""

    def make(**members: object) -> type[Backend]:
        return type("MadeBackend", (EventlessBackend,), members)

    return make


@pytest.fixture
def good_module() -> str:
    """The source of a module whose ``GoodBackend`` works."""
    return GOOD
