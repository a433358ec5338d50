"""Rules over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from flask.testing import FlaskClient

from caesar_server.mock.matching.table import Entry
from caesar_server.mock.scopes import Scopes

RULE = {"name": "greeting", "when": {"prompt": {"contains": "Hello"}}, "reply": "Hi"}
FAULT = {"times": 1, "fault": {"kind": "status", "status": 429, "retry_after_s": 0}}
Fits = Callable[[str, Any], None]
Complete = Callable[..., Any]


def ids(answer: Any) -> list[str]:
    return [rule["id"] for rule in answer.json["rules"]]


def test_a_rule_answers_from_now_on(client: FlaskClient, complete: Complete, fits: Fits) -> None:
    added = client.post("/_mock/rules", json=RULE)
    assert added.status_code == 201
    fits("RuleStates", added.json)
    (rule,) = added.json["rules"]
    assert rule["id"] == "r1"
    assert rule["definition"] == RULE
    assert (rule["conditions"], rule["does"]) == (["prompt contains 'Hello'"], "replies")
    assert complete("Hello you").json["choices"][0]["text"] == "Hi"
    shown = client.get("/_mock/rules/r1")
    fits("RuleState", shown.json)
    assert (shown.json["matched"], shown.json["used"], shown.json["left"]) == (1, 1, None)


def test_only_rules_that_are_shown_are_looked_at(
    client: FlaskClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or thousands of rules would take minutes to add."""
    looked, state = list[Entry](), Entry.state
    monkeypatch.setattr(Entry, "state", lambda entry: looked.append(entry) or state(entry))
    client.post("/_mock/rules", json={"rules": [RULE] * 50})
    assert len(looked) == 50
    client.post("/_mock/rules", json=RULE)
    client.get("/_mock/rules/r7")
    client.put("/_mock/rules/r8", json=RULE)
    assert len(looked) == 53


def test_rules_are_listed_in_the_order_in_which_they_are_tried(
    client: FlaskClient, complete: Complete, fits: Fits
) -> None:
    client.post("/_mock/rules", json={"rules": [RULE, FAULT, {**RULE, "priority": 1}]})
    listed = client.get("/_mock/rules")
    fits("RuleStates", listed.json)
    assert ids(listed) == ["r2", "r3", "r1"]
    assert complete().status_code == 429
    assert complete().status_code == 200
    assert client.get("/_mock/rules/r2").json["left"] == 0


def test_a_rule_is_replaced_in_its_place(client: FlaskClient, complete: Complete) -> None:
    client.post("/_mock/rules", json={"rules": [RULE, {"reply": "other"}]})
    complete()
    changed = client.put("/_mock/rules/r1", json={**RULE, "reply": "Hello to you"})
    assert (changed.status_code, changed.json["used"]) == (200, 0)
    assert ids(client.get("/_mock/rules")) == ["r1", "r2"]
    assert complete().json["choices"][0]["text"] == "Hello to you"


def test_a_rule_may_be_put_with_an_id_of_ones_own(client: FlaskClient) -> None:
    for _ in range(2):
        put = client.put("/_mock/rules/my/own:rule", json=RULE)
        assert (put.status_code, put.json["id"]) == (200, "my/own:rule")
    assert ids(client.get("/_mock/rules")) == ["my/own:rule"]
    assert client.delete("/_mock/rules/my/own:rule").json == {"id": "my/own:rule", "removed": True}
    assert ids(client.get("/_mock/rules")) == []


def test_all_own_rules_are_removed_at_once(client: FlaskClient) -> None:
    client.post("/_mock/rules", json={"rules": [RULE, FAULT]})
    assert client.delete("/_mock/rules").json == {"rules": []}


@pytest.mark.parametrize("method", ["get", "delete"])
def test_a_rule_that_is_not_there(client: FlaskClient, method: str) -> None:
    answer = client.open("/_mock/rules/r9", method=method)
    assert (answer.status_code, answer.json) == (
        404,
        {"error": "No rule has the id 'r9' in this scope"},
    )


