"""The dashboard asks for numbers that there are, and for all of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from caesar_server.web.observing.metrics import FAMILIES, exported_names

#: What Prometheus adds to every series, and what a histogram's buckets have.
ADDED_LABELS = {"instance", "job", "le"}


@pytest.fixture
def dashboard(root: Path) -> Any:
    return json.loads((root / "deploy" / "grafana-dashboard.json").read_text())


def expressions(dashboard: Any) -> Iterator[str]:
    for panel in dashboard["panels"]:
        yield from (target["expr"] for target in panel["targets"])


def test_every_name_in_it_is_exported(dashboard: Any) -> None:
    text = json.dumps(dashboard)
    assert set(re.findall(r"\bcaesar_[a-z_]+", text)) <= exported_names()


def test_every_family_is_shown(dashboard: Any) -> None:
    text = "\n".join(expressions(dashboard))
    assert [family.name for family in FAMILIES if family.name not in text] == []


def test_every_label_in_it_is_one_of_the_series(dashboard: Any) -> None:
    for expression in expressions(dashboard):
        (name,) = set(re.findall(r"\bcaesar_[a-z_]+", expression))
        (family,) = [one for one in FAMILIES if name.startswith(one.name)]
        grouped = re.findall(r"by \(([^)]*)\)", expression)
        used = {label for group in grouped for label in re.split(r",\s*", group)}
        used |= set(re.findall(r"[{,] ?(\w+)[=!]", expression))
        assert used <= {*family.labels, *ADDED_LABELS}, expression


def test_legends_name_labels_that_are_left(dashboard: Any) -> None:
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            grouped = ", ".join(re.findall(r"by \(([^)]*)\)", target["expr"]))
            wanted = re.findall(r"{{(\w+)}}", target["legendFormat"])
            assert set(wanted) <= set(re.split(r",\s*", grouped)), panel["title"]


def test_panels_have_ids_of_their_own_and_do_not_overlap(dashboard: Any) -> None:
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24
