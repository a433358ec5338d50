"""What follows from a setting's definition for the command line."""

from __future__ import annotations

from collections.abc import Mapping

from caesar_server.contract.options import OptionField, option_fields
from caesar_server.settings.definition import Settings

_MOCK_PREFIX = "mock_"


def setting_fields() -> Mapping[str, OptionField]:
    """Return the definition of each setting by name, in the order of their definition."""
    return {field.name: field for field in option_fields(Settings)}


def is_table(field: OptionField) -> bool:
    """Return whether a setting is a table: set in the file, without a flag of its own."""
    return field.type_name == "table"


def has_flag(field: OptionField) -> bool:
    """Return whether a setting can be given on the command line.

    A secret cannot: every user of a machine sees the command lines of its programs.
    """
    return not is_table(field) and not field.info.secret


def flag_name(setting: str) -> str:
    """Return the command line's flag of a setting that has one.

    >>> flag_name("max_body_bytes")
    '--max-body-bytes'

    What is of the mock alone is a flag of its command, which needs not say so again.

    >>> flag_name("mock_strict")
    '--strict'
    """
    if setting == "extra_backends":
        return "--backend"
    return "--" + setting.removeprefix(_MOCK_PREFIX).replace("_", "-")


def is_of_mock(setting: str) -> bool:
    """Return whether a setting says something to ``caesar-server mock`` alone."""
    return setting.startswith(_MOCK_PREFIX)
