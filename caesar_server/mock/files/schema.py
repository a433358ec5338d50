"""The JSON Schema of fixture files, made of the types that the loader reads them as.

It accepts what the loader accepts, except for what no schema can say: that a name is not used
twice, that a template, an expression of JMESPath or a regular expression can be compiled, that the
tokens of a choice join to its text, and that the result which a request became is there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from caesar_server.mock.faults import KINDS, Kind
from caesar_server.mock.files.document import ACTIONS, AnyReply, RulesData
from caesar_server.mock.files.rules import EVERYWHERE, LEFT_ALONE
from caesar_server.mock.files.when_schema import when_definitions

Json = dict[str, Any]

_PARAM = re.compile(r":param (\w+):\s*(.*?)(?=\n\s*:param |\Z)", re.DOTALL)
#: What definitions are called, where it is not the class's name.
_NAMES = {"RulesData": "RulesFile", "RuleData": "Rule"}
#: Statuses whose answers have no body.
_NO_BODY = (204, 205, 304)


def fixtures_schema() -> Json:
    """Return the schema of one file, JSON Schema 2020-12."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Fixtures of caesar-server's mock",
        "description": "A file with a list `rules`; or one whose keys are prompts, with the reply "
        "to each.",
        "type": "object",
        "if": {"required": ["rules"], "properties": {"rules": {"type": "array"}}},
        "then": {"$ref": "#/$defs/RulesFile"},
        "else": {"$ref": "#/$defs/RepliesFile"},
        "$defs": definitions(),
    }


def definitions(ref_prefix: str = "#/$defs/") -> Json:
    """Return the schemas of all parts by their names.

    :param ref_prefix: where they will be.
    """
    (_, reply), found = msgspec.json.schema_components((RulesData, AnyReply))
    found["RepliesFile"] = {
        "description": "Prompt -> the reply to exactly this one.",
        "type": "object",
        "additionalProperties": reply,
    }
    described = {name: _described(schema) for name, schema in found.items()}
    described["RulesData"]["patternProperties"] = {f"^{LEFT_ALONE}": {}}
    _tell_rule(described["RuleData"])
    _tell_reply(described["Reply"])
    _tell_fault(described["Fault"])
    named = {_name(name): schema for name, schema in described.items()} | when_definitions()
    moved: Json = _moved(dict(sorted(named.items())), ref_prefix)
    return moved


def struct_schemas(structs: Iterable[type[msgspec.Struct]], ref_prefix: str) -> Json:
    """Return the schemas of structs by the names of their classes, with their own words.

    :param ref_prefix: where those that they refer to will be.
    """
    _, found = msgspec.json.schema_components(structs)
    described = {name: _described(schema) for name, schema in found.items()}
    moved: Json = _moved(described, ref_prefix)
    return moved


def _tell_rule(schema: Json) -> None:
    schema["properties"]["when"] = {
        "description": schema["properties"]["when"]["description"],
        "$ref": "#/$defs/When",
    }
    schema["oneOf"] = [{"required": [name]} for name in ACTIONS]


def _tell_reply(schema: Json) -> None:
    """Say that text, template and choices exclude each other, unless they are as left out."""
    no_text: Json = {"properties": {"text": {"const": ""}}}
    no_choices: Json = {"properties": {"choices": {"maxItems": 0}}}
    schema["allOf"] = [
        {
            "if": {"required": ["template"], "properties": {"template": {"type": "string"}}},
            "then": {"allOf": [no_text, no_choices]},
        },
        {
            "if": {"required": ["choices"], "properties": {"choices": {"minItems": 1}}},
            "then": no_text,
        },
    ]


def _tell_fault(schema: Json) -> None:
    properties = schema["properties"]
    properties["kind"] = {
        "description": "What goes wrong.\n\n"
        + "\n".join(f"- `{kind.name}`: {kind.does.replace('``', '`')}" for kind in KINDS.values()),
        "enum": list(KINDS),
    }
    properties["status"] = {**properties["status"], "anyOf": [_status(), {"type": "null"}]}
    properties["headers"] = {
        **properties["headers"],
        "propertyNames": {
            "pattern": "^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}$",
            "not": {
                "pattern": "^([Cc][Oo][Nn][Tt][Ee][Nn][Tt]-[Ll][Ee][Nn][Gg][Tt][Hh]"
                "|[Tt][Rr][Aa][Nn][Ss][Ff][Ee][Rr]-[Ee][Nn][Cc][Oo][Dd][Ii][Nn][Gg]"
                "|[Cc][Oo][Nn][Nn][Ee][Cc][Tt][Ii][Oo][Nn])$"
            },
        },
        "additionalProperties": _HEADER_VALUE,
    }
    properties["content_type"] = {
        **properties["content_type"],
        "anyOf": [_HEADER_VALUE, {"type": "null"}],
    }
    schema["allOf"] = [_fields_of(kind) for kind in KINDS.values()]
    schema["allOf"].append(
        {
            "if": {"required": ["status"], "properties": {"status": {"enum": list(_NO_BODY)}}},
            "then": {"properties": {"body": {"type": "null"}}},
        }
    )


_HEADER_VALUE: Json = {"type": "string", "pattern": "^[\\t\\x20-\\x7e\\x80-\\xff]*$"}


def _status() -> Json:
    # an interim status ends no answer
    return {"type": "integer", "minimum": 200, "maximum": 599}


def _fields_of(kind: Kind) -> Json:
    """Return which fields a fault of this kind has."""
    then: Json = {"propertyNames": {"enum": sorted(kind.fields | EVERYWHERE)}}
    if kind.required:
        then["required"] = sorted(kind.required)
        then["properties"] = {name: {"not": {"type": "null"}} for name in sorted(kind.required)}
    condition = {"required": ["kind"], "properties": {"kind": {"const": kind.name}}}
    return {"if": condition, "then": then}


def _described(schema: Json) -> Json:
    """Return a struct's schema with what its docstring says, where an editor looks for it."""
    text = schema.pop("description", "")
    schema.pop("title", None)
    head, _, _ = text.partition("\n\n:param ")
    helps = {name: _common_mark(said) for name, said in _PARAM.findall(text)}
    properties = {}
    for name, value in schema.get("properties", {}).items():
        said = helps.get(name.lstrip("$"))
        properties[name] = {"description": said, **value} if said else value
    lead = {"description": _common_mark(head)} if head else {}
    return {**lead, **schema, **({"properties": properties} if properties else {})}


def _common_mark(text: str) -> str:
    text = re.sub(r":\w+:`~?(?:[\w.]+\.)?(\w+)`", r"`\1`", text)
    text = " ".join(text.replace("``", "`").split())
    return re.sub(r"\bNone\b", "null", text[:1].upper() + text[1:])


def _name(name: str) -> str:
    return _NAMES.get(name, name.removeprefix("Mock"))


def _moved(value: Any, prefix: str) -> Any:
    """Return a schema whose references lead to definitions below ``prefix``."""
    if isinstance(value, Mapping):
        return dict(_moved_members(value, prefix))
    return [_moved(item, prefix) for item in value] if isinstance(value, (list, tuple)) else value


def _moved_members(value: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, member in value.items():
        if key == "$ref" and isinstance(member, str):
            yield key, prefix + _name(member.rpartition("/")[2])
        else:
            yield key, _moved(member, prefix)
