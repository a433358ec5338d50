"""What comes in: bodies and queries, read as their types say, with every problem named."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, cast

import msgspec
from flask import request

from caesar_server.blueprints.mock.gate import asked_scope
from caesar_server.errors import OverloadedError, ServerError, ValidationFailedError
from caesar_server.mock.files.document import Count, Times
from caesar_server.mock.files.problems import Problem
from caesar_server.mock.files.rules import read_conditions
from caesar_server.mock.files.shapes import read
from caesar_server.mock.journal import EntryFilter
from caesar_server.mock.model.pacing import Seconds
from caesar_server.mock.scope import Scope
from caesar_server.mock.scopes import Scopes, ScopesFullError
from caesar_server.web.bodies import read_json_object
from caesar_server.web.incoming import sole_values

T = TypeVar("T")

#: A request waits no longer.
LONGEST_WAIT_S = 60

Wait: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=LONGEST_WAIT_S)]
Status: TypeAlias = Annotated[int, msgspec.Meta(ge=100, le=599)]


class ResetData(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is to be forgotten.

    :param what: `counters`: how often rules were used, so that sequences, ids and draws begin anew;
        `journal`: its entries; `all`: both, the scope's own rules, what was set, and how the clock
        was turned.
    """

    what: Literal["all", "journal", "counters"] = "all"


class ClockData(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the clock is to be turned; the fields count in this order.

    :param stopped: true: it stands and moves only by hand; false: it runs with the machine's.
    :param waiting: wait first until at least so many calls wait for the clock.
    :param timeout_s: for `waiting`, by the machine's clock.
    :param advance_s: turn it forward; a clock that runs is stopped.
    """

    stopped: bool | None = None
    waiting: Count = 0
    timeout_s: Wait = 10
    advance_s: Seconds = 0


class _Outcome(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What became of an exchange."""

    rule: str | None = None
    fault: str | None = None
    status: Status | None = None
    ended: str | None = None
    group: str | None = None


class JournalQuery(_Outcome, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is wanted of the journal, and as what.

    :param rule: id or name of a rule that answered or let a fault happen.
    :param fault: a kind of fault that must have happened.
    :param status: of the answer.
    :param ended: how it ended, such as `completed`, `client_left` or `fault:reset`; `fault` takes
        all faults, `open` what goes on.
    :param group: id of the first attempt: the entry and its retries.
    :param last: the newest so many alone.
    :param format: `har` is HAR 1.2, which browsers open.
    """

    last: Times | None = None
    format: Literal["json", "har"] = "json"


class SearchData(_Outcome, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What entries must have; nothing takes all.

    :param when: what the call must have, as in rules.
    :param rule: id or name of a rule that answered or let a fault happen.
    :param fault: a kind of fault that must have happened.
    :param status: of the answer.
    :param ended: how it ended, such as `completed`, `client_left` or `fault:reset`; `fault` takes
        all faults, `open` what goes on.
    :param group: id of the first attempt: the entry and its retries.
    :param last: the newest so many alone.
    """

    when: dict[str, Any] = {}
    last: Times | None = None


class CheckData(_Outcome, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many entries must have it: at least one, unless this says otherwise.

    :param when: what the call must have, as in rules.
    :param rule: id or name of a rule that answered or let a fault happen.
    :param fault: a kind of fault that must have happened.
    :param status: of the answer.
    :param ended: how it ended, as in a search.
    :param group: id of the first attempt: the entry and its retries.
    :param times: exactly so many.
    :param at_least: so many or more.
    :param at_most: so many or fewer.
    :param timeout_s: wait for so long until enough are there, by the machine's clock.
    :param finished: whether only exchanges that are over count.
    """

    when: dict[str, Any] = {}
    times: Count | None = None
    at_least: Count | None = None
    at_most: Count | None = None
    timeout_s: Wait = 0
    finished: bool = False


def read_body(type_: type[T], *, optional: bool = False) -> T:
    """Return the JSON body of the current request.

    :param optional: whether no body at all counts as ``{}``.
    :raises ServerError: if it is no JSON object.
    :raises ValidationFailedError: naming every field that is wrong.
    """
    return cast(T, checked(*read(read_data(optional=optional), type_)))


def read_data(*, optional: bool = False) -> dict[str, Any]:
    """Return the JSON object in the body of the current request.

    :raises ServerError: if there is none.
    """
    if optional and not request.content_length and "Transfer-Encoding" not in request.headers:
        return {}
    return read_json_object(request)


def read_query(type_: type[T], numbers: Iterable[str] = ()) -> T:
    """Return the query of the current request.

    :param numbers: fields whose text stands for a number.
    :raises ValidationFailedError: naming every field that is wrong.
    """
    data: dict[str, Any] = {}
    for name, value in sole_values(request.args, *request.args).items():
        data[name] = int(value) if name in numbers and _is_number(value) else value
    return cast(T, checked(*read(data, type_)))


def checked(value: T | None, problems: Sequence[Problem]) -> T:
    """Return a value without problems.

    :raises ValidationFailedError: naming every field that is wrong.
    """
    if problems or value is None:
        raise invalid(problems)
    return value


def invalid(problems: Sequence[Problem]) -> ServerError:
    """Return the error that tells problems."""
    text = "; ".join(map(str, problems))
    return ValidationFailedError(text, param=problems[0].field if problems else None)


def filter_of(data: JournalQuery | SearchData | CheckData) -> EntryFilter:
    """Return what entries must have.

    :raises ValidationFailedError: naming every condition that is wrong, or what no entry can have.
    """
    when = {} if isinstance(data, JournalQuery) else data.when
    conditions, problems = read_conditions(when, ("when",))
    if problems:
        raise invalid(problems)
    try:
        return EntryFilter(
            conditions=conditions,
            rule=data.rule,
            fault=data.fault,
            status=data.status,
            ended=data.ended,
            group=data.group,
        )
    except ValueError as error:
        field = str(error).partition(":")[0]
        raise ValidationFailedError(str(error), param=field) from error


def current_scope(scopes: Scopes) -> Scope:
    """Return the scope that the current request names by path or header, or the default one.

    :raises ServerError: if there is no room for it, or its name cannot be.
    """
    return named_scope(scopes, asked_scope(request.environ) or "")


def named_scope(scopes: Scopes, name: str) -> Scope:
    """Return the scope of a name; it is made if it is not there.

    :raises ServerError: if there is no room for it, or its name cannot be.
    """
    try:
        return scopes.get(name)
    except ScopesFullError as error:
        raise OverloadedError(str(error)) from error
    except ValueError as error:
        raise ValidationFailedError(str(error), param="scope") from error


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 16
