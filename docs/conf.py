"""Sphinx: the manual, with the pages that are generated from the code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.nodes import make_refnode

import caesar_server
from caesar_backend_local_llm import LocalLlmOptions, ModelOptions
from caesar_backend_upstream import ServerOptions, UpstreamOptions
from caesar_server.app import create_app
from caesar_server.cli import main
from caesar_server.contract.options import OptionField, option_fields
from caesar_server.mock.files.schema import definitions
from caesar_server.mock.scopes import Scopes
from caesar_server.settings import Settings, settings_reference
from caesar_server.testing.conformance import RULES
from caesar_server.web.error_reference import errors_reference

project = "caesar-server"
author = "the caesar-server authors"
copyright = author
release = version = caesar_server.__version__

extensions = ["sphinx.ext.autodoc"]
root_doc = "index"
exclude_patterns = ["_build", "_generated"]
nitpicky = True
nitpick_ignore_regex = [
    # Names of the standard library and of type hints alone; no inventory is fetched for them.
    (
        "py:.*",
        r"(abc|collections|contextlib|http|logging|pathlib|random|re|threading|types|typing)\..*"
        r"|tuple\[.*|.*\.T|WSGIApplication",
    ),
    # Internal classes that helpers for tests hand out; they are documented by the contract's own.
    ("py:class", r"caesar_server\.jobs\..*"),
    ("py:attr", "stopped"),
]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True}
autodoc_preserve_defaults = True
maximum_signature_line_length = 90

html_theme = "alabaster"
html_theme_options = {"description": "A self-hosted server for the Caesar research API"}
html_show_sourcelink = False


def commands(name: str, command: click.Command) -> list[tuple[str, click.Command]]:
    """Return ``command`` and all its subcommands with their full names."""
    found = [(name, command)]
    if isinstance(command, click.Group):
        for sub, subcommand in sorted(command.commands.items()):
            found += commands(f"{name} {sub}", subcommand)
    return found


def cli_reference() -> str:
    """Return a section for each command: what its ``--help`` says."""
    sections = []
    for name, command in commands("caesar-server", main):
        with click.Context(command, info_name=name, max_content_width=90) as context:
            text = command.get_help(context)
        indented = "\n".join(f"   {line}".rstrip() for line in text.splitlines())
        sections.append(f"{name}\n{'-' * len(name)}\n\n.. code-block:: text\n\n{indented}\n")
    return "\n".join(sections)


def rules_reference() -> str:
    """Return a table of the rules of the conformance suite."""
    rows = [("rule", "what must hold", "why")]
    rows += [(f"``{rule.id}``", _plain(rule.sentence), _plain(rule.reason)) for rule in RULES]
    lines = [".. list-table::", "   :header-rows: 1", "   :widths: 22 43 35", ""]
    for first, *others in rows:
        lines += [f"   * - {first}", *(f"     - {text}" for text in others)]
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    """Return a sentence in which nothing is taken for markup."""
    return text.replace("*", "\\*").replace("[n]", "``[n]``")


def options_reference(schema: type, *, beyond: type | None = None) -> str:
    """Return a table of a backend's options; without those that ``beyond`` has, too."""
    rows = [("option", "value", "default", "what it does")]
    known = () if beyond is None else {field.name for field in option_fields(beyond)}
    for field in option_fields(schema):
        if field.name in known:
            continue
        unit = f"in {field.info.unit}" if field.info.unit else ""
        value = ", ".join(filter(None, (field.type_name, field.range, unit)))
        rows.append((f"``{field.name}``", value, _default(field), _plain(field.info.help)))
    lines = [".. list-table::", "   :header-rows: 1", "   :widths: 24 22 18 36", ""]
    for first, *others in rows:
        lines += [f"   * - {first}", *(f"     - {text}" for text in others)]
    return "\n".join(lines) + "\n"


def fixtures_reference() -> str:
    """Return a section with a table for each kind of object in fixture files."""
    schemas = definitions()
    sections = []
    for name in FIXTURE_OBJECTS:
        schema = schemas[name]
        title = f"{name} " if name[0].islower() else name
        rows = [("field", "value", "what it says")]
        for field, described in schema["properties"].items():
            required = "; needed" if field in schema.get("required", ()) else ""
            text = _common_mark(described.get("description", ""))
            rows.append((f"``{field}``", f"{_value(described)}{required}", text))
        lines = [".. list-table::", "   :header-rows: 1", "   :widths: 20 35 45", ""]
        for first, *others in rows:
            lines += [f"   * - {first}", *(f"     - {text}" for text in others)]
        head = f".. _fixture-{name.lower()}:\n\n{title}\n{'~' * len(title)}\n"
        said = _common_mark(schema.get("description", ""))
        sections.append("\n".join([head, said, "", *lines, ""]))
    return "\n".join(sections)


