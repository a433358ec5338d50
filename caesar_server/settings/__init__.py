"""The server's settings: one definition each, read from flags, environment and a file.

``definition`` says what there is, ``sources`` reads the values, ``reference`` renders the manual's
page.  Nothing else in the package reads the environment.
"""

from caesar_server.settings.checks import (
    check_allowed_hosts,
    check_exposure,
    check_host,
    check_origins,
    is_loopback,
)
from caesar_server.settings.definition import ModelRoute, Settings
from caesar_server.settings.flags import (
    flag_name,
    has_flag,
    is_of_mock,
    is_table,
    setting_fields,
)
from caesar_server.settings.reference import settings_reference
from caesar_server.settings.sources import (
    CONFIG_VARIABLE,
    DEFAULT_FILE,
    LoadedSettings,
    environment_name,
    load_settings,
    passed_sockets,
    set_variable,
)
from caesar_server.settings.urls import has_password, without_password

__all__ = [
    "CONFIG_VARIABLE",
    "DEFAULT_FILE",
    "LoadedSettings",
    "ModelRoute",
    "Settings",
    "check_allowed_hosts",
    "check_exposure",
    "check_host",
    "check_origins",
    "environment_name",
    "flag_name",
    "has_flag",
    "has_password",
    "is_loopback",
    "is_of_mock",
    "is_table",
    "load_settings",
    "passed_sockets",
    "set_variable",
    "setting_fields",
    "settings_reference",
    "without_password",
]
