"""Reading the recorded cases of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that asks for ``case`` once for each recorded case."""
    if "case" in metafunc.fixturenames:
        cases = sorted(HERE.glob("*.events.json"))
        metafunc.parametrize("case", cases, ids=[case.name.split(".")[0] for case in cases])
