"""What the control API says about itself, for the API description."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from caesar_server.blueprints.mock.control.schemas import PREFIX, query_schemas, schemas
from caesar_server.web.description import Json, Operation, Surface, ref

_SHARED = ("400", "401", "403", "405", "500", "503")
#: Of a request with a body.
_BODY = (*_SHARED, "413", "415")

_DESCRIPTION = """Only in mock mode: rules, journal and state of the mock.

Each request is about one scope: that of its path (`/t/NAME/_mock/...`), else of its header
`X-Caesar-Mock-Scope`, else the default one.  A scope is made when it is first named.  Rules never
see these requests, no fault happens in them, and they are answered also while the server is full.
Errors are `{"error": "message"}`."""

_RULE_ID: Mapping[str, Json] = {
    "rule_id": {
        "description": "Id of a rule; it may have slashes.",
        "schema": {"type": "string", "minLength": 1, "examples": ["r1"]},
    }
}
_SCOPE_NAME: Mapping[str, Json] = {
    "name": {
        "description": "Name of a scope; it may have slashes.",
        "schema": {"type": "string", "minLength": 1, "maxLength": 200, "examples": ["my-test"]},
    }
}
_NEW_SCOPE_NAME: Mapping[str, Json] = {
    "name": {**_SCOPE_NAME["name"], "description": "Name of a scope, without slashes."}
}
_RULE = {
    "when": {"prompt": {"contains": "quantum"}, "stream": True},
    "reply": {"text": "Error correction improved [1].", "chunks": 5},
}
_FAULT = {
    "when": {"path": "/compat/completions"},
    "times": 2,
    "fault": {"kind": "status", "status": 429, "retry_after_s": 0.001},
}


def _json(description: str, component: str) -> Json:
    content = {"application/json": {"schema": ref(PREFIX + component)}}
    return {"description": description, "content": content}


def _answer(component: str, description: str = "Done.", status: str = "200") -> Mapping[str, Json]:
    return {status: _json(description, component)}


def _examples(**bodies: Any) -> Json:
    """Return examples; of a name like ``turn_the_clock`` the words are the summary."""
    return {
        name: {"summary": name.capitalize().replace("_", " "), "value": body}
        for name, body in bodies.items()
    }


_OPERATIONS: Mapping[str, Operation] = {
    "list_mock_rules": Operation(
        summary="List the rules",
        responses=_answer("RuleStates", "In the order in which they are tried."),
        errors=_SHARED,
    ),
    "add_mock_rules": Operation(
        summary="Add rules",
        description="One rule, or `rules` for several: all of them, or none if one is wrong.",
        body=f"{PREFIX}AnyRules",
        body_examples=_examples(
            answer_with_a_text=_RULE, fail_twice=_FAULT, add_several={"rules": [_FAULT, _RULE]}
        ),
        responses=_answer("RuleStates", "Those that were added, with their ids.", "201"),
        errors=_BODY,
    ),
    "remove_mock_rules": Operation(
        summary="Remove all rules but those of fixture files",
        responses=_answer("RuleStates", "Those that are left."),
        errors=_SHARED,
    ),
    "show_mock_rule": Operation(
        summary="Show a rule with its counters",
        parameters=_RULE_ID,
        responses=_answer("RuleState", "The rule."),
        errors=(*_SHARED, "404"),
    ),
    "put_mock_rule": Operation(
        summary="Replace a rule, or add it with this id",
        description="It keeps its place among the others; its counters begin anew.",
        parameters=_RULE_ID,
        body=f"{PREFIX}Rule",
        body_examples=_examples(answer_with_a_text=_RULE, fail_twice=_FAULT),
        responses=_answer("RuleState", "The rule."),
        errors=_BODY,
    ),
    "remove_mock_rule": Operation(
        summary="Remove a rule",
        parameters=_RULE_ID,
        responses=_answer("Removed"),
        errors=(*_SHARED, "404"),
    ),
    "show_mock_faults": Operation(
        summary="Show the kinds of faults, and what has happened",
        responses=_answer("Faults", "All kinds."),
        errors=_SHARED,
    ),
    "show_mock_journal": Operation(
        summary="Show what reached the mock",
        query=query_schemas(),
        responses={
            "200": {
                "description": "The entries; with `format=har` an HTTP archive.",
                "content": {
                    "application/json": {
                        "schema": {
                            "anyOf": [
                                ref(f"{PREFIX}Journal"),
                                {"type": "object", "required": ["log"]},
                            ]
                        }
                    }
                },
            }
        },
        errors=_SHARED,
    ),
    "empty_mock_journal": Operation(
        summary="Forget all entries and totals",
        responses=_answer("Journal", "The empty journal."),
        errors=_SHARED,
    ),
    "search_mock_journal": Operation(
        summary="Find entries by what they must have",
        body=f"{PREFIX}SearchData",
        body_optional=True,
        body_examples=_examples(
            refused_ones={"when": {"prompt": {"contains": "quantum"}}, "status": 429}
        ),
        responses=_answer("Journal", "The entries."),
        errors=_BODY,
    ),
    "check_mock_journal": Operation(
        summary="Check how many entries there are, and wait for them if need be",
        body=f"{PREFIX}CheckData",
        body_optional=True,
        body_examples=_examples(
            exactly_three={"when": {"prompt": {"contains": "quantum"}}, "times": 3},
            wait_for_one={"at_least": 1, "timeout_s": 5, "finished": True},
        ),
        responses=_answer("Checked", "As many as there should be."),
        errors=(*_BODY, "409"),
    ),
    "show_mock_entry": Operation(
        summary="Show one entry of the journal",
        parameters={
            "entry_id": {
                "description": "Id of a call.",
                "schema": {"type": "string", "minLength": 1, "examples": ["1"]},
            }
        },
        responses=_answer("Entry", "The entry."),
        errors=(*_SHARED, "404"),
    ),
    "show_mock_settings": Operation(
        summary="Show what may be set of a scope",
        responses=_answer("Settings", "The settings."),
        errors=_SHARED,
    ),
    "change_mock_settings": Operation(
        summary="Set seed, fallback, strictness, pacing and faults of a scope",
        description="What is not mentioned stays.  Setting the seed lets ids and draws begin anew.",
        body=f"{PREFIX}SettingsChange",
        body_examples=_examples(set_seed_and_strictness={"seed": 7, "strict": True}),
        responses=_answer("Settings", "All settings."),
        errors=_BODY,
    ),
    "reset_mock": Operation(
        summary="Forget counters, journal or all of a scope",
        body=f"{PREFIX}ResetData",
        body_optional=True,
        body_examples=_examples(counters_alone={"what": "counters"}),
        responses=_answer("Reset"),
        errors=_BODY,
    ),
    "show_mock_clock": Operation(
        summary="Show how a scope's clock stands",
        responses=_answer("Clock", "The clock."),
        errors=_SHARED,
    ),
    "turn_mock_clock": Operation(
        summary="Stop a scope's clock, turn it, let it run",
        body=f"{PREFIX}ClockData",
        body_examples=_examples(
            stop_it={"stopped": True},
            turn_it_once_a_call_waits={"waiting": 1, "advance_s": 2.5},
            let_it_run={"stopped": False},
        ),
        responses=_answer("Clock", "The clock."),
        errors=(*_BODY, "409"),
    ),
    "list_mock_scopes": Operation(
        summary="List the scopes",
        responses=_answer("Scopes", "The default one comes first."),
        errors=_SHARED,
    ),
    "make_mock_scope": Operation(
        summary="Make a scope",
        description="From then on an API key that is its name means it, too.  The body sets what "
        "it is to answer otherwise than other scopes, as `PATCH /_mock/settings` does.",
        parameters=_NEW_SCOPE_NAME,
        body=f"{PREFIX}SettingsChange",
        body_optional=True,
        body_examples=_examples(set_seed_and_strictness={"seed": 7, "strict": True}),
        responses=_answer("Scope", "The scope, new or not."),
        errors=_BODY,
    ),
    "remove_mock_scope": Operation(
        summary="Remove a scope with all that is its own",
        parameters=_SCOPE_NAME,
        responses=_answer("Removed"),
        errors=(*_SHARED, "404"),
    ),
    "show_mock_fixtures": Operation(
        summary="Show which fixture files are in force",
        responses=_answer("Fixtures", "The files."),
        errors=(*_SHARED, "404"),
    ),
    "reload_mock_fixtures": Operation(
        summary="Read the fixture files now",
        description="Otherwise they are read again with the first request after a change.",
        responses=_answer("Fixtures", "The files."),
        errors=(*_SHARED, "404"),
    ),
    "show_mock_fixtures_schema": Operation(
        summary="Show the JSON Schema of fixture files",
        responses={
            "200": {
                "description": "JSON Schema 2020-12.",
                "content": {"application/json": {"schema": {"type": "object"}}},
            }
        },
        errors=_SHARED,
    ),
}


def control_surface() -> Surface:
    """Return what the control API says about itself."""
    return Surface(
        tag="Mock",
        description=_DESCRIPTION,
        operations=_OPERATIONS,
        schemas=schemas(),
        error_schema=f"{PREFIX}ControlError",
    )
