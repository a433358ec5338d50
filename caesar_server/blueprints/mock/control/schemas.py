"""JSON Schemas of what the control API takes and answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from caesar_server.blueprints.mock.control.bodies import (
    CheckData,
    ClockData,
    JournalQuery,
    ResetData,
    SearchData,
)
from caesar_server.mock.faults import KINDS
from caesar_server.mock.files.rules import SETTINGS
from caesar_server.mock.files.schema import definitions, struct_schemas
from caesar_server.web.error_reference import ERROR_STRING

Json = dict[str, Any]

#: What the names of all components begin with: other surfaces have rules and errors, too.
PREFIX = "Mock"
_REFS = f"#/components/schemas/{PREFIX}"

_TEXT: Json = {"type": "string"}
_WHOLE: Json = {"type": "integer", "minimum": 0}
_SECONDS: Json = {"type": "number", "minimum": 0}
_FLAG: Json = {"type": "boolean"}
_COUNTS: Json = {"type": "object", "additionalProperties": _WHOLE}
_HEADERS: Json = {"type": "object", "additionalProperties": _TEXT}


def schemas() -> Mapping[str, Json]:
    """Return all components by name."""
    bodies = struct_schemas((CheckData, ClockData, JournalQuery, ResetData, SearchData), _REFS)
    for name in ("CheckData", "SearchData"):
        when = bodies[name]["properties"]["when"]
        bodies[name]["properties"]["when"] = {
            "description": when["description"],
            "$ref": f"{_REFS}When",
        }
    found = {**definitions(_REFS), **bodies, **_ANSWERS}
    settings = {name: found["RulesFile"]["properties"][name] for name in SETTINGS}
    found["SettingsChange"] = {
        "description": "Those that are to be set.",
        "type": "object",
        "properties": settings,
        "additionalProperties": False,
    }
    return {f"{PREFIX}{name}": schema for name, schema in sorted(found.items())}


def query_schemas() -> Mapping[str, Json]:
    """Return the parameters of a query of the journal."""
    (schema,) = struct_schemas((JournalQuery,), _REFS).values()
    return {
        name: {"description": field.pop("description"), "schema": _not_null(field)}
        for name, field in schema["properties"].items()
    }


def _not_null(schema: Json) -> Json:
    """Return the schema of a field that is left out where it is null."""
    if schema.get("default", "") is None:
        del schema["default"]
    others = [one for one in schema.pop("anyOf", ()) if one.get("type") != "null"]
    return {**schema, **(others[0] if others else {})}


def _ref(name: str) -> Json:
    return {"$ref": _REFS + name}


def _object(description: str, **properties: Json) -> Json:
    return {
        "description": description,
        "type": "object",
        "required": list(properties),
        "properties": properties,
        "additionalProperties": False,
    }


def _said(description: str, schema: Json) -> Json:
    return {"description": description, **schema}


def _list(items: Json) -> Json:
    return {"type": "array", "items": items}


def _or_null(schema: Json) -> Json:
    return {"anyOf": [schema, {"type": "null"}]}


_BYTES: Json = {
    "description": "`text`, or `base64` of what is no UTF-8.",
    "type": "object",
    "minProperties": 1,
    "maxProperties": 1,
    "properties": {"text": _TEXT, "base64": _TEXT},
    "additionalProperties": False,
}
_FRAME: Json = {
    "type": "object",
    "required": ["at_s"],
    "properties": {"at_s": _SECONDS, "text": _TEXT, "base64": _TEXT},
    "additionalProperties": False,
}
_ENDED = "`completed`: the whole answer left, whatever its status; `client_left`; `fault:KIND`; "

_ANSWERS: Mapping[str, Json] = {
    "ControlError": dict(ERROR_STRING),
    "AnyRules": {
        "description": "One rule, or several at once.",
        "if": {"required": ["rules"], "properties": {"rules": {"type": "array"}}},
        "then": {
            "type": "object",
            "properties": {"rules": _list(_ref("Rule"))},
            "additionalProperties": False,
        },
        "else": _ref("Rule"),
    },
    "RuleState": _object(
        "A rule with its counters.",
        id=_TEXT,
        name=_TEXT,
        does={"type": "string", "enum": ["faults", "replies"]},
        conditions=_said("For people; all must hold.", _list(_TEXT)),
        times=_said("It is used at most so often.", _or_null(_WHOLE)),
        skip=_WHOLE,
        priority={"type": "integer"},
        source=_said("`FILE:LINE` where it was written; empty if it came over HTTP.", _TEXT),
        matched=_said("So many calls had all that it asks for.", _WHOLE),
        used=_said("So many of them it decided.", _WHOLE),
        left=_said("How often it may still be used.", _or_null(_WHOLE)),
        definition=_said(
            "As it was sent; null for a rule that was made in Python.",
            _or_null({"type": "object"}),
        ),
    ),
    "RuleStates": _object(
        "In the order in which they are tried: those with faults, then those with replies.",
        rules=_list(_ref("RuleState")),
    ),
    "Removed": {
        "description": "It is gone.",
        "type": "object",
        "required": ["removed"],
        "properties": {"id": _TEXT, "name": _TEXT, "removed": {"const": True}},
        "additionalProperties": False,
    },
    "Faults": _object(
        "The kinds of faults, and how often each has happened in this scope.",
        kinds=_list(
            _object(
                "A kind.",
                kind={"type": "string", "enum": list(KINDS)},
                does=_TEXT,
                fields=_list(_TEXT),
                required=_list(_TEXT),
                needs_socket=_FLAG,
                needs_stream=_FLAG,
            )
        ),
        happened=_COUNTS,
    ),
    "Entry": _object(
        "One exchange; times are in seconds after `at`, by the scope's clock.",
        id=_TEXT,
        number=_said("1 for the first since the journal was emptied.", _WHOLE),
        scope=_TEXT,
        group=_said("Id of the first attempt.", _TEXT),
        attempt=_WHOLE,
        at=_said("Unix seconds.", {"type": "number"}),
        request=_object(
            "Secret headers are masked.",
            method=_TEXT,
            path=_TEXT,
            raw_path=_TEXT,
            headers=_HEADERS,
            body=_said("Of a body that is no JSON the first 64 KiB.", _BYTES),
            body_left_out_bytes=_said("So much longer the body was.", _WHOLE),
            model=_or_null(_TEXT),
            prompt=_or_null(_TEXT),
            stream=_FLAG,
            turn=_WHOLE,
        ),
        rule=_said(
            "The reply rule that matched.",
            _or_null(_object("A rule.", id=_TEXT, name=_TEXT, source=_TEXT)),
        ),
        nearest=_said(
            "If none matched: the rules that came closest.",
            _list(_object("A rule.", rule=_TEXT, name=_TEXT, failed=_list(_TEXT))),
        ),
        faults=_list(
            _object("One that happened.", kind=_TEXT, at_s=_SECONDS, rule=_TEXT),
        ),
        missed_faults=_said(
            "Kinds of those that did not happen, for the answer does not reach their place.",
            _list(_TEXT),
        ),
        response=_said(
            "Null before there is any, and if none was sent.",
            _or_null(
                _object(
                    "What was sent.",
                    status=_or_null(_WHOLE),
                    headers=_HEADERS,
                    head_at_s=_or_null(_SECONDS),
                    bytes_sent=_WHOLE,
                    frames=_list(_FRAME),
                    frames_left_out=_WHOLE,
                )
            ),
        ),
        ended=_said(
            _ENDED + "`failed`: the server broke it off; null: it goes on.", _or_null(_TEXT)
        ),
        ended_at_s=_or_null(_SECONDS),
        detail=_said("More about the end.", _TEXT),
    ),
    "Journal": _object(
        "What reached the mock.",
        totals=_object(
            "Counted since the journal was emptied, entries that are gone included.",
            requests=_WHOLE,
            dropped=_WHOLE,
            faults=_COUNTS,
            ended=_COUNTS,
        ),
        entries=_said("The oldest first.", _list(_ref("Entry"))),
    ),
    "Checked": _object("It is as it should be.", matched=_WHOLE, ids=_list(_TEXT)),
    "Settings": _object(
        "What may be set of a scope.",
        seed={"type": "integer"},
        strict=_FLAG,
        fallback={"anyOf": [{"type": "string", "enum": ["echo", "error"]}, _ref("Reply")]},
        pacing=_ref("Pacing"),
        faults=_list(_ref("Fault")),
    ),
    "Reset": _object("It is done.", reset=_TEXT),
    "Clock": _object(
        "How a clock stands.",
        time=_said("Unix seconds.", {"type": "number"}),
        stopped=_FLAG,
        turned_s=_said("By how much it was turned by hand.", _SECONDS),
    ),
    "Scope": _object("A scope.", name=_TEXT, rules=_WHOLE, requests=_WHOLE),
    "Scopes": _object("The default one has an empty name.", scopes=_list(_ref("Scope"))),
    "Fixtures": _object(
        "Which files are in force, and what is wrong with their newest state.",
        paths=_list(_TEXT),
        files=_list(_TEXT),
        rules=_WHOLE,
        problems=_list(
            _object(
                "A problem.",
                file=_TEXT,
                line=_or_null(_WHOLE),
                column=_or_null(_WHOLE),
                field=_TEXT,
                message=_TEXT,
            )
        ),
    ),
}