#: In the order of the page.
FIXTURE_OBJECTS = (
    *("RulesFile", "Rule", "When", "Operators", "Reply", "Choice", "Token", "Result", "Usage"),
    *("Request", "Question", "Error", "Pacing", "Fault"),
)


def _value(schema: dict[str, Any]) -> str:
    """Return what a value may be, in words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f":ref:`{name} <fixture-{name.lower()}>`" if name in FIXTURE_OBJECTS else "an object"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_value(one) for one in schema["anyOf"]))
    if "enum" in schema:
        return " | ".join(f"``{value}``" for value in schema["enum"])
    if "const" in schema:
        return f"``{str(schema['const']).lower()}``"
    kind = schema.get("type")
    if kind == "array":
        return f"list of {_value(schema['items'])}" if "items" in schema else "list"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_value(schema['additionalProperties'])}"
    words = {"integer": "whole number", "string": "text", "number": "number", "null": "null"}
    words |= {"boolean": "true or false", "object": "object"}
    if isinstance(kind, list):
        return " or ".join(words[one] for one in kind)
    bounds = [f"{schema[key]:g}" for key in ("minimum", "maximum") if key in schema]
    small = all(abs(float(bound)) < 1e15 for bound in bounds)
    if len(bounds) == 2 and small:
        return f"{words[kind]} from {bounds[0]} to {bounds[1]}"
    if bounds and "minimum" in schema and float(bounds[0]) > -1e15:
        return f"{words[kind]} from {bounds[0]}"
    return words[kind] if kind else "any value"


def _common_mark(text: str) -> str:
    """Return CommonMark with code and lists alone as reStructuredText in one line."""
    parts = text.split("`")
    plain = [part if i % 2 else part.replace("*", "\\*") for i, part in enumerate(parts)]
    return " ".join("``".join(plain).split())


def control_reference() -> str:
    """Return a table of the mock's control API."""
    app = create_app(Settings(), mock=Scopes())
    paths = app.test_client().get("/openapi.json").get_json()["paths"]
    app.extensions["caesar_server"].close()
    lines = [".. list-table::", "   :header-rows: 1", "   :widths: 45 55", ""]
    lines += ["   * - Request", "     - What it does"]
    for path, item in paths.items():
        if not path.startswith("/_mock"):
            continue
        for method in ("get", "post", "put", "patch", "delete"):
            if method in item:
                lines += [
                    f"   * - ``{method.upper()} {path}``",
                    f"     - {item[method]['summary']}",
                ]
    return "\n".join(lines) + "\n"


def _default(field: OptionField) -> str:
    if field.required:
        return "must be set"
    if isinstance(field.default, tuple):
        return ", ".join(f"``{item}``" for item in field.default) or "empty"
    if field.default is None or field.default == {}:
        return "unset"
    return f"``{str(field.default).lower() if isinstance(field.default, bool) else field.default}``"


def generate(app: Sphinx) -> None:
    """Write what the reference pages and those of some backends and the mock include."""
    folder = Path(app.srcdir) / "_generated"
    folder.mkdir(exist_ok=True)
    pages = {
        "settings": settings_reference(),
        "cli": cli_reference(),
        "errors": errors_reference(),
        "rules": rules_reference(),
        "local_llm_options": options_reference(LocalLlmOptions),
        "local_llm_model_options": options_reference(ModelOptions, beyond=LocalLlmOptions),
        "fixtures": fixtures_reference(),
        "control": control_reference(),
        "upstream_options": options_reference(UpstreamOptions),
        "upstream_server_options": options_reference(ServerOptions),
    }
    for name, text in pages.items():
        path = folder / f"{name}.rst"
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def find_at_home(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.Element
) -> nodes.Node | None:
    """Lead a name as plugins import it (``caesar_server.contract.Model``) to its definition."""
    target = node["reftarget"]
    if node.get("refdomain") != "py" or ("." in target and not target.startswith("caesar_server.")):
        return None
    objects = env.domains.python_domain.objects
    homes = [name for name in objects if name.endswith(f".{target.rpartition('.')[2]}")]
    if len(homes) != 1:
        return None
    home = objects[homes[0]]
    return make_refnode(app.builder, node["refdoc"], home.docname, home.node_id, content)


def setup(app: Sphinx) -> None:
    """Generate before anything is read."""
    app.connect("builder-inited", generate)
    app.connect("missing-reference", find_at_home)
