"""Files and folders to rules and settings."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from caesar_server.mock.files import FixturesError, Problem, load_fixtures
from caesar_server.mock.model.call import Call
from caesar_server.mock.model.fault import Fault
from caesar_server.mock.model.pacing import Pacing
from caesar_server.mock.model.reply import Reply

WriteFile = Callable[[str, str], Path]
ProblemsOf = Callable[[str, str], list[str]]

RULES = """
seed: 7
fallback: {text: "What?"}
strict: true
pacing: {first_chunk_s: 0.1}
faults:
  - {kind: delay, delay_s: 1}
rules:
  - name: quantum
    when: {prompt: {contains: quantum}, attempt: 1.0}
    times: 2
    skip: 1
    priority: 10
    reply: Improved.
  - replies: [one, {text: two}]
  - fault: {kind: status, status: 429, retry_after_s: 0}
"""


def test_a_file_of_rules(write_file: WriteFile) -> None:
    fixtures = load_fixtures(write_file("a.yaml", RULES))
    assert fixtures.settings == {
        "seed": 7,
        "fallback": Reply(text="What?"),
        "strict": True,
        "pacing": Pacing(first_chunk_s=0.1),
        "faults": (Fault(kind="delay", delay_s=1),),
    }
    first, second, third = fixtures.rules
    assert (first.id, first.name, first.source) == ("a.yaml:quantum", "quantum", "a.yaml:9")
    assert (first.times, first.skip, first.priority) == (2, 1, 10)
    assert first.replies == (Reply(text="Improved."),)
    assert first.definition is not None
    assert first.definition["reply"] == "Improved."
    assert all(one.holds(Call(prompt="of quantum computers")) for one in first.conditions)
    assert not all(one.holds(Call(prompt="quantum", attempt=2)) for one in first.conditions)
    assert (second.id, second.source) == ("a.yaml:2", "a.yaml:15")
    assert second.replies == (Reply(text="one"), Reply(text="two"))
    assert third.faults == (Fault(kind="status", status=429, retry_after_s=0),)


def test_json_says_the_same(write_file: WriteFile) -> None:
    json_file = '{"rules": [{"name": "a",\n "when": {"stream": true},\n "reply": {"chunks": 2.0}}]}'
    (rule,) = load_fixtures(write_file("a.json", json_file)).rules
    assert (rule.id, rule.source, rule.replies) == ("a.json:a", "a.json:1", (Reply(chunks=2),))


def test_prompts_with_replies(write_file: WriteFile) -> None:
    path = write_file("f", '{"Hello": "Hi",\n "rules": "None.",\n "*": {"text": ["a", "b"]}}')
    rules = load_fixtures(path).rules
    assert [rule.source for rule in rules] == ["f:1", "f:2", "f:3"]
    assert [rule.replies[0] for rule in rules] == [
        Reply(text="Hi"),
        Reply(text="None."),
        Reply(text=("a", "b")),
    ]
    (condition,) = rules[2].conditions
    assert condition.holds(Call(prompt="*"))
    assert not condition.holds(Call(prompt="Hello"))


def test_a_folder(write_file: WriteFile, tmp_path: Path) -> None:
    for name in (
        "b.json",
        "a.yml",
        "sub/c.yaml",
        ".hidden.json",
        ".git/d.json",
        "e.json~",
        "f.txt",
    ):
        write_file(name, '{"rules": [{"reply": "x", "name": "n"}]}')
    rules = load_fixtures(tmp_path).rules
    assert [rule.id for rule in rules] == ["a.yml:n", "b.json:n", "sub/c.yaml:n"]


def test_what_anchors_stand_for_may_be_written_beside_the_rules(
    write_file: WriteFile, tmp_path: Path
) -> None:
    write_file(
        "a.yaml",
        """
