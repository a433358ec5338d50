"""Options: one definition, and sentences that say what is wrong and where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caesar_server.contract import OptionsError, option
from caesar_server.contract.options import OptionField, option_fields, parse_options, parse_value


@dataclass(frozen=True)
class Search:
    url: str = option(help="Where it is.")
    timeout_s: float = option(5.0, help="How long to wait.", minimum=0.1, maximum=60)


@dataclass(frozen=True)
class Options:
    name: str = option("x", help="A name.")
    count: int = option(1, help="How many.", minimum=1, maximum=10)
    ratio: float = option(0.5, help="A share.", minimum=0)
    loud: bool = option(False, help="Loud or not.")
    mode: Literal["fast", "slow"] = option("fast", help="Which way.")
    key: str | None = option(None, help="A key.", secret=True)
    tags: tuple[str, ...] = option((), help="Some words.")
    ports: tuple[int, ...] = option((), help="Some numbers.")
    search: Search | None = option(None, help="A service.")
    engines: Mapping[str, Search] = option(help="Services by name.", default_factory=dict)
    limits: Mapping[str, int] = option(help="Limits by name.", default_factory=dict)
    keys: Mapping[str, str] = option(help="Keys.", default_factory=dict, secret=True)
    pin: int = option(1, help="A secret number.", secret=True, maximum=9)
    servers: tuple[Search, ...] = option((), help="Services in order.")


def problems_of(**values: object) -> tuple[str, ...]:
    with pytest.raises(OptionsError) as caught:
        parse_options(Options, values)
    return caught.value.problems


@pytest.mark.parametrize(
    ("name", "given_", "expected"),
    [
        ("name", "y", "y"),
        ("count", 10, 10),
        ("count", "7", 7),
        ("ratio", 2, 2.0),
        ("ratio", "0.25", 0.25),
        ("loud", True, True),
        ("loud", "true", True),
        ("loud", "FALSE", False),
        ("loud", "1", True),
        ("mode", "slow", "slow"),
        ("key", None, None),
        ("key", "abc", "abc"),
        ("tags", ["a", "b"], ("a", "b")),
        ("tags", "a, b,", ("a", "b")),
        ("tags", "", ()),
        ("ports", [1, 2], (1, 2)),
        ("ports", "1, 2", (1, 2)),
        ("search", {"url": "u"}, Search("u")),
        ("search", {"url": "u", "timeout_s": "2"}, Search("u", 2.0)),
        ("search", None, None),
        ("engines", {"a": {"url": "u"}}, {"a": Search("u")}),
        ("limits", {"a": 1}, {"a": 1}),
        ("servers", [{"url": "u"}, {"url": "v"}], (Search("u"), Search("v"))),
    ],
)
def test_a_value_of_each_type_is_taken(name: str, given_: object, expected: object) -> None:
    result = getattr(parse_options(Options, {name: given_}), name)
    assert result == expected
    assert type(result) is type(expected)


@pytest.mark.parametrize(
    ("name", "given_", "problem"),
    [
        ("name", 5, "name: expected string, got 5"),
        ("count", "many", "count: expected integer, got 'many'"),
        ("count", 1.5, "count: expected integer, got 1.5"),
        ("count", True, "count: expected integer, got True"),
        ("count", None, "count: expected integer, got None"),
        ("count", 0, "count: expected 1 to 10, got 0"),
        ("count", "11", "count: expected 1 to 10, got 11"),
        ("ratio", False, "ratio: expected number, got False"),
        ("ratio", -0.1, "ratio: expected at least 0, got -0.1"),
        ("ratio", "nan", "ratio: expected at least 0, got nan"),
        ("ratio", float("inf"), "ratio: expected a finite number, got inf"),
        ("loud", "maybe", "loud: expected true or false, got 'maybe'"),
        ("loud", 1, "loud: expected true or false, got 1"),
        ("mode", "quick", "mode: expected one of fast, slow, got 'quick'"),
        ("tags", 5, "tags: expected list of strings, got 5"),
        ("tags", ["a", 5], "tags: expected list of strings, got ['a', 5]"),
        ("ports", "1,x", "ports: expected list of integers, got '1,x'"),
        ("search", "u", "search: expected a table, got 'u'"),
        ("search", {}, "search.url: required and missing (Where it is.)"),
        ("search", {"url": "u", "timeout_s": 61}, "search.timeout_s: expected 0.1 to 60, got 61.0"),
        ("search", {"url": "u", "ulr": 1}, "search.ulr: unknown; did you mean search.url?"),
        ("engines", [1], "engines: expected a table, got [1]"),
        ("engines", {"a": 1}, "engines.a: expected a table, got 1"),
        ("engines", {"a": {"url": 1}}, "engines.a.url: expected string, got 1"),
        ("engines", {"a": {"url": "u", "x": 1}}, "engines.a.x: unknown; known: timeout_s, url"),
        ("limits", {"a": "no"}, "limits.a: expected integer, got 'no'"),
        ("servers", [{"url": "u"}, {"ulr": "v"}], "servers.1.ulr: unknown; did you mean"),
        ("cuont", 1, "cuont: unknown; did you mean count?"),
        ("zzzzzz", 1, "zzzzzz: unknown; known: count, engines, "),
    ],
)
def test_a_wrong_value_is_refused_in_one_sentence(name: str, given_: object, problem: str) -> None:
    first = problems_of(**{name: given_})[0]
    assert first.startswith(problem)


def test_everything_that_is_wrong_is_said_at_once() -> None:
    found = problems_of(count=0, nmae="x", search={"url": 1, "timeout_s": 0})
    assert [problem.split(":")[0] for problem in found] == [
        "count",
        "nmae",
        "search.url",
        "search.timeout_s",
    ]
    assert str(OptionsError(found)) == "; ".join(found)


def test_two_wrong_items_of_a_table_are_both_named() -> None:
    found = problems_of(limits={"a": "no", "b": 1, "c": "never"})
    assert [problem.split(":")[0] for problem in found] == ["limits.a", "limits.c"]


SECRET = "hunter2"


@pytest.mark.parametrize(
    ("name", "given_"),
    [
        ("key", [SECRET]),
        ("keys", {"a": [SECRET]}),
        ("keys", SECRET),
        ("keys", [SECRET]),
        ("pin", SECRET),
        ("pin", 4711),
    ],
)
def test_a_secret_is_never_quoted(name: str, given_: object) -> None:
    (problem,) = problems_of(**{name: given_})
    assert problem.startswith(name)
    assert SECRET not in problem
    assert "4711" not in problem


def test_the_prefix_is_part_of_every_name() -> None:
    with pytest.raises(OptionsError) as caught:
        parse_options(Options, {"cuont": 1, "loud": "?", "search": {}}, prefix="backends.demo.")
    assert all(problem.startswith("backends.demo.") for problem in caught.value.problems)
    assert "did you mean backends.demo.count?" in str(caught.value)


def test_nothing_known_is_said_too() -> None:
    @dataclass(frozen=True)
    class Empty:
        pass

    with pytest.raises(OptionsError, match=r"^x: unknown; known: none$"):
        parse_options(Empty, {"x": 1})


def test_fields_describe_themselves() -> None:
    fields = {entry.name: entry for entry in option_fields(Options)}
    assert {name: entry.type_name for name, entry in fields.items()} == {
        "name": "string",
        "count": "integer",
        "ratio": "number",
        "loud": "true or false",
        "mode": "one of fast, slow",
        "key": "string",
        "tags": "list of strings",
        "ports": "list of integers",
        "search": "table",
        "engines": "table",
        "limits": "table",
        "keys": "table",
        "pin": "integer",
        "servers": "list of tables",
    }
    assert fields["mode"].choices == ("fast", "slow")
    assert fields["name"].choices == ()
    assert [fields[name].range for name in ("count", "ratio", "pin", "name")] == [
        "1 to 10",
        "at least 0",
        "at most 9",
        "",
    ]
    assert fields["engines"].default == {}
    assert not fields["engines"].required


def test_a_required_option_has_no_default() -> None:
    url, timeout_s = option_fields(Search)
    assert (url.required, url.default, timeout_s.required) == (True, None, False)


def test_a_plain_dataclass_field_is_an_option_without_help() -> None:
    @dataclass(frozen=True)
    class Plain:
        size: int = 3
        tags: tuple[str, ...] = field(default=())

    Plain.__annotations__.update(size=int, tags=tuple[str, ...])
    assert [entry.info.help for entry in option_fields(Plain)] == ["", ""]
    assert parse_options(Plain, {"size": 4}) == Plain(4)


def take(entry: OptionField, value: object) -> tuple[object, tuple[str, ...]]:
    try:
        return parse_value(entry, value), ()
    except OptionsError as error:
        return None, error.problems


@given(st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.text()))
def test_no_value_raises_anything_but_options_error(value: Any) -> None:
    for entry in option_fields(Options):
        result, problems = take(entry, value)
        assert all(problem.startswith(entry.name) for problem in problems)
        # what was accepted is a value of the option: it is accepted again
        assert problems or take(entry, result) == (result, ())


@dataclass(frozen=True)
class Bounded:
    ports: tuple[int, ...] = option((), help="Some numbers.", minimum=1, maximum=9)
    shares: Mapping[str, float] = option(help="Shares.", default_factory=dict, minimum=0)


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"ports": [1, 10]}, "ports: expected 1 to 9, got 10"),
        ({"ports": "0"}, "ports: expected 1 to 9, got 0"),
        ({"shares": {"a": -0.5}}, "shares: expected at least 0, got -0.5"),
        ({"shares": {"a": float("nan")}}, "shares: expected at least 0, got nan"),
    ],
)
def test_bounds_hold_for_each_number_of_a_list_or_table(values, problem: str) -> None:
    with pytest.raises(OptionsError) as caught:
        parse_options(Bounded, values)
    assert caught.value.problems == (problem,)


@dataclass(frozen=True)
class Paths:
    folder: Path = option(Path(), help="Where to look.")
    more: tuple[Path, ...] = option((), help="Where else.")


def test_a_path_is_one() -> None:
    parsed = parse_options(Paths, {"folder": "/srv", "more": "a,b"})
    assert parsed == Paths(Path("/srv"), (Path("a"), Path("b")))
    assert [field.type_name for field in option_fields(Paths)] == ["path", "list of paths"]


def test_a_path_may_begin_with_the_users_home(monkeypatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    parsed = parse_options(Paths, {"folder": "~/models", "more": ["~", "a/~", "~nobody-here/x"]})
    assert parsed.folder == Path("/home/me/models")
    assert parsed.more == (Path("/home/me"), Path("a/~"), Path("~nobody-here/x"))


@pytest.mark.parametrize("value", ["", 3, None, ["a"]])
def test_what_is_no_path_is_refused(value: object) -> None:
    with pytest.raises(OptionsError, match="folder: expected path, got"):
        parse_options(Paths, {"folder": value})


@dataclass(frozen=True)
class Span:
    low: int = option(1, help="The least.")
    high: int = option(9, help="The most.")
    width: int = field(init=False)

    def __post_init__(self) -> None:
        if self.low < 0:
            raise OptionsError([f"low: expected at least 0, got {self.low}"])
        if self.low > self.high:
            raise ValueError("low is above high")
        object.__setattr__(self, "width", self.high - self.low)


@pytest.mark.parametrize(
    ("values", "prefix", "problem"),
    [
        ({"low": 10}, "", "options: low is above high"),
        ({"low": 10}, "backends.x.", "backends.x: low is above high"),
        ({"low": -1}, "backends.x.", "backends.x.low: expected at least 0, got -1"),
        ({"width": 1}, "backends.x.", "backends.x.width: unknown; known: high, low"),
    ],
)
def test_what_the_dataclass_finds_wrong_is_a_problem_of_the_options(
    values, prefix: str, problem: str
) -> None:
    with pytest.raises(OptionsError) as caught:
        parse_options(Span, values, prefix=prefix)
    assert caught.value.problems == (problem,)


def test_what_init_does_not_take_is_no_option() -> None:
    assert [field.name for field in option_fields(Span)] == ["low", "high"]
    assert parse_options(Span, {"low": 2}).width == 7


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [({"help": None}, "help: "), ({"minimum": "1"}, "minimum: "), ({"maximum": "9"}, "maximum: ")],
)
def test_a_definition_that_cannot_be_shown_is_refused_where_it_stands(wrong, problem) -> None:
    with pytest.raises(TypeError, match=problem):
        option(1, **{"help": "A number.", **wrong})
