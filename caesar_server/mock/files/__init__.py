"""Fixture files: rules and defaults of the mock, in YAML or JSON."""

from caesar_server.mock.files.loading import Fixtures, load_fixtures
from caesar_server.mock.files.problems import FixturesError, Problem
from caesar_server.mock.files.reloading import Loaded, Reloader, load_into, manner_of

__all__ = [
    "Fixtures",
    "FixturesError",
    "Loaded",
    "Problem",
    "Reloader",
    "load_fixtures",
    "load_into",
    "manner_of",
]
