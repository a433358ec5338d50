"""From the data of a file, or of a request to the control API, to rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import UNSET

from caesar_server.mock.answering.check import reply_problems
from caesar_server.mock.faults import KINDS, fault_problems
from caesar_server.mock.files.document import ACTIONS, AnyReply, RepliesData, RuleData, RulesData
from caesar_server.mock.files.problems import FixturesError, Path, Problem
from caesar_server.mock.files.shapes import kind_of, read
from caesar_server.mock.files.text.document import Document
from caesar_server.mock.matching import ConditionError
from caesar_server.mock.matching.asked import FIELDS
from caesar_server.mock.matching.data import conditions_of
from caesar_server.mock.model.fault import Fault
from caesar_server.mock.model.reply import Reply
from caesar_server.mock.model.rule import Condition, Rule

#: Fields of a file besides its rules, as :class:`caesar_server.mock.scope.Manner` has them.
SETTINGS = ("seed", "fallback", "strict", "pacing", "faults")
#: Fields of a fault that every kind has.
EVERYWHERE = frozenset({"kind", "probability"})
#: Keys of a file that begin so are left alone: a place for what anchors stand for.
LEFT_ALONE = "x-"


@dataclass(frozen=True, slots=True)
class Content:
    """What one file says.

    :param settings: those of :data:`SETTINGS` that it has.
    """

    settings: Mapping[str, Any]
    rules: tuple[Rule, ...]


def content_of(document: Document) -> Content:
    """Return what a file says.

    :raises FixturesError: with every problem and its place.
    """
    problems: list[Problem] = []
    data = document.data
    if data is None:
        problems.append(Problem("is empty: expected an object with the key 'rules'"))
    elif not isinstance(data, dict):
        problems.append(Problem(f"expected an object, got {kind_of(data)}"))
    elif is_rules(data):
        content = _rules_file(document, problems)
    else:
        content = _replies_file(document, problems)
    if problems:
        located = [document.located(problem) for problem in problems]
        raise FixturesError(sorted(located, key=lambda one: (one.line or 0, one.column or 0)))
    return content


def is_rules(data: Mapping[str, Any]) -> bool:
    """Return whether a file has rules; else its keys are prompts, with the replies to them."""
    # No reply is a list, so a prompt 'rules' is not mistaken.
    return isinstance(data.get("rules"), list)


def read_rule(
    data: Any, path: Path = (), *, id: str = "", source: str = ""
) -> tuple[Rule | None, list[Problem]]:
    """Return a rule, or None and every problem that it has.

    :param data: what JSON has.
    """
    found: RuleData | None
    found, problems = read(data, RuleData, path, {"when": FIELDS})
    when = data.get("when", {}) if isinstance(data, dict) else {}
    conditions: tuple[Condition, ...] = ()
    if isinstance(when, dict):  # else that is among the problems already
        conditions, more = read_conditions(when, (*path, "when"))
        problems += more
    if found is not None:
        problems += _action_problems(found, data, path)
    if problems or found is None:
        return None, problems
    replies = _given(found.reply, found.replies)
    rule = Rule(
        id=id,
        name="" if found.name is UNSET else found.name,
        conditions=conditions,
        replies=tuple(_as_reply(reply) for reply in replies),
        faults=_given(found.fault, found.faults),
        times=found.times,
        skip=found.skip,
        priority=found.priority,
        source=source,
        definition=data,
    )
    return rule, []


def read_conditions(
    when: Mapping[str, Any], path: Path = ()
) -> tuple[tuple[Condition, ...], list[Problem]]:
    """Return the conditions of a ``when``, or none and every problem that it has."""
    # 2.0 is a whole number in JSON Schema
    numbers = {
        name: int(value)
        for name, value in when.items()
        if name in ("attempt", "turn") and isinstance(value, float) and value.is_integer()
    }
    try:
        return conditions_of({**when, **numbers}), []
    except ConditionError as error:
        return (), [Problem(message, (*path, *within)) for within, message in error.problems]


def read_faults(data: Any, path: Path = ()) -> tuple[tuple[Fault, ...], list[Problem]]:
    """Return a list of faults, or none and every problem that it has."""
    found: tuple[Fault, ...] | None
    found, problems = read(data, tuple[Fault, ...], path)
    for position, fault in enumerate(found or ()):
        problems += _fault_problems(fault, data[position], (*path, position))
    return (() if problems else found or ()), problems


def read_settings(data: Mapping[str, Any], path: Path = ()) -> tuple[dict[str, Any], list[Problem]]:
    """Return those of :data:`SETTINGS` that ``data`` has, and every problem of theirs."""
    found: dict[str, Any] = {}
    problems: list[Problem] = []
    for field in msgspec.structs.fields(RulesData):
        if field.name in SETTINGS and field.name in data:
            value, more = read(data[field.name], field.type, (*path, field.name))
            problems += more
            found[field.name] = value
    if not problems:
        problems += _settings_problems(found, data, path)
    return found, problems


def _settings_problems(
    found: Mapping[str, Any], data: Mapping[str, Any], path: Path
) -> Iterator[Problem]:
    fallback = found.get("fallback")
    if isinstance(fallback, Reply):
        yield from _reply_problems(fallback, (*path, "fallback"))
    for position, fault in enumerate(found.get("faults", ())):
        yield from _fault_problems(fault, data["faults"][position], (*path, "faults", position))


def _rules_file(document: Document, problems: list[Problem]) -> Content:
    data = document.data
    settings, found = read_settings(data)
    problems += found
    # the shape of the whole file but for what is looked at one by one
    rest = {
        key: value
        for key, value in data.items()
        if key not in settings and not key.startswith(LEFT_ALONE)
    }
    problems += read({**rest, "rules": []}, RulesData)[1]
    rules: list[Rule] = []
    names: set[str] = set()
    for position, rule_data in enumerate(data["rules"]):
        path: Path = ("rules", position)
        source = f"{document.name}:{document.line(path)}"
        name = rule_data.get("name") if isinstance(rule_data, dict) else None
        id = f"{document.name}:{name if isinstance(name, str) else position + 1}"
        rule, found = read_rule(rule_data, path, id=id, source=source)
        problems += found
        if isinstance(name, str) and name in names:
            problems.append(Problem(f"another rule is called {name!r}", (*path, "name")))
        if isinstance(name, str):
            names.add(name)
        if rule is not None:
            rules.append(rule)
    return Content(settings, tuple(rules))


def _replies_file(document: Document, problems: list[Problem]) -> Content:
    replies: dict[str, AnyReply] | None
    replies, found = read(document.data, RepliesData)
    rules: list[Rule] = []
    for position, (prompt, said) in enumerate((replies or {}).items()):
        reply = _as_reply(said)
        found += _reply_problems(reply, (prompt,))
        rule = Rule(
            id=f"{document.name}:{position + 1}",
            conditions=conditions_of({"prompt": {"exact": prompt}}),
            replies=(reply,),
            source=f"{document.name}:{document.line((prompt,))}",
            definition={"when": {"prompt": {"exact": prompt}}, "reply": document.data[prompt]},
        )
        rules.append(rule)
    known = {field.encode_name for field in msgspec.structs.fields(RulesData)}
    if found and not known.isdisjoint(document.data):
        message = "has no list 'rules', so its keys are taken for prompts"
        problems.append(Problem(message))
    problems += found
    return Content({}, tuple(rules))


def _action_problems(rule: RuleData, data: Mapping[str, Any], path: Path) -> Iterator[Problem]:
    given = [name for name in ACTIONS if getattr(rule, name) is not UNSET]
    if not given:
        yield Problem("needs one of reply, replies, fault and faults", path)
    elif len(given) > 1:
        message = f"has both {given[0]} and {given[1]}: a rule does one thing"
        yield Problem(message, (*path, given[1]))
    if rule.reply is not UNSET:
        yield from _reply_problems(_as_reply(rule.reply), (*path, "reply"))
    if rule.replies is not UNSET:
        for position, reply in enumerate(rule.replies):
            yield from _reply_problems(_as_reply(reply), (*path, "replies", position))
    if rule.fault is not UNSET:
        yield from _fault_problems(rule.fault, data["fault"], (*path, "fault"))
    if rule.faults is not UNSET:
        for position, fault in enumerate(rule.faults):
            place = (*path, "faults", position)
            yield from _fault_problems(fault, data["faults"][position], place)


def _reply_problems(reply: Reply, path: Path) -> Iterator[Problem]:
    for field, message in reply_problems(reply):
        yield Problem(message, (*path, *_steps(field)))


def _fault_problems(fault: Fault, data: Mapping[str, Any], path: Path) -> Iterator[Problem]:
    kind = KINDS[fault.kind]
    # A field at its default is no harm in Python; in a file it says that somebody expects more.
    for name in data:
        if name not in kind.fields | EVERYWHERE:
            allowed = ", ".join(sorted(kind.fields)) or "none"
            yield Problem(f"does not belong to {kind.name}; its fields: {allowed}", (*path, name))
    for field, message in fault_problems(fault):
        if field in kind.fields | EVERYWHERE:
            yield Problem(message, (*path, *_steps(field)))


def _steps(field: str) -> Path:
    """Return ``choices[1].logprobs`` as a path."""
    parts = field.replace("[", ".").replace("]", "").split(".")
    return tuple(int(part) if part.isdigit() else part for part in parts if part)


def _as_reply(reply: str | Reply) -> Reply:
    return Reply(text=reply) if isinstance(reply, str) else reply


def _given(one: Any, several: Sequence[Any] | msgspec.UnsetType) -> tuple[Any, ...]:
    if one is not UNSET:
        return (one,)
    return () if isinstance(several, msgspec.UnsetType) else tuple(several)
