"""The fixtures file: what it may hold, and how a wrong one is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caesar_server.contract import ErrorInfo, OptionsError
from caesar_server.mock.backend import MockBackend, MockOptions
from caesar_server.mock.fixtures import Fixtures, Reply, load_fixtures

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


def test_a_string_is_a_text(write: Write) -> None:
    fixtures = load_fixtures(write({"hi": "hello", "": "nothing"}))
    assert fixtures.reply_to("hi") == Reply(text="hello")
    assert fixtures.reply_to("") == Reply(text="nothing")


def test_a_prompt_must_match_exactly_and_others_are_repeated(write: Write) -> None:
    fixtures = load_fixtures(write({"hi": "hello"}))
    for prompt in ("Hi", "hi ", "hi\n", "hello"):
        assert fixtures.reply_to(prompt) == Reply(text=prompt)


def test_an_empty_text_is_an_answer(write: Write) -> None:
    assert load_fixtures(write({"hi": ""})).reply_to("hi").text_of(0) == ""


def test_several_texts_are_for_the_choices_in_turn(write: Write) -> None:
    reply = load_fixtures(write({"hi": {"text": ["a", "b"]}})).reply_to("hi")
    assert [reply.text_of(k) for k in range(3)] == ["a", "b", "a"]


def test_an_error_is_the_contracts_value(write: Write) -> None:
    error = {"message": "m", "code": "c", "type": "t", "param": "p", "status": 429}
    more = {"retry_after_s": 2, "transient": True}
    reply = load_fixtures(write({"hi": {"error": {**error, **more}}})).reply_to("hi")
    assert reply.error is not None
    assert reply.error.info() == ErrorInfo("m", "c", "t", "p", 429, 2.0, True)
    short = load_fixtures(write({"hi": {"error": {"message": "m"}}})).reply_to("hi").error
    assert short is not None
    assert short.info() == ErrorInfo("m", "backend_error")


def test_a_result_has_the_same_id_each_time_unless_it_has_its_own(write: Write) -> None:
    results = [{"title": "A", "url": "u"}, {"title": "B", "url": "u", "id": "own"}]
    path = write({"hi": {"results": results}})
    first, second = (load_fixtures(path).reply_to("hi").results for _ in range(2))
    assert [result.event_id for result in first] == [result.event_id for result in second]
    assert len(first[0].event_id) == 36
    assert first[1].event_id == "own"


def test_a_byte_order_mark_is_skipped(write: Write) -> None:
    path = write(b'\xef\xbb\xbf{"hi": "\xc3\xa9"}')
    assert load_fixtures(path).reply_to("hi") == Reply(text="é")


REPLY = 'fixtures: {path}: "hi": '


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "fixtures: {path}: Expecting value"),
        ('{"hi": ', "fixtures: {path}: Expecting value: line 1 column 8"),
        (b"\xff", "fixtures: {path}: 'utf-8' codec can't decode byte 0xff"),
        ('{"hi": "a", "hi": "b"}', 'fixtures: {path}: the key "hi" is there twice'),
        ([], "fixtures: {path}: expected an object from prompt to reply, got a list"),
        ("3", "fixtures: {path}: expected an object from prompt to reply, got a number"),
        ({"hi": 1}, REPLY + "Expected a string or an object, got a number"),
        ({"hi": None}, REPLY + "Expected a string or an object, got null"),
        ({"hi": ["a"]}, REPLY + "Expected a string or an object, got a list"),
        ({"hi": {"txt": "a"}}, REPLY + "Object contains unknown field `txt`"),
        ({"hi": {"text": 1}}, REPLY + "Expected `str | array`, got `int` - at `$.text`"),
        ({"hi": {"text": []}}, REPLY + "Expected `array` of length >= 1 - at `$.text`"),
        ({"hi": {"text": ["a", 1]}}, REPLY + "Expected `str`, got `int` - at `$.text[1]`"),
        ({"hi": {"chunks": 0}}, REPLY + "Expected `int` >= 1 - at `$.chunks`"),
        ({"hi": {"statuses": ["completed"]}}, REPLY + "Invalid enum value 'completed'"),
        ({"hi": {"results": [{"url": "u"}]}}, REPLY + "Object missing required field `title`"),
        (
            {"hi": {"results": [{"title": "t", "url": "u", "citation_index": 0}]}},
            REPLY + "Expected `int` >= 1 - at `$.results[0].citation_index`",
        ),
        ({"hi": {"error": {}}}, REPLY + "Object missing required field `message`"),
        (
            {"hi": {"error": {"message": "m", "status": 200}}},
            REPLY + "Expected `int` >= 400 - at `$.error.status`",
        ),
        (
            {"hi": {"error": {"message": "m", "retry_after_s": 1e300}}},
            REPLY + "Expected `float` <= 86400.0 - at `$.error.retry_after_s`",
        ),
    ],
)
def test_a_wrong_file_is_told_by_file_and_prompt(
    write: Write, content: object, problem: str
) -> None:
    path = write(content)
    backend = MockBackend(MockOptions(fixtures=str(path)))
    with pytest.raises(OptionsError) as caught:
        backend.open()
    assert caught.value.problems[0].startswith(problem.replace("{path}", str(path)))


def test_everything_that_is_wrong_is_told_at_once(write: Write) -> None:
    path = write({"a": 1, "b": "fine", "ü": {"chunks": "x"}})
    with pytest.raises(OptionsError) as caught:
        load_fixtures(path)
    assert [problem.split(": ")[2] for problem in caught.value.problems] == ['"a"', '"ü"']


def test_a_file_that_is_nested_too_deeply_is_named(tmp_path: Path) -> None:
    path = tmp_path / "deep.json"
    path.write_text('{"hi": ' + "[" * 100_000 + "]" * 100_000 + "}")
    with pytest.raises(OptionsError) as caught:
        load_fixtures(path)
    assert str(caught.value) == f"fixtures: {path}: nested too deeply"


@pytest.mark.parametrize("name", ["missing.json", "."])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with pytest.raises(OptionsError) as caught:
        load_fixtures(path)
    assert str(caught.value).startswith(f"fixtures: {path}: ")


def test_nothing_is_read_before_it_is_opened(tmp_path: Path) -> None:
    MockBackend(MockOptions(fixtures=str(tmp_path / "missing.json")))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["text", "chunks", "results", "error", "title", "url", "message"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)


@given(JSON)
def test_any_json_is_either_taken_or_told(
    tmp_path_factory: pytest.TempPathFactory, data: object
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.json"
    path.write_text(json.dumps({"hi": data}), encoding="utf-8")
    try:
        fixtures = load_fixtures(path)
    except OptionsError:
        return
    assert isinstance(fixtures, Fixtures)
