from __future__ import annotations

import re

import pytest

from caesar_backend_local_llm.generation.chat_templates import (
    ChatRefused,
    ChatTemplate,
    TemplateProblem,
)

USER = [{"role": "user", "content": "hi"}]


def rendered(source: str, messages=USER, **more) -> str:
    return ChatTemplate(source, beginning="<s>", end="</s>").render(messages, **more)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ bos_token }}{{ messages[0]['content'] }}{{ eos_token }}", "<s>hi</s>"),
        ("{{ messages | tojson }}", '[{"role": "user", "content": "hi"}]'),
        ("{{ {'a': '<é>'} | tojson(indent=1) }}", '{\n "a": "<é>"\n}'),
        ("{% for m in messages %}{% break %}{% endfor %}x", "x"),
        ("  {% if true %}\n  x\n  {% endif %}\n", "  x\n"),
        ("{% if tools is not none or documents is not none %}tools{% endif %}", ""),
        ("{% generation %}{{ messages[0].content }}{% endgeneration %}!", "hi!"),
        ("{% set ns = namespace(n=1) %}{% set ns.n = 2 %}{{ ns.n }}", "2"),
        ("chatml", "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"),
    ],
)
def test_what_templates_use(source: str, text: str) -> None:
    assert rendered(source) == text


def test_the_date() -> None:
    assert re.fullmatch(r"\d{4}-\d\d", rendered("{{ strftime_now('%Y-%m') }}"))


def test_arguments_cannot_replace_the_messages() -> None:
    assert rendered("{{ messages[0].content }}{{ x }}", arguments={"messages": [], "x": 1}) == "hi1"


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ cycler.__init__.__globals__.os.system('true') }}",
    ],
)
def test_templates_of_unknown_origin_are_kept_in(source: str) -> None:
    with pytest.raises(TemplateProblem):
        rendered(source)


def test_a_refusal_is_no_problem() -> None:
    with pytest.raises(ChatRefused, match="one at a time"):
        rendered("{{ raise_exception('one at a time') }}")
