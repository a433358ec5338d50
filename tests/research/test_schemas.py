"""Bodies of the native API: what they become, and what is said of those that are wrong."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caesar_server.blueprints.research import schemas
from caesar_server.blueprints.research.incoming.calls import (
    Answer,
    BrainstormCall,
    ChatCall,
    ResearchCall,
    UpdateCall,
)
from caesar_server.blueprints.research.incoming.domains import PATTERN
from caesar_server.contract.request import ResearchParameters
from caesar_server.errors import (
    BadRequestError,
    MissingFieldError,
    UnknownFieldError,
    ValidationFailedError,
)

LOADERS = {
    "research": (schemas.load_research, {"query": "q"}),
    "agent_research": (schemas.load_agent_research, {"query": "q"}),
    "update": (schemas.load_update, {"update_content": "u"}),
    "agent_update": (schemas.load_agent_update, {"update_content": "u"}),
    "chat": (schemas.load_chat, {"content": "c"}),
    "brainstorm": (schemas.load_brainstorm, {"query": "q"}),
}
BOOLEANS = ("auto", "reasoning_mode", "allow_early_exit", "exclude_social")
TEXTS = ("query", "system_prompt", "model", "brainstorm_session_id")
ARRAYS = ("files", "collection_ids", "excluded_domains", "answers")
INTEGERS = ("reasoning_loops", "compute_units", "source_timeout")
JSON_TYPES = {
    "string": "4",
    "integer": 4,
    "number": 4.5,
    "boolean": True,
    "array": [],
    "object": {},
}


def research(**body: object) -> ResearchCall:
    return schemas.load_research({"query": "q", **body})


def refusal(body: dict, name: str = "research", **options: bool) -> BadRequestError:
    load, required = LOADERS[name]
    with pytest.raises(BadRequestError) as caught:
        load({**required, **body}, **options)
    return caught.value


def test_the_least_that_can_be_asked() -> None:
    assert research() == ResearchCall(query="q", parameters=ResearchParameters())


def test_a_whole_number_is_an_integer_however_it_is_written() -> None:
    call = research(reasoning_loops=4.0, source_timeout=30.0)
    parameters = call.parameters
    assert (parameters.reasoning_loops, parameters.source_timeout_s) == (4, 30)
    assert type(parameters.reasoning_loops) is int


def test_everything_that_can_be_asked() -> None:
    call = research(
        files=["f1", "f2", "f1"],
        collection_ids=["c2", "c1", "c2"],
        reasoning_loops=10,
        source_timeout=3,
        reasoning_mode=True,
        allow_early_exit=True,
        exclude_social=True,
        excluded_domains=["Example.COM", "example.com.", "b.test"],
        system_prompt="as JSON",
        model="gpt-5.2",
        brainstorm_session_id="s",
        answers=[{"question_id": "q1", "selected_option": 0}],
        something_else=1,
    )
    assert call == ResearchCall(
        query="q",
        parameters=ResearchParameters(
            reasoning_loops=10,
            source_timeout_s=3,
            reasoning_mode=True,
            allow_early_exit=True,
            exclude_social=True,
            excluded_domains=("example.com", "b.test"),
            system_prompt="as JSON",
            collection_ids=("c2", "c1"),
        ),
        file_ids=("f1", "f2"),
        session_id="s",
        answers=(Answer(question_id="q1", selected_option=0),),
        model="gpt-5.2",
    )


@pytest.mark.parametrize(
    ("body", "loops", "old_form"),
    [
        ({"compute_units": 4}, 4, True),
        ({"reasoning_loops": 3}, 3, False),
        ({"compute_units": 4, "reasoning_loops": 3}, 3, False),
        ({"compute_units": 4, "reasoning_loops": None}, 4, True),
        ({"compute_units": None}, 1, False),
    ],
)
def test_compute_units_is_another_name_of_the_loops(body, loops, old_form) -> None:
    call = research(**body)
    assert (call.parameters.reasoning_loops, call.old_form) == (loops, old_form)


def test_auto_overrides_what_it_lets_the_backend_choose_and_nothing_else() -> None:
    chosen = {"reasoning_loops": 7, "source_timeout": 99, "exclude_social": True}
    call = research(
        auto=True, reasoning_mode=True, allow_early_exit=True, **chosen, system_prompt="p"
    )
    assert call.parameters == ResearchParameters(auto=True, system_prompt="p")
    assert research(auto=False, **chosen).parameters.reasoning_loops == 7
    assert refusal({"auto": True, "reasoning_loops": 11}).param == "reasoning_loops"


@pytest.mark.parametrize("name", ["files", "model", "auto", *INTEGERS, *ARRAYS, "system_prompt"])
def test_null_is_absent(name) -> None:
    assert research(**{name: None}) == research()


def test_an_empty_system_prompt_is_none() -> None:
    assert research(system_prompt="") == research()


def wrong_types() -> list[tuple[str, object]]:
    fitting = {
        **dict.fromkeys(TEXTS, "string"),
        **dict.fromkeys(BOOLEANS, "boolean"),
        **dict.fromkeys(ARRAYS, "array"),
        **dict.fromkeys(INTEGERS, "integer"),
    }
    return [
        (field, value)
        for field, kind in fitting.items()
        for name, value in JSON_TYPES.items()
        if name != kind
    ]


@pytest.mark.parametrize(("field", "value"), wrong_types())
def test_a_wrong_json_type_is_told_in_the_documented_words(field, value) -> None:
    error = refusal({field: value})
    assert error.message == f'Body contains incorrect JSON type for field "{field}"'
    assert (error.param, error.status, error.code) == (field, 400, "invalid_value")


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"files": ["a", 3]}, "files[1]"),
        ({"files": [None]}, "files[0]"),
        ({"excluded_domains": [["a.test"]]}, "excluded_domains[0]"),
        ({"answers": [None]}, "answers[0]"),
        ({"answers": ["q1"]}, "answers[0]"),
        ({"answers": [{"question_id": 1, "selected_option": 1}]}, "answers[0].question_id"),
        ({"answers": [{"question_id": "a", "selected_option": "1"}]}, "answers[0].selected_option"),
        ({"answers": [{"question_id": "a", "answer": 1}]}, "answers[0].answer"),
        ({"answers": [{"question_id": "a", "custom_text": []}]}, "answers[0].custom_text"),
        # before the value that is wrong, wherever it stands
        ({"query": " ", "source_timeout": "60"}, "source_timeout"),
    ],
)
def test_a_wrong_type_further_in_is_told_with_its_path(body, path) -> None:
    error = refusal(body)
    assert error.message == f'Body contains incorrect JSON type for field "{path}"'
    assert error.param == path


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"query": ""}, "query: expected a string that is not blank, got ''"),
        ({"query": " \t\n"}, "query: expected a string that is not blank, got ' \\t\\n'"),
        ({"reasoning_loops": 0}, "reasoning_loops: expected an integer from 1 to 10, got 0"),
        ({"compute_units": 11}, "compute_units: expected an integer from 1 to 10, got 11"),
        ({"source_timeout": 2}, "source_timeout: expected an integer from 3 to 180, got 2"),
        ({"source_timeout": 181}, "source_timeout: expected an integer from 3 to 180, got 181"),
        (
            {"reasoning_loops": 0, "source_timeout": 2},
            "source_timeout: expected an integer from 3 to 180, got 2; "
            "reasoning_loops: expected an integer from 1 to 10, got 0",
        ),
        ({"files": ["a", ""]}, "files[1]: expected a non-empty string, got ''"),
        ({"collection_ids": [""]}, "collection_ids[0]: expected a non-empty string, got ''"),
        ({"files": ["a"] * 1001}, "files: expected at most 1000 items, got 1001"),
        ({"answers": [{}] * 1001}, "answers: expected at most 1000 items, got 1001"),
        ({"model": ""}, "model: expected a non-empty string, got ''"),
        (
            {"answers": [{"question_id": "a"}]},
            "answers[0]: expected selected_option or custom_text",
        ),
        (
            {"answers": [{"question_id": "a", "custom_text": " ", "answer": ""}]},
            "answers[0]: expected selected_option or custom_text",
        ),
        (
            {"answers": [{"question_id": "a", "selected_option": -1}]},
            "answers[0].selected_option: expected an integer from 0 to 1000, got -1",
        ),
    ],
)
def test_a_wrong_value_is_told_with_what_was_expected_and_got(body, message) -> None:
    error = refusal(body)
    told = set(error.message.split("; "))
    assert told == set(message.split("; "))
    assert isinstance(error, ValidationFailedError)
    assert error.message.startswith(f"{error.param}: ")


@pytest.mark.parametrize("field", ["files", "collection_ids"])
def test_a_thousand_entries_are_taken(field) -> None:
    ids = [f"id-{number}" for number in range(1000)]
    call = research(**{field: ids})
    assert call.file_ids + call.parameters.collection_ids == tuple(ids)


@pytest.mark.parametrize("name", LOADERS)
def test_what_is_required_is_named(name) -> None:
    load, required = LOADERS[name]
    (field,) = required
    for body in ({}, {field: None}):
        with pytest.raises(MissingFieldError, match=f"^{field}: required and missing$") as caught:
            load(body)
        assert caught.value.param == field
    assert refusal({field: " "}, name).message.startswith(f"{field}: expected a string that is not")
    assert refusal({"answers": [{"selected_option": 1}]}).param == "answers[0].question_id"


@pytest.mark.parametrize(
    ("given_answer", "answer"),
    [
        ({"selected_option": 2}, Answer(question_id="a", selected_option=2)),
        ({"custom_text": "x"}, Answer(question_id="a", custom_text="x")),
        ({"answer": "x"}, Answer(question_id="a", custom_text="x")),
        ({"custom_text": "x", "answer": "y"}, Answer(question_id="a", custom_text="x")),
        ({"custom_text": "", "answer": "y"}, Answer(question_id="a", custom_text="y")),
        (
            {"custom_text": "x", "selected_option": 1},
            Answer(question_id="a", custom_text="x", selected_option=1),
        ),
        ({"custom_text": " ", "selected_option": 1}, Answer(question_id="a", selected_option=1)),
        ({"custom_text": None, "selected_option": 0}, Answer(question_id="a", selected_option=0)),
    ],
)
def test_answers(given_answer, answer) -> None:
    assert research(answers=[{"question_id": "a", **given_answer}]).answers == (answer,)


@pytest.mark.parametrize(
    ("given_domain", "domain"),
    [
        ("example.com", "example.com"),
        ("Sub.Example.COM.", "sub.example.com"),
        ("xn--mnchen-3ya.de", "xn--mnchen-3ya.de"),
        ("localhost", "localhost"),
        ("10.0.0.1", "10.0.0.1"),
        ("_dmarc.example.com", "_dmarc.example.com"),
    ],
)
def test_domains(given_domain, domain) -> None:
    assert research(excluded_domains=[given_domain]).parameters.excluded_domains == (domain,)


@pytest.mark.parametrize(
    ("given_domain", "cure"),
    [
        ("https://example.com", "; write example.com"),
        ("https://user:pw@Example.com:8080/path?q#f", "; write example.com"),
        ("//example.com/x", ""),
        ("example.com/path", "; write example.com"),
        ("example.com:443", "; write example.com"),
        ("*.example.com", "; write example.com"),
        (".example.com", "; write example.com"),
        ("münchen.de", "; write xn--mnchen-3ya.de"),
        ("someone@example.com", "; write example.com"),
        ("", ""),
        (".", ""),
        ("a..b", ""),
        ("two words", ""),
        ("[::1]", ""),
        ("a.test,b.test", ""),
        ("x" * 254, ""),
    ],
)
def test_what_is_no_domain_is_refused_with_the_one_that_was_meant(given_domain, cure) -> None:
    error = refusal({"excluded_domains": ["a.test", given_domain]})
    assert error.param == "excluded_domains[1]"
    expected = r"excluded_domains\[1\]: expected a domain such as example.com, got '[^;]*"
    assert re.fullmatch(expected + re.escape(cure), error.message)


@given(st.from_regex(PATTERN) | st.text(max_size=12))
def test_domains_are_those_that_the_described_pattern_matches(text) -> None:
    taken = re.search(PATTERN, text) is not None
    try:
        (domain,) = research(excluded_domains=[text]).parameters.excluded_domains
    except ValidationFailedError:
        assert not taken or len(text) > 253
    else:
        assert taken
        assert research(excluded_domains=[domain]).parameters.excluded_domains == (domain,)


@pytest.mark.parametrize("name", LOADERS)
def test_unknown_fields_are_ignored_or_refused(name) -> None:
    load, required = LOADERS[name]
    assert load({**required, "extra": 1}) == load(required)
    assert load({**required, "extra": None}, refuse_unknown=True) == load(required)
    error = refusal({"extra": 1}, name, refuse_unknown=True)
    assert isinstance(error, UnknownFieldError)
    assert (error.message, error.param) == ("extra: unknown field", "extra")


def test_unknown_fields_are_refused_further_in_too() -> None:
    answers = [{"question_id": "a", "selected_option": 1}, {"question_id": "b", "text\n": "x"}]
    error = refusal({"answers": answers}, refuse_unknown=True)
    assert error.param == r"answers[1].text\n"
    # what is no array of objects is left to the schema
    for answers in (3, [3]):
        message = refusal({"answers": answers}, refuse_unknown=True).message
        assert message.startswith("Body contains incorrect JSON type")


def test_every_defined_field_is_known_when_others_are_refused() -> None:
    body = {
        "query": "q",
        **dict.fromkeys(BOOLEANS, False),
        **dict.fromkeys(("system_prompt", "model", "brainstorm_session_id"), "x"),
        **dict.fromkeys(INTEGERS, 5),
        "files": ["f"],
        "collection_ids": ["c"],
        "excluded_domains": ["a.test"],
        "answers": [{"question_id": "a", "answer": "x", "custom_text": "x", "selected_option": 1}],
    }
    assert schemas.load_research(body, refuse_unknown=True) == schemas.load_research(body)


def test_updates() -> None:
    body = {"update_content": "only Europe", "files": ["f", "f", "g"]}
    assert schemas.load_update(body) == UpdateCall(content="only Europe", file_ids=("f", "g"))
    # those of an agent have no files
    assert schemas.load_agent_update(body) == UpdateCall(content="only Europe")


def test_chat() -> None:
    body = {"content": "why?", "snippets": ["s", "s"], "excluded_domains": ["A.test", "a.test"]}
    assert schemas.load_chat(body) == ChatCall(
        content="why?", snippets=("s", "s"), excluded_domains=("a.test",)
    )
    assert schemas.load_chat({"content": "why?"}) == ChatCall(content="why?")
    assert refusal({"snippets": [1]}, "chat").param == "snippets[0]"


def test_brainstorm() -> None:
    assert schemas.load_brainstorm({"query": "q"}) == BrainstormCall(query="q")


def test_an_agent_asks_with_fewer_words() -> None:
    body = {"query": "q", "reasoning_mode": True, "files": ["f"], "excluded_domains": ["a.test"]}
    assert schemas.load_agent_research({**body, "reasoning_loops": 5, "model": 3}) == ResearchCall(
        query="q",
        parameters=ResearchParameters(reasoning_mode=True, excluded_domains=("a.test",)),
        file_ids=("f",),
    )


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@given(
    st.sampled_from(sorted(LOADERS)),
    st.dictionaries(
        st.sampled_from(
            ["query", "update_content", "content", *TEXTS, *ARRAYS, *INTEGERS, *BOOLEANS]
        ),
        JSON_VALUES,
    ),
    st.booleans(),
)
def test_no_body_ends_otherwise_than_in_a_call_or_a_refusal_with_a_name(name, body, reject) -> None:
    before, told = repr(body), None
    try:
        LOADERS[name][0](body, refuse_unknown=reject)
    except BadRequestError as error:
        told = error
    assert repr(body) == before
    assert told is None or (told.param and told.param in told.message)


@pytest.mark.parametrize("text", ["\u00e4" * 1_000_000, "https://" + "\u00e4" * 1900])
def test_a_long_text_that_is_no_domain_is_refused_at_once(text) -> None:
    began = time.process_time()
    assert "excluded_domains[0]" in refusal({"excluded_domains": [text]}).message
    # by the square of its length it took minutes
    assert time.process_time() - began < 5
