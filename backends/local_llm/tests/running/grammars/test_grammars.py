"""Text that must follow a grammar or a schema."""

from __future__ import annotations

import json

import pytest

SCHEMA = {
    "type": "object",
    "properties": {"name": {"enum": ["cat", "dog"]}, "legs": {"type": "integer"}},
    "required": ["name", "legs"],
    "additionalProperties": False,
}


def test_a_grammar_of_llama_cpp(chance) -> None:
    grammar = 'root ::= ("yes" | "no") "!"'
    for seed in range(5):
        answer = chance.complete("Really?", seed=seed, extra={"grammar": grammar})
        assert answer.text in ("yes!", "no!")
        assert answer.reason == "stop"


@pytest.mark.parametrize(
    "extra",
    [
        {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}},
        {"response_format": {"type": "json_object", "schema": SCHEMA}},
        {"json_schema": SCHEMA},
        {"guided_json": SCHEMA},
        {"structured_outputs": {"json": SCHEMA}},
    ],
)
def test_a_schema_in_each_field_that_has_one(chance, extra) -> None:
    answer = chance.chat(("user", "A pet"), seed=3, max_tokens=200, extra=extra)
    assert answer.reason == "stop"
    found = json.loads(answer.text)
    assert found["name"] in ("cat", "dog")
    assert type(found["legs"]) is int


def test_json_of_any_kind(opened, tiny_model) -> None:
    ask = opened(tiny_model("random", "bpe").path)
    found = [
        answer.text
        for seed in range(12)
        if (
            answer := ask.complete(
                "{", seed=seed, max_tokens=400, extra={"response_format": {"type": "json_object"}}
            )
        ).reason
        == "stop"
    ]
    assert found
    assert all(isinstance(json.loads(text), dict) for text in found)


def test_one_of_some_texts(chance) -> None:
    extra = {"structured_outputs": {"choice": ['say "hi"', "back\\slash", "two\nlines"]}}
    for seed in range(6):
        answer = chance.complete("x", seed=seed, extra=extra)
        assert answer.text in extra["structured_outputs"]["choice"]


def test_text_as_a_format_asks_for_nothing(echo) -> None:
    extra = {"response_format": {"type": "text"}, "grammar": "", "json_schema": None}
    assert echo.complete("Once upon", max_tokens=1, extra=extra).text == " a"


def test_a_grammar_keeps_the_shares_of_what_it_allows(opened, cats) -> None:
    ask = opened(cats.path)
    extra = {"grammar": 'root ::= " sat" | " dog"'}
    answer = ask.complete("the cat", n=40, seed=1, max_tokens=1, extra=extra)
    # a dog after a cat is one in a million
    assert set(answer.texts) == {" sat"}


def test_grammars_with_penalties_bias_and_greed(chance) -> None:
    answer = chance.complete(
        "x",
        temperature=0,
        top_p=0.1,
        frequency_penalty=2,
        logit_bias={5: 100},
        extra={"grammar": "root ::= [a-c]{8}", "top_k": 3, "min_p": 0.5},
    )
    assert len(answer.text) == 8
    assert set(answer.text) <= set("abc")


def test_parentheses_that_are_text_are_not_counted(chance) -> None:
    extra = {"grammar": 'root ::= "' + "(" * 2000 + r'\"(" [(\]]' + " # " + "(" * 2000}
    answer = chance.complete("x", seed=4, max_tokens=500, extra=extra)
    assert answer.text.startswith("((((")


def test_seeds_with_grammars(chance) -> None:
    extra = {"grammar": "root ::= [a-z]{12}"}
    texts = [chance.complete("x", seed=4, extra=extra).text for _ in range(2)]
    assert texts[0] == texts[1]
    assert texts[0] != chance.complete("x", seed=5, extra=extra).text


@pytest.mark.parametrize(
    ("extra", "param"),
    [
        ({"grammar": "root ::= ("}, "grammar"),
        ({"grammar": 'Root ::= "x"'}, "grammar"),
        ({"grammar": "root ::= root"}, "grammar"),
        ({"grammar": "root ::= missing"}, "grammar"),
        ({"grammar": 7}, "grammar"),
        ({"grammar": "root ::= " + "(" * 32_000 + '"x"' + ")" * 32_000}, "grammar"),
        ({"grammar": 'root ::= "' + "x" * 70_000 + '"'}, "grammar"),
        ({"grammar": 'root ::= "x"', "json_schema": {}}, "grammar"),
        ({"json_schema": [1]}, "json_schema"),
        ({"json_schema": {"type": "cat"}}, "json_schema"),
        ({"json_schema": {"$ref": "https://example.org/x.json"}}, "json_schema"),
        ({"json_schema": {"$ref": "#/$defs/missing"}}, "json_schema"),
        ({"json_schema": {"type": "string", "pattern": "("}}, "json_schema"),
        ({"json_schema": {"type": "array", "uniqueItems": True}}, "json_schema"),
        ({"json_schema": {"type": "integer", "minimum": 3, "maximum": 2}}, "json_schema"),
        ({"guided_json": "{"}, "guided_json"),
        ({"response_format": "json"}, "response_format"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        (
            {"response_format": {"type": "json_schema"}},
            "response_format.json_schema.schema",
        ),
        ({"structured_outputs": {"regex": "("}}, "structured_outputs.regex"),
        ({"structured_outputs": {"choice": []}}, "structured_outputs.choice"),
        ({"structured_outputs": {"structural_tag": "x"}}, "structured_outputs"),
        ({"guided_choice": ["a", 7]}, "guided_choice"),
        ({"guided_regex": 7}, "guided_regex"),
        ({"guided_regex": "a", "guided_grammar": 'root ::= "a"'}, "guided_grammar"),
    ],
)
def test_what_is_no_grammar_is_refused_and_harms_nobody(echo, extra, param) -> None:
    error = echo.complete("Once upon", extra=extra).error
    assert (error.status, error.param) == (400, param)
    assert error.message.startswith(param)
    assert echo.complete("Once upon", max_tokens=1).text == " a"


def test_a_schema_nested_without_end_is_refused(echo) -> None:
    schema: dict = {}
    for _ in range(5000):
        schema = {"type": "array", "items": schema}
    assert echo.complete("x", extra={"json_schema": schema}).error.status == 400


def test_the_operator_may_forbid_them(opened, tiny_model) -> None:
    ask = opened(tiny_model("echo").path, grammars=False)
    error = ask.complete("x", extra={"grammar": 'root ::= "x"'}).error
    assert (error.status, error.code) == (400, "unsupported_parameter")


def test_a_pattern_stays_inside_of_its_string(opened, tiny_model) -> None:
    ask = opened(tiny_model("random", "bpe").path)
    schema = {"type": "string", "pattern": "^x.{5}y$"}
    for seed in range(10):
        answer = ask.complete("{", seed=seed, extra={"json_schema": schema})
        found = json.loads(answer.text)
        assert (found[0], found[-1]) == ("x", "y")  # with quotes inside it would be no JSON