def test_a_rule_for_no_times_is_never_used(client: FlaskClient) -> None:
    added = client.post("/_mock/rules", json={**FAULT, "times": 0})
    assert added.status_code == 201, added.text
    answer = client.post("/compat/completions", json={"model": "m", "prompt": "Hi"})
    assert answer.status_code == 200
    (shown,) = client.get("/_mock/rules").json["rules"]
    assert (shown["times"], shown["left"], shown["used"]) == (0, 0, 0)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "needs one of reply, replies, fault and faults"),
        ({"reply": "a", "tims": 2}, "tims: unknown field; did you mean 'times'?"),
        (
            {"when": {"promt": "a"}, "reply": 5},
            "reply: expected a string or an object, got 5; "
            "when.promt: unknown condition; did you mean 'prompt'?",
        ),
        ({"rules": [RULE, {"reply": "a", "times": -1}]}, "rules[1].times: expected a whole number"),
        ({"rules": [], "seed": 1}, "seed: unknown field beside 'rules'"),
        ({"fault": {"kind": "delay"}}, "fault.delay_s: delay needs it"),
        ({"when": {"headers": {"x-a": 5}}, "reply": "a"}, "when.headers.x-a: "),
        ({"reply": {"template": "{% if %}"}}, "reply.template: expected a Jinja template"),
    ],
)
def test_a_rule_that_is_wrong_adds_nothing(client: FlaskClient, body: Any, said: str) -> None:
    answer = client.post("/_mock/rules", json=body)
    assert answer.status_code == 400
    assert answer.json["error"].startswith(said)
    assert client.get("/_mock/rules").json == {"rules": []}


def test_a_body_that_is_none(client: FlaskClient) -> None:
    answers = [
        client.post("/_mock/rules"),
        client.post("/_mock/rules", data="{", content_type="application/json"),
        client.post("/_mock/rules", data="a=1", content_type="application/x-www-form-urlencoded"),
        client.put("/_mock/rules/r1", json=[]),
    ]
    assert [answer.status_code for answer in answers] == [415, 400, 415, 400]
    assert all(list(answer.json) == ["error"] for answer in answers)


def test_each_scope_has_its_own_rules(client: FlaskClient, complete: Complete) -> None:
    client.post("/t/one/_mock/rules", json=RULE)
    client.post("/_mock/rules", json=RULE, headers={"X-Caesar-Mock-Scope": "two"})
    assert ids(client.get("/_mock/rules")) == []
    assert ids(client.get("/_mock/rules", headers={"X-Caesar-Mock-Scope": "one"})) == ["r1"]
    assert ids(client.get("/t/two/_mock/rules")) == ["r1"]
    assert complete(under="/t/one").json["choices"][0]["text"] == "Hi"
    assert complete().json["choices"][0]["text"] == "Hello"


def test_kinds_of_faults_and_what_has_happened(
    client: FlaskClient, complete: Complete, fits: Fits
) -> None:
    client.post("/_mock/rules", json=FAULT)
    complete()
    faults = client.get("/_mock/faults").json
    fits("Faults", faults)
    assert faults["happened"] == {"status": 1}
    kinds = {kind["kind"]: kind for kind in faults["kinds"]}
    assert kinds["delay"]["required"] == ["delay_s"]
    assert kinds["reset"]["needs_socket"] is True


def test_a_rule_made_in_python_is_shown_too(client: FlaskClient, scopes: Scopes) -> None:
    from caesar_server.mock.matching import conditions
    from caesar_server.mock.model.rule import Rule

    scopes.get().add(Rule(conditions=conditions(stream=True), replies=(lambda call: "x",)))
    (rule,) = client.get("/_mock/rules").json["rules"]
    assert (rule["definition"], rule["conditions"]) == (None, ["stream True"])


def test_rules_that_are_no_list_are_told(client: FlaskClient) -> None:
    refused = client.post("/_mock/rules", json={"rules": RULE})
    assert (refused.status_code, refused.json) == (
        400,
        {"error": "rules: expected a list, got an object"},
    )


@pytest.mark.parametrize(
    ("rule", "field"),
    [
        (r'{"reply": "\ud83d"}', "reply"),
        (r'{"reply": {"text": "x", "progress": ["\ud83d"]}}', "reply.progress[0]"),
        (r'{"fault": {"kind": "status", "status": 500, "body": "\ud83d"}}', "fault.body"),
        (r'{"fault": {"kind": "error_frame", "message": "\ud83d"}}', "fault.message"),
    ],
)
def test_what_no_client_can_be_sent_is_refused(client: FlaskClient, rule: str, field: str) -> None:
    refused = client.post("/_mock/rules", data=rule, content_type="application/json")
    assert refused.status_code == 400
    assert refused.json == {"error": f"{field}: has half a surrogate pair, which is no text"}
