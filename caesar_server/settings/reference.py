"""The manual's page of settings, rendered from their definition."""

from __future__ import annotations

from collections.abc import Iterator

from caesar_server.contract.options import OptionField, option_fields
from caesar_server.settings.definition import ModelRoute
from caesar_server.settings.flags import (
    flag_name,
    has_flag,
    is_of_mock,
    is_table,
    setting_fields,
)
from caesar_server.settings.sources import CONFIG_VARIABLE, DEFAULT_FILE, environment_name

_INTRODUCTION = f"""\
Settings
========

.. This page is generated from the definition of the settings.

A value on the command line wins over one in the environment, that one over the settings file, and
the file over the default.  ``caesar-server settings`` prints each value and where it came from.
Unknown names are refused.

The settings file is ``{DEFAULT_FILE}`` in the current directory, unless ``--config FILE`` or
``{CONFIG_VARIABLE}`` names another one.  It is a `TOML <https://toml.io>`_ file:

.. code-block:: toml

   port = 8080
   default_backend = "echo"

   [models."gpt-*"]
   backend = "mock"

   [backends.mock]
   fixtures = "answers.json"

An empty environment variable counts as not set, and a line break at the end of one, as that of a
Secret made from a file, as absent; the items of a list are separated by commas.  A
double underscore steps into a table: ``CAESAR_SERVER_BACKENDS__MOCK__FIXTURES`` is ``fixtures`` in
``[backends.mock]``.  A path may begin with ``~``, the home of the user who runs the server.  What
Kubernetes sets where a service is called ``caesar-server``, such as
``CAESAR_SERVER_PORT=tcp://10.0.0.1:8000``, is passed over.

``caesar-server backends NAME`` prints the options of a backend, which stand in ``[backends.NAME]``.
"""


def settings_reference() -> str:
    """Return the page that describes every setting, as reStructuredText."""
    lines = [_INTRODUCTION]
    for field in setting_fields().values():
        lines += _entry(field.name, field)
        if field.name == "models":
            for part in option_fields(ModelRoute):
                lines += _entry(f"models.NAME.{part.name}", part)
    return "\n".join(lines)


def _entry(title: str, field: OptionField) -> Iterator[str]:
    anchor = title.lower().replace("_", "-").replace(".", "-")
    yield f".. _setting-{anchor}:"
    yield ""
    yield title
    yield "-" * len(title)
    yield ""
    yield field.info.help
    yield ""
    yield f":Type: {_kind(field)}"
    yield f":Default: {_default(field)}"
    if field.info.example is not None:
        yield f":Example: ``{field.info.example}``"
    if title == field.name and not is_table(field):
        yield f":Environment: ``{environment_name(field.name)}``"
    if title == field.name and has_flag(field):
        of_mock = " of ``caesar-server mock``" if is_of_mock(field.name) else ""
        yield f":Command line: ``{flag_name(field.name)}``{of_mock}"
    yield ""


def _kind(field: OptionField) -> str:
    unit = f"in {field.info.unit}" if field.info.unit else ""
    return ", ".join(filter(None, (field.type_name, field.range, unit)))


def _default(field: OptionField) -> str:
    if field.required:
        return "none; must be set"
    if field.default is None:
        return "unset"
    if isinstance(field.default, bool):
        return f"``{str(field.default).lower()}``"
    if isinstance(field.default, float):
        return f"``{field.default:g}``"
    return f"``{field.default}``" if isinstance(field.default, (str, int)) else "empty"
