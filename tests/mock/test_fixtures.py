"""The backend's option ``fixtures``: what becomes of the files that it names."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from caesar_server.contract import (
    CompletionRequest,
    ContentDelta,
    Event,
    Failed,
    OptionsError,
    ResultFound,
    Sampling,
)
from caesar_server.contract.options import parse_options
from caesar_server.mock.backend import MockBackend, MockOptions
from caesar_server.testing import collect_events

Write = Callable[[object], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a fixtures file from JSON values, text or bytes."""

    def write(content: object) -> Path:
        path = tmp_path / "fixtures.json"
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            text = content if isinstance(content, str) else json.dumps(content)
            path.write_text(text, encoding="utf-8")
        return path

    return write


def opened(path: Path) -> MockBackend:
    backend = MockBackend(MockOptions(fixtures=path))
    backend.open()
    return backend


def events(backend: MockBackend, prompt: str, n: int = 1) -> list[Event]:
    return collect_events(backend, CompletionRequest(prompts=(prompt,), sampling=Sampling(n=n)))


def text(backend: MockBackend, prompt: str, n: int = 1) -> list[str]:
    found = [""] * n
    for event in events(backend, prompt, n):
        if isinstance(event, ContentDelta):
            found[event.choice] += event.text
    return found


def test_a_string_is_a_text(write: Write) -> None:
    backend = opened(write({"hi": "hello", "": "nothing", "empty": ""}))
    assert [text(backend, prompt) for prompt in ("hi", "", "empty")] == [
        ["hello"],
        ["nothing"],
        [""],
    ]


def test_a_prompt_must_match_exactly_and_others_are_repeated(write: Write) -> None:
    backend = opened(write({"hi": "hello"}))
    for prompt in ("Hi", "hi ", "hi\n", "hello"):
        assert text(backend, prompt) == [prompt]


def test_several_texts_are_for_the_choices_in_turn(write: Write) -> None:
    assert text(opened(write({"hi": {"text": ["a", "b"]}})), "hi", 3) == ["a", "b", "a"]


def test_a_result_has_the_same_id_each_time_unless_it_has_its_own(write: Write) -> None:
    results = [{"title": "A", "url": "u"}, {"title": "B", "url": "u", "id": "own"}]
    path = write({"hi": {"results": results}})
    first, second = (
        [event.id for event in events(opened(path), "hi") if isinstance(event, ResultFound)]
        for _ in range(2)
    )
    assert first == second
    assert (len(first[0]), first[1]) == (36, "own")


def test_a_byte_order_mark_is_skipped(write: Write) -> None:
    assert text(opened(write(b'\xef\xbb\xbf{"hi": "\xc3\xa9"}')), "hi") == ["é"]


def test_a_file_of_rules_is_taken_too_with_what_it_says_of_other_prompts(write: Write) -> None:
    rules = [{"when": {"prompt": {"contains": "quant"}}, "reply": "Yes."}]
    backend = opened(write({"strict": True, "rules": rules}))
    assert text(backend, "quantum") == ["Yes."]
    (failed,) = events(backend, "other")
    assert isinstance(failed, Failed)
    assert (failed.error.status, failed.error.code) == (404, "no_fixture_match")


def test_a_folder_holds_files(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"one": "1"}')
    (tmp_path / "b.json").write_text('{"two": "2"}')
    backend = opened(tmp_path)
    assert (text(backend, "one"), text(backend, "two")) == (["1"], ["2"])


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ('{"hi": ', "fixtures: fixtures.json:1:"),
        (b"\xff", "fixtures: fixtures.json"),
        ([], "fixtures: fixtures.json"),
        ({"hi": 1}, "fixtures: fixtures.json:1:2: hi: "),
        ({"hi": {"txt": "a"}}, "fixtures: fixtures.json:1:9: hi"),
        ({"hi": {"text": []}}, "fixtures: fixtures.json:1:9: hi.text: "),
        ({"hi": {"template": "{{"}}, "fixtures: fixtures.json:1:9: hi.template: "),
        ({"hi": {"error": {"message": "m", "status": 200}}}, "fixtures: fixtures.json:1:"),
    ],
)
def test_a_wrong_file_is_told_by_file_line_and_field(
    write: Write, content: object, problem: str
) -> None:
    with pytest.raises(OptionsError) as caught:
        opened(write(content))
    assert caught.value.problems[0].startswith(problem)


def test_everything_that_is_wrong_is_told_at_once(write: Write) -> None:
    with pytest.raises(OptionsError) as caught:
        opened(write({"a": 1, "b": "fine", "c": {"chunks": "x"}}))
    assert [problem.split(": ")[2] for problem in caught.value.problems] == ["a", "c.chunks"]


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(OptionsError, match=r"fixtures: .*missing\.json"):
        opened(tmp_path / "missing.json")


def test_nothing_is_read_before_it_is_opened(tmp_path: Path) -> None:
    MockBackend(MockOptions(fixtures=tmp_path / "missing.json"))


def test_they_may_be_in_the_users_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    options = parse_options(MockOptions, {"fixtures": "~/fixtures.json"})
    assert options.fixtures == Path("/home/me/fixtures.json")
