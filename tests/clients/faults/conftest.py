"""The modules of this folder, which a command uses as well as the tests."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def fault_page() -> Iterator[ModuleType]:
    """Return the module that writes the page."""
    sys.path.insert(0, str(HERE))
    try:
        yield importlib.import_module("fault_page")
    finally:
        sys.path.remove(str(HERE))


@pytest.fixture(scope="session")
def fault_clients(fault_page: ModuleType) -> ModuleType:
    """Return the module that asks the clients."""
    return importlib.import_module("fault_clients")
