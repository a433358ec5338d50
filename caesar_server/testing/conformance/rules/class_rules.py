"""Rules about the class: what can be known before anything is asked."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import msgspec

from caesar_server.contract import CONTRACT_VERSION, Capabilities, Health, Model, OptionsError
from caesar_server.contract.events import Channel
from caesar_server.contract.options import option_fields, parse_options, parse_value
from caesar_server.contract.request import RequestKind
from caesar_server.registry import methods_problem
from caesar_server.testing.conformance.resources import Resources, left_since
from caesar_server.testing.conformance.rule import Fail, Outcome, Pass, rule
from caesar_server.testing.conformance.subject import Subject

_NO_SUCH_OPTION = "no_such_option_of_any_backend"
_HEALTH_S = 1.0


@rule(
    "class.contract_version",
    "A server refuses to load a backend that was written for a later contract than its own.",
)
def contract_version(subject: Subject) -> Outcome:
    """contract_version is an integer from 1 to the server's own CONTRACT_VERSION."""
    version: object = subject.backend_class.contract_version
    if isinstance(version, int) and 1 <= version <= CONTRACT_VERSION:
        return Pass()
    return Fail(repr(version), f"an integer from 1 to {CONTRACT_VERSION}")


@rule(
    "class.capabilities",
    "The server decides by it what to send, what to adapt and what to refuse.",
)
def capabilities(subject: Subject) -> Outcome:
    """capabilities is a Capabilities that accepts some of the request kinds."""
    seen: object = subject.backend_class.capabilities
    if not isinstance(seen, Capabilities):
        return Fail(repr(seen), "an instance of caesar_server.contract.Capabilities")
    for name, known in (("accepts", get_args(RequestKind)), ("channels", get_args(Channel))):
        values: object = getattr(seen, name)
        if not isinstance(values, frozenset) or not values or not values <= set(known):
            return Fail(f"{name}={values!r}", f"a frozenset of some of {', '.join(known)}")
    deadline_s: object = seen.cancel_deadline_s
    if not isinstance(deadline_s, (int, float)) or deadline_s <= 0:
        return Fail(f"cancel_deadline_s={deadline_s!r}", "seconds, above 0")
    return Pass()


@rule(
    "class.methods",
    "The server calls them in threads, without an event loop: what is async never begins.",
)
def methods(subject: Subject) -> Outcome:
    """__init__, run, open, close, models and health are plain and take what the server gives."""
    problem = methods_problem(subject.backend_class)
    return Pass() if problem is None else Fail(problem.reason, problem.hint)


@rule(
    "options.schema",
    "The server validates, prints and documents options from it; operators read its sentences.",
)
def options_schema(subject: Subject) -> Outcome:
    """options_schema is a frozen dataclass, and each option says in a sentence what it is for."""
    schema: object = subject.backend_class.options_schema
    expected = "a class made with @dataclass(frozen=True)"
    if not isinstance(schema, type) or not dataclasses.is_dataclass(schema):
        return Fail(repr(schema), expected)
    if not schema.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        return Fail(f"{schema.__name__} is not frozen", expected)
    silent = [field.name for field in option_fields(schema) if not field.info.help.strip()]
    if silent:
        return Fail(f"no help for {', '.join(silent)}", "fields made with option(..., help=...)")
    for field in option_fields(schema):
        if (kind := _unreadable(field.type)) is not None:
            return Fail(f"{field.name} is of the type {kind}", "a type that contract.options names")
    return Pass()


def _unreadable(kind: Any, above: tuple[Any, ...] = ()) -> str | None:
    """Return the type within ``kind`` that nothing in a settings file can be, or None.

    :param above: the dataclasses that hold it; one may hold itself.
    """
    unreadable: list[str] = []

    def note(inner: type[Any]) -> dict[str, Any]:
        if inner is not Path:
            unreadable.append(inner.__name__)
        return {"type": "string"}

    # msgspec's schema of a dataclass has its defaults, too, and there may be no form for them
    if kind in above:
        return None
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        kinds = [field.type for field in option_fields(kind)]
        return next(filter(None, (_unreadable(one, (*above, kind)) for one in kinds)), None)
    if _holds_tables(kind):
        kinds = [one for one in get_args(kind) if one is not ...]
        return next(filter(None, (_unreadable(one, above) for one in kinds)), None)
    msgspec.json.schema(kind, schema_hook=note)
    return unreadable[0] if unreadable else None