x-usual: &usual {text: Hello, chunks: 2}
rules:
- reply: *usual
- reply: {<<: *usual, chunks: 3}
""",
    )
    replies = [rule.replies[0] for rule in load_fixtures(tmp_path).rules]
    assert replies == [Reply(text="Hello", chunks=2), Reply(text="Hello", chunks=3)]


def test_links_to_folders_are_followed_and_lead_nowhere_twice(
    write_file: WriteFile, tmp_path: Path
) -> None:
    for name in ("shared/a.json", "own/b.json", "own/sub/c.json"):
        write_file(name, '{"rules": [{"reply": "x", "name": "n"}]}')
    own = tmp_path / "own"
    (own / "common").symlink_to("../shared")
    (own / "sub" / "back").symlink_to("..")
    (tmp_path / "shared" / "own").symlink_to("../own")
    rules = load_fixtures(own).rules
    assert [rule.id for rule in rules] == ["b.json:n", "common/a.json:n", "sub/c.json:n"]


def test_links_are_followed_as_a_config_map_has_them(write_file: WriteFile, tmp_path: Path) -> None:
    write_file("..2024/a.json", '{"Hello": "Hi"}')
    (tmp_path / "..data").symlink_to("..2024")
    (tmp_path / "a.json").symlink_to("..data/a.json")
    assert [rule.id for rule in load_fixtures(tmp_path).rules] == ["a.json:1"]


def test_settings_may_be_in_any_file_but_must_not_differ(
    write_file: WriteFile, tmp_path: Path
) -> None:
    write_file("a.yaml", "seed: 7\nrules: []")
    write_file("b.yaml", "strict: true\nseed: 7\nrules: []")
    assert load_fixtures(tmp_path).settings == {"seed": 7, "strict": True}
    write_file("c.yaml", "rules: []\nseed: 8")
    with pytest.raises(FixturesError) as caught:
        load_fixtures(tmp_path)
    assert str(caught.value) == "c.yaml:2:1: seed: differs from a.yaml:1"


def test_every_problem_of_every_file_is_told(write_file: WriteFile, tmp_path: Path) -> None:
    write_file("a.yaml", "rules:\n  - reply: 5\n  - when: {promt: x}\n    reply: a\n    tims: 2\n")
    write_file("b.json", "{")
    with pytest.raises(FixturesError) as caught:
        load_fixtures(tmp_path)
    assert [(p.file, p.line, p.field) for p in caught.value.problems] == [
        ("a.yaml", 2, "rules[0].reply"),
        ("a.yaml", 3, "rules[1].when.promt"),
        ("a.yaml", 5, "rules[1].tims"),
        ("b.json", 1, ""),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "f.yaml:1:1: expected an object, got a list"),
        ("# nothing", "f.yaml: is empty: expected an object with the key 'rules'"),
        ("rules: [5]", "f.yaml:1:9: rules[0]: expected an object, got 5"),
        (
            "rules: [{reply: a}]\nfalback: echo",
            "f.yaml:2:1: falback: unknown field; did you mean 'fallback'?",
        ),
        ("rules: []\nfallback: ehco", "fallback: unknown value 'ehco'; did you mean 'echo'?"),
        ("rules: []\nfallback: {txt: a}", "fallback.txt: unknown field; did you mean 'text'?"),
        (
            "rules: [{prompt: a, reply: b}]",
            "f.yaml:1:10: rules[0].prompt: unknown field; did you mean 'rules[0].when.prompt'?",
        ),
        ("rules: [{status: 503}]", "did you mean 'rules[0].fault.status'?"),
        (
            "rules: [{fault: {kind: reset, times: 2}}]",
            "rules[0].fault.times: unknown field; did you mean 'rules[0].times'?",
        ),
        (
            "rules: [{reply: {text: a, finish_reason: stop}}]",
            "finish_reason: unknown field; did you mean 'rules[0].reply.choices[0].finish_reason'?",
        ),
        (
            "rules: [{reply: {choices: [{usage: {}}]}}]",
            "choices[0].usage: unknown field; did you mean 'rules[0].reply.usage'?",
        ),
        ("rules: [{reply: {text: a, ttfc: 1}}]", "reply.ttfc: unknown field; known: "),
        ("rules: []\nfallback: 5", "fallback: expected an object or a string, got 5"),
        ("rules: [{}]", "rules[0]: needs one of reply, replies, fault and faults"),
        (
            "rules: [{reply: a, fault: {kind: reset}}]",
            "rules[0].fault: has both reply and fault: a rule does one thing",
        ),
        ("rules: [{reply: 1.5}]", "rules[0].reply: expected a string or an object, got 1.5"),
        ("rules: [{reply: {text: true}}]", "reply.text: expected a string or a list, got true"),
        (
            "rules: [{reply: {results: [{url: u}]}}]",
            "f.yaml:1:28: rules[0].reply.results[0].title: is missing",
        ),
        (
            "rules: [{reply: {template: '{% if %}'}}]",
            "f.yaml:1:18: rules[0].reply.template: expected a Jinja template",
        ),
        (
            "rules: [{reply: {text: a, template: b}}]",
            "rules[0].reply.template: expected one of text, template and choices",
        ),
        (
            "rules: [{reply: {choices: [{text: ab, logprobs: [{token: a}]}]}}]",
            "rules[0].reply.choices[0].logprobs: expected tokens that join",
        ),
        ("rules: [{reply: a, times: -1}]", "times: expected a whole number of at least 0, got -1"),
        (
            "rules: [{reply: a, times: '2'}]",
            "times: expected a whole number of at least 0, got '2'",
        ),
        ("rules: [{reply: a, name: 5}]", "name: expected a string, got 5; put it in quotes"),
        ("rules: [{reply: a, name: ''}]", "name: expected 1 to 200 characters, got 0"),
        (
            "rules: [{reply: a, name: n}, {reply: b, name: n}]",
            "f.yaml:1:41: rules[1].name: another rule is called 'n'",
        ),
        ("rules: [{replies: []}]", "replies: expected at least one item, got an empty list"),
        ("rules: [{fault: {kind: rest}}]", "kind: unknown value 'rest'; did you mean 'reset'?"),
        ("rules: [{fault: {}}]", "rules[0].fault.kind: is missing"),
        (
            "rules: [{fault: {kind: reset, after_chunks: 1}}]",
            "fault.after_chunks: does not belong to reset; its fields: none",
        ),
        ("rules: [{faults: [{kind: delay}]}]", "faults[0].delay_s: delay needs it"),
        (
            "rules: [{fault: {kind: delay, delay_s: -1}}]",
            "delay_s: expected a number from 0 to 86400, got -1",
        ),
        ("rules: [{when: [], reply: a}]", "rules[0].when: expected an object, got a list"),
        (
            "rules:\n - reply: a\n   when:\n     headers:\n       x-team: 5",
            "f.yaml:5:8: rules[0].when.headers.x-team: ",
        ),
        ("rules: [{reply: a, when: {prompt: {regex: '('}}}]", "when.prompt.regex: "),
        ("rules: [{reply: a, when: {jmespath: 'a['}}]", "rules[0].when.jmespath: "),
        ("rules: [{reply: a, when: {attempt: true}}]", "rules[0].when.attempt: "),
        ("Hello: {txt: Hi}", "f.yaml:1:9: Hello.txt: unknown field; did you mean 'text'?"),
        ("Hello: 5", "f.yaml:1:1: Hello: expected a string or an object, got 5"),
        ("rules: {reply: a}", "has no list 'rules', so its keys are taken for prompts"),
    ],
)
def test_problems_are_told_with_place_and_field(
    problems_of: ProblemsOf, text: str, said: str
) -> None:
    assert any(said in problem for problem in problems_of("f.yaml", text)), problems_of(
        "f.yaml", text
    )


@pytest.mark.parametrize("expression", ["a[", "a b", "[?a"])
def test_a_problem_is_one_line(problems_of: ProblemsOf, expression: str) -> None:
    pytest.importorskip("jmespath")
    text = json.dumps({"rules": [{"reply": "a", "when": {"jmespath": expression}}]})
    (problem,) = problems_of("f.json", text)
    assert len(problem.splitlines()) == 1
    assert f"got {expression!r}: " in problem
    assert not problem.endswith((":", "^"))


def test_whatever_a_problem_says_is_one_line() -> None:
    problem = Problem("wrong:\n  a[\u2028\r\n   ^\n", ("rules", 0), "a\nb.yaml", 3, 4)
    assert str(problem) == "a b.yaml:3:4: rules[0]: wrong: a[ ^"
    assert len(str(FixturesError([problem, problem])).splitlines()) == 2


def test_what_is_no_file(tmp_path: Path, write_file: WriteFile) -> None:
    def said(path: Path) -> str:
        with pytest.raises(FixturesError) as caught:
            load_fixtures(path)
        return str(caught.value)

    assert said(tmp_path / "no.json").endswith("no.json: cannot be read: No such file or directory")
    assert said(tmp_path).endswith(": has no file that ends in .json, .yaml, .yml")
    os.mkfifo(tmp_path / "pipe.json")
    assert said(tmp_path / "pipe.json") == "pipe.json: is no file"
    (tmp_path / "latin.json").write_bytes(b'{"a":\n "\xe9"}')
    assert said(tmp_path / "latin.json") == "latin.json:2:3: is not UTF-8"
    (tmp_path / "large.json").write_bytes(b" " * (8 * 1024 * 1024 + 1))
    assert said(tmp_path / "large.json") == "large.json: is larger than 8388608 bytes"
    assert said(Path("a\0b")).endswith("is no path: embedded null byte")


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    for name in ("a.json", "a.yaml"):
        (tmp_path / name).write_bytes(b'\xef\xbb\xbf{"Hello": "Hi"}')
        assert len(load_fixtures(tmp_path / name).rules) == 1


def test_json_needs_no_extra_and_yaml_says_which(
    write_file: WriteFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    monkeypatch.delitem(sys.modules, "caesar_server.mock.files.text.yaml_text", raising=False)
    assert load_fixtures(write_file("a.json", '{"rules": []}')).rules == ()
    with pytest.raises(
        FixturesError, match=r"a.yaml: YAML needs PyYAML: pip install 'caesar-serve"
    ):
        load_fixtures(write_file("a.yaml", "rules: []"))


LETTERS = (
    'rules when reply fault kind prompt contains text reset status : - { } [ ] , " 5 -1 1e400 null '
    "true é &a *a << headers jmespath regex ( \\ body anything template {{ {% replies faults name"
)
WORDS = LETTERS.split()
SPACES = ["\n", "\n  ", "\n    ", ": ", "- ", "\u2028", " "]


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(st.sampled_from([*WORDS, *SPACES]), max_size=30).map("".join),
    st.sampled_from(["f.json", "f.yaml"]),
)
def test_any_file_is_loaded_or_refused_by_name(tmp_path: Path, text: str, name: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert files_at_fault(tmp_path / name) <= {name}


@settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.binary(max_size=60), st.sampled_from(["f.json", "f.yaml"]))
def test_any_bytes_are_loaded_or_refused_by_name(tmp_path: Path, data: bytes, name: str) -> None:
    (tmp_path / name).write_bytes(data)
    assert files_at_fault(tmp_path / name) <= {name}


def files_at_fault(path: Path) -> set[str]:
    try:
        load_fixtures(path)
    except FixturesError as error:
        return {problem.file for problem in error.problems} or {"no problem was told"}
    return set()
