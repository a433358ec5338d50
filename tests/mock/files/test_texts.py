"""JSON and YAML to data, and the place of whatever is wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from caesar_server.mock.files import FixturesError
from caesar_server.mock.files.problems import field_name
from caesar_server.mock.files.text.json_text import read_json
from caesar_server.mock.files.text.yaml_text import read_yaml

from .drawing import JSON, TEXT


def fault(read: Any, text: str) -> str:
    with pytest.raises(FixturesError) as caught:
        read("f", text)
    return str(caught.value)


def test_each_value_has_its_place_in_json() -> None:
    document = read_json("f", '{"a": [1,\n  {"b": "x"}],\n "c": {}}')
    assert document.data == {"a": [1, {"b": "x"}], "c": {}}
    assert document.places == {
        (): (1, 1),
        ("a",): (1, 2),
        ("a", 0): (1, 8),
        ("a", 1): (2, 3),
        ("a", 1, "b"): (2, 4),
        ("c",): (3, 2),
    }


def test_each_value_has_its_place_in_yaml() -> None:
    document = read_yaml("f", "a:\n  - 1\n  - b: x\nc: {}\n")
    assert document.data == {"a": [1, {"b": "x"}], "c": {}}
    assert document.places == {
        (): (1, 1),
        ("a",): (1, 1),
        ("a", 0): (2, 5),
        ("a", 1): (3, 5),
        ("a", 1, "b"): (3, 5),
        ("c",): (4, 1),
    }


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("no", "no"),
        ("on", "on"),
        ("12:30", "12:30"),
        ("2024-01-31", "2024-01-31"),
        ("1_000", "1_000"),
        ("0o17", 15),
        ("0x1F", 31),
        ("017", 17),
        ("-3", -3),
        ("1.", 1.0),
        ("1e3", 1000.0),
        (".5", 0.5),
        (".inf", ".inf"),
        (".nan", ".nan"),
        ("True", True),
        ("~", None),
        ("null", None),
        ("'null'", "null"),
        ("=", "="),
        ("<<", "<<"),
        ("!!str 5", "5"),
    ],
)
def test_plain_scalars_are_those_of_yaml_1_2(text: str, data: object) -> None:
    found = read_yaml("f", f"a: {text}").data["a"]
    assert (found, type(found)) == (data, type(data))


def test_an_empty_yaml_file_is_none() -> None:
    assert read_yaml("f", "# nothing\n").data is None
    assert read_yaml("f", "a:\n").data == {"a": None}


def test_anchors_and_merge_keys() -> None:
    text = """
    base: &base {times: 2, priority: 1}
    other: &other {times: 3, skip: 1}
    one: {<<: *base, priority: 5}
    two: {skip: 9, <<: [*base, *other]}
    again: *base
    """
    data = read_yaml("f", text).data
    assert data["one"] == {"times": 2, "priority": 5}
    assert data["two"] == {"times": 2, "priority": 1, "skip": 9}
    assert data["again"] == {"times": 2, "priority": 1}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": 1,\n "a": 2}', "f:2:2: a: is there twice"),
        ('{"a": 1,\n "b" 2}', "f:2:6: is not valid JSON: expecting ':' delimiter"),
        ("", "f:1:1: is not valid JSON: expecting value"),
        ("[NaN]", "f:1:2: [0]: JSON has no NaN"),
        ('{"a": -Infinity}', "f:1:7: a: JSON has no -Infinity"),
        (
            '{"a": 1,\n "b": [-' + "9" * 5000 + "]}",
            "f:2:8: b[0]: the number has too many digits, 5001",
        ),
        ('{"a": [1e999]}', "f:1:8: a[0]: the number is too large"),
        ('{"a": "\\ud800"}', "f:1:2: a: has half a surrogate pair, which is no text"),
        ('{"\\ud800": 1}', "f:1:1: the key has half a surrogate pair, which is no text"),
        ("[" * 60 + "]" * 60, "f:1:51: is nested too deeply"),
        ("[" * 100_000, "f: is nested too deeply"),
    ],
)
def test_json_that_is_none(text: str, said: str) -> None:
    assert fault(read_json, text) == said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\nb: 2\na: 3", "f:3:1: a: is there twice"),
        ("a: [1,", "f:1:7: is not valid YAML: expected the node content, but found "),
        ("a: b: c", "f:1:5: is not valid YAML: mapping values are not allowed here"),
        ("a: *b", "f:1:4: is not valid YAML: found undefined alias 'b'"),
        ("--- 1\n--- 2", "f:2:1: is not valid YAML: but found another document"),
        ("a:\n  1: b", "f:2:3: a: keys are strings: write '1' in quotes"),
        ("true: b", "f:1:1: keys are strings: write 'true' in quotes"),
        ("? [a]\n: b", "f:1:3: keys are strings, not lists or objects"),
        ("a: !!binary aGk=", "f:1:4: a: the tag 'tag:yaml.org,2002:binary' is not supported"),
        ("- !!python/object:os.system {}", "f:1:3: [0]: the tag 'tag:yaml.org,2002:python"),
        ("!!int x", "f:1:1: 'x' is no number, or one with too many digits"),
        ("!!float .inf", "f:1:1: '.inf' is no number"),
        ("9" * 5000, "f:1:1: '9999999999999999999999999999999999999999' is no number"),
        ("a: &a [*a]", "f:1:4: a[0]: an anchor is used within itself"),
        ("a: &a {<<: *a}", "f:1:4: a: an anchor is used within itself"),
        ("a: {<<: [1]}", "f:1:10: a: << takes objects"),
        ("a: 1e999", "f:1:1: a: the number is too large"),
        ('a: "\\uD800"', "f:1:1: a: has half a surrogate pair"),
        ('"\\UFFFFFFFF"', "f: is not valid YAML: an escape stands for no character"),
        (
            "ab: c\x01",
            "f:1:6: is not valid YAML: the character '\\x01' must be written as an escape",
        ),
        ("- " * 60 + "a", "f:1:101: "),
        ("[" * 700, "f: is nested too deeply"),
    ],
)
def test_yaml_that_is_none(text: str, said: str) -> None:
    assert fault(read_yaml, text).startswith(said)


def test_anchors_do_not_multiply_without_end() -> None:
    bomb = "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
        f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 10)
    )
    assert "has more than 100000 values" in fault(read_yaml, bomb)


def test_a_long_json_file_is_no_longer_than_others() -> None:
    assert "has more than 100000 values" in fault(read_json, f"[{'1,' * 100_000}1]")


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ((), ""),
        (("rules", 0, "reply", "results", 1), "rules[0].reply.results[1]"),
        (("$schema",), "$schema"),
        (("What is new?", "chunks"), '"What is new?".chunks'),
        (("metadata", ""), 'metadata.""'),
        (("a\nb",), '"a\\nb"'),
        (("x" * 100 + "!",), f'"{"x" * 59}…"'),
    ],
)
def test_names_of_fields(path: tuple[str | int, ...], name: str) -> None:
    assert field_name(path) == name


@settings(max_examples=100, deadline=None)
@given(JSON, st.sampled_from([None, 1, "\t"]), st.booleans())
def test_json_is_read_as_the_library_reads_it(data: Any, indent: Any, ascii_only: bool) -> None:
    text = json.dumps(data, indent=indent, ensure_ascii=ascii_only)
    document = read_json("f", text)
    assert document.data == json.loads(text)
    assert set(document.places) == set(paths(document.data, ()))


class QuotingDumper(yaml.SafeDumper):
    """Writes each text in quotes: without them ``0E0`` is a text to YAML 1.1 and none to 1.2."""


QuotingDumper.add_representer(
    str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"')
)


@settings(max_examples=60, deadline=None)
@given(JSON)
@example({"0E0": ["0E0", "1e3"]})
def test_yaml_is_read_as_the_library_wrote_it(data: Any) -> None:
    document = read_yaml("f", yaml.dump(data, Dumper=QuotingDumper))
    assert document.data == data
    assert set(document.places) == set(paths(data, ()))


def paths(value: Any, path: tuple[str | int, ...]) -> Any:
    yield path
    members = value.items() if isinstance(value, dict) else ()
    if isinstance(value, list):
        members = enumerate(value)
    for key, member in members:
        yield from paths(member, (*path, key))


SPECIAL = (
    "{ } [ ] : , \" ' \\ - ? & * &a *a !!int ! | > % # << ... --- 1e9 0x null true \\u = rules"
)
PIECES = st.one_of(
    TEXT,
    st.sampled_from(SPECIAL.split()),
    st.sampled_from(["\n", "  ", "\t", "- ", "? ", "a: ", "\x00", "\ufeff", "\u2028", '"\\ud800"']),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(PIECES, max_size=25).map("".join))
def test_any_text_is_read_or_refused(text: str) -> None:
    for read in (read_json, read_yaml):
        assert all(problem.startswith("f") for problem in problems(read, text))


def problems(read: Any, text: str) -> list[str]:
    try:
        read("f", text)
    except FixturesError as error:
        return [str(problem) for problem in error.problems]
    return []