def _holds_tables(kind: Any) -> bool:
    return dataclasses.is_dataclass(kind) or any(map(_holds_tables, get_args(kind)))


@rule(
    "options.defaults",
    "Otherwise writing the documented default into the settings file stops the backend.",
    needs=("options.schema",),
)
def options_defaults(subject: Subject) -> Outcome:
    """Each default is a value that the option itself would accept."""
    for field in option_fields(subject.backend_class.options_schema):
        if field.required:
            continue
        try:
            parsed = parse_value(field, _as_written(field.default))
        except OptionsError as error:
            return Fail(str(error), "a default of the option's own type and range")
        if parsed != field.default:
            # a text in place of a path, say: a default is not converted as what is set is
            return Fail(f"the default of {field.name} is {field.default!r}", repr(parsed))
    return Pass()


def _as_written(value: Any) -> Any:
    """Return a default as it would stand in the settings file."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _as_written(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_as_written(item) for item in value]
    if dataclasses.is_dataclass(value):
        fields = option_fields(type(value))
        return {field.name: _as_written(getattr(value, field.name)) for field in fields}
    return value


@rule(
    "options.accepted",
    "Options are validated when the plugin is loaded; wrong ones keep it from loading.",
    needs=("options.schema",),
)
def options_accepted(subject: Subject) -> Outcome:
    """The options that the check was given are valid."""
    try:
        parse_options(subject.backend_class.options_schema, subject.options)
    except OptionsError as error:
        return Fail(str(error), "options that fit the schema")
    return Pass()


@rule(
    "options.unknown_refused",
    "A misspelt option that is silently ignored looks like one that has no effect.",
    needs=("options.accepted",),
)
def options_unknown_refused(subject: Subject) -> Outcome:
    """An option that the schema does not have is refused."""
    schema = subject.backend_class.options_schema
    if _NO_SUCH_OPTION in {field.name for field in option_fields(schema)}:
        return Fail(f"the schema has the option {_NO_SUCH_OPTION}", "no such option")
    try:
        parse_options(schema, {**subject.options, _NO_SUCH_OPTION: 1})
    except OptionsError:
        return Pass()
    return Fail(f"{_NO_SUCH_OPTION} = 1 was accepted", "OptionsError")


@rule(
    "class.init_is_cheap",
    "Instances are made before the server forks; threads and sockets do not survive that.",
    needs=(
        "class.methods",
        "options.accepted",
    ),
)
def init_is_cheap(subject: Subject) -> Outcome:
    """Making an instance starts no thread and opens no file or socket."""
    before = Resources.now()
    backend = subject.make()
    left = left_since(before, wait_s=0)
    del backend  # it lived until here, and with it what it may hold
    return Fail(f"__init__ left {left}", "nothing before open()") if left else Pass()


@rule(
    "models.before_open",
    "GET /compat/models lists every backend, also those that nobody has used yet.",
    needs=("class.methods", "options.accepted"),
)
def models_before_open(subject: Subject) -> Outcome:
    """models() works before open() and returns models with different ids."""
    models = subject.call("models()", subject.make().models)
    for model in models:
        fields: tuple[object, ...] = dataclasses.astuple(model) if type(model) is Model else ()
        if list(map(type, fields)) != [str, int, str]:
            return Fail(repr(model), "a Model of id (str), created (int), owned_by (str)")
        if not (model.id.isprintable() and model.owned_by.isprintable()):
            return Fail(repr(model), "printable characters")
    twice = [id for id, count in Counter(model.id for model in models).items() if count > 1]
    if twice:
        return Fail(f"the id {twice[0]!r} twice", "each id once")
    return Pass()


@rule(
    "health.value",
    "It is asked for at every readiness probe; a slow one takes the whole server out of service.",
    needs=("life.opens",),
)
def health_value(subject: Subject) -> Outcome:
    """health() returns a Health within a second."""
    backend = subject.backend
    started = time.monotonic()
    health: object = subject.call("health()", backend.health)
    took_s = time.monotonic() - started
    if not isinstance(health, Health) or health.status not in ("ok", "degraded", "down"):
        return Fail(repr(health), "a Health with the status ok, degraded or down")
    if took_s > _HEALTH_S:
        return Fail(f"{took_s:.1f} s", f"at most {_HEALTH_S:g} s")
    return Pass()
