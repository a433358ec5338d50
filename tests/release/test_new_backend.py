"""What ``caesar-server new-backend`` writes, installed beside the wheels and nothing else."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_it_passes_the_check(environment: Any, linked_environment: Any, tmp_path: Path) -> None:
    (wheels,) = environment.folder.glob("lib/python*/site-packages")
    # an environment of its own: that of the wheels is for all tests
    own = linked_environment.make(tmp_path / "own", wheels)
    own.shell("caesar-server new-backend weather_report", tmp_path)
    # Only what brings pip there is not what an author would type.
    pip = f"{sys.executable} -m pip --python {own.folder / 'bin' / 'python'}"
    own.shell(f"{pip} install --quiet -e ./weather_report", tmp_path)
    printed = own.shell("caesar-server check weather_report", tmp_path)
    assert printed.splitlines()[0] == "caesar_backend_weather_report.backend:WeatherReportBackend"
    assert printed.splitlines()[-1].endswith(" 0 failed")
    listed = own.shell("caesar-server backends weather_report", tmp_path)
    assert "weather_report  loaded" in listed
