"""What a fixture file may say, as types: the loader and the JSON Schema both come from them."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from caesar_server.mock.model.fault import Fault
from caesar_server.mock.model.pacing import Pacing
from caesar_server.mock.model.reply import Reply

#: The largest number of anything: what every JSON parser keeps exactly.
_LARGEST = 2**53 - 1

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=_LARGEST)]
Times: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=_LARGEST)]
Whole: TypeAlias = Annotated[int, msgspec.Meta(ge=-_LARGEST, le=_LARGEST)]
AnyReply: TypeAlias = str | Reply
Replies: TypeAlias = Annotated[tuple[AnyReply, ...], msgspec.Meta(min_length=1)]
Faults: TypeAlias = Annotated[tuple[Fault, ...], msgspec.Meta(min_length=1)]
Name: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]

#: One of them says what a rule does.
ACTIONS = ("reply", "replies", "fault", "faults")


class RuleData(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rule: for which calls it is, and exactly one of `reply`, `replies`, `fault`, `faults`.

    :param name: for messages, and the rule's id in the control API; unique in its file.
    :param when: what a call must have; without it, every call.
    :param times: the rule is used at most so often, 0: never; null: without end.
    :param skip: the first so many calls that match are let pass.
    :param priority: a higher one is tried earlier; of equal ones the one further up.
    :param reply: the answer: a text, or an object that says more.
    :param replies: answers that are used in turn, the last one again and again.
    :param fault: what goes wrong.
    :param faults: several at once.
    """

    name: Name | UnsetType = UNSET
    when: dict[str, Any] = {}
    times: Count | None = None
    skip: Count = 0
    priority: Whole = 0
    reply: AnyReply | UnsetType = UNSET
    replies: Replies | UnsetType = UNSET
    fault: Fault | UnsetType = UNSET
    faults: Faults | UnsetType = UNSET


class RulesData(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file of rules.

    :param schema: where an editor finds this schema; not looked at otherwise.
    :param seed: of all that is drawn or made up: same seed and same calls, same bytes.
    :param fallback: what answers a call that no rule matches: its own prompt, an error, or this.
    :param strict: whether a call that no rule matches is an error, whatever `fallback` says.
    :param pacing: of replies that have none of their own.
    :param faults: for calls that match no rule with faults.
    :param rules: tried in their order: those with faults first, then those with replies.
    """

    schema: str | UnsetType = msgspec.field(name="$schema", default=UNSET)
    seed: Whole | UnsetType = UNSET
    fallback: Literal["echo", "error"] | Reply | UnsetType = UNSET
    strict: bool | UnsetType = UNSET
    pacing: Pacing | UnsetType = UNSET
    faults: tuple[Fault, ...] | UnsetType = UNSET
    rules: tuple[RuleData, ...]


#: A file without rules, but with prompts as keys.
RepliesData: TypeAlias = dict[str, AnyReply]
