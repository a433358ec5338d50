"""Templates: what they see, what they may not, and that chance is the seed's."""

from __future__ import annotations

import pytest

from caesar_server.mock.answering.templates import TemplateFailedError, Templates
from caesar_server.mock.calls import call_from_http

CALL = call_from_http(
    method="POST",
    path="/v1/chat/completions",
    headers={"x-team": "blue", "authorization": "Bearer sk-secret"},
    body=b"""{"model": "m", "metadata": {"k": [1, 2]}, "messages": [
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
        {"role": "assistant", "content": "Yes?"}, {"role": "user", "content": "Again"}]}""",
    scope="s",
    call_id="s-1",
    api_key="sk-secret",
)


@pytest.fixture
def templates() -> Templates:
    return Templates()


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("plain\n", "plain\n"),
        ("{{ call.prompt }} {{ call.model }} {{ call.turn }}{{ call.attempt }}", "Again m 21"),
        ("{{ call.messages[0].text }} {{ call.messages | length }}", "Hi 3"),
        ("{{ call.metadata.k[1] }} {{ call.headers['x-team'] }}", "2 blue"),
        ("{{ call.body.messages[1].content }} {{ call.path }}", "Yes? /compat/chat/completions"),
        ("{{ call.id }} {{ call.scope }} {{ call.method }} {{ call.stream }}", "s-1 s POST False"),
        ("{{ call.headers.authorization }}", "Bearer ***"),
        ("{% for word in 'a b'.split() %}[{{ word | upper }}]{% endfor %}", "[A][B]"),
        ("<{{ '<&>' }}>", "<<&>>"),
        ("{{ call.api_key is defined }} {{ call.raw_body is defined }}", "False False"),
        ("{{ 3 * 4 }} {{ 2 ** 10 }} {{ 'ab' * 2 }}", "12 1024 abab"),
    ],
)
def test_what_it_makes_of_a_call(templates: Templates, source: str, text: str) -> None:
    assert templates.render(source, CALL, 1) == text


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("{{ call.promt }}", "'dict object' has no attribute 'promt'"),
        ("{{ prompt }}", "'prompt' is undefined"),
        ("{{ call.headers.nope }}", "'dict object' has no attribute 'nope'"),
        ("{{ ''.__class__ }}", "access to attribute '__class__' of 'str' object is unsafe"),
        ("{{ call.update({}) }}", "access to attribute 'update' of 'dict' object is unsafe"),
        ("{{ 1 / 0 }}", "ZeroDivisionError: division by zero"),
        ("{{ 10 ** 1000 }}", "a power is too large"),
        ("{{ 'a' * 100000000 }}", "a text or list is repeated too often"),
        ("{{ 100000000 * [1] }}", "a text or list is repeated too often"),
        ("{% for i in range(200000) %}{% endfor %}", "OverflowError: Range too big"),
        ("{% for i in range(9) %}{{ 'a' * 9000000 }}{% endfor %}", "its text is longer than"),
        ("{% include 'other' %}", "no loader"),
    ],
)
def test_what_it_lacks_or_may_not_is_told(templates: Templates, source: str, problem: str) -> None:
    with pytest.raises(TemplateFailedError) as caught:
        templates.render(source, CALL, 1)
    assert problem in str(caught.value)


def test_chance_is_the_seeds(templates: Templates) -> None:
    source = "{% for i in range(8) %}{{ [1, 2, 3, 4] | random }}{% endfor %}"
    first = templates.render(source, CALL, 1)
    assert templates.render(source, CALL, 1) == first
    assert Templates().render(source, CALL, 1) == first
    assert templates.render(source, CALL, 2) != first


def test_jinjas_other_chance_is_not_there(templates: Templates) -> None:
    with pytest.raises(TemplateFailedError, match="'lipsum' is undefined"):
        templates.render("{{ lipsum() }}", CALL, 1)


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("fine {{ call.prompt }}", None),
        ("{{", "line 1: unexpected 'end of template'"),
        ("\n{% if %}", "line 2: Expected an expression, got 'end of statement block'"),
        ("{% nope %}", "line 1: Encountered unknown tag 'nope'."),
        ("{{ 1 | nope }}", "line 1: No filter named 'nope'."),
    ],
)
def test_a_wrong_form_is_told_by_its_line(
    templates: Templates, source: str, problem: str | None
) -> None:
    assert templates.problem(source) == problem


def test_a_name_without_call_gets_a_hint(templates):
    with pytest.raises(
        TemplateFailedError, match=r"^'prompt' is undefined; it is call\.prompt here$"
    ):
        templates.render("{{ prompt }}", CALL, 0)
    with pytest.raises(TemplateFailedError, match=r"^'other' is undefined$"):
        templates.render("{{ other }}", CALL, 0)
