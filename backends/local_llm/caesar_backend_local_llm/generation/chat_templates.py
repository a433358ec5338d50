"""A chat as the text that the model was trained to continue.

Templates are Jinja, as Hugging Face's tokenizers have them.  They come with files of unknown
origin, so they are run in a sandbox.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

#: Templates that an operator may name instead of writing them.
NAMED_TEMPLATES: Mapping[str, str] = {
    "chatml": (
        "{% for message in messages %}"
        "<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
        "{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    ),
}


class TemplateProblem(Exception):
    """A template that cannot be used; its text says why."""


class ChatRefused(Exception):
    """The template takes no such chat; its text says why."""


class _Generation(Extension):
    """``{% generation %}``, which marks the assistant's words for training: without effect."""

    tags = {"generation"}  # noqa: RUF012 - Jinja declares it so

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class ChatTemplate:
    """A compiled template.  Safe for threads.

    :param source: Jinja, or a name in :data:`NAMED_TEMPLATES`.
    :param beginning: what the template calls ``bos_token``.
    :param end: what it calls ``eos_token``.
    :raises TemplateProblem: if it is no Jinja.
    """

    def __init__(self, source: str, *, beginning: str, end: str) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = _now
        self._special = {"bos_token": beginning, "eos_token": end}
        try:
            self._template = environment.from_string(NAMED_TEMPLATES.get(source, source))
        except TemplateError as error:
            line = getattr(error, "lineno", None)
            where = "" if line is None else f", line {line}"
            why = f"{error.message}{where}"
            raise TemplateProblem(f"the chat template is no Jinja: {why}") from None

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        generation_prompt: bool = True,
        arguments: Mapping[str, Any] | None = None,
    ) -> str:
        """Return the text of a chat, up to where the assistant's answer begins.

        :param generation_prompt: begin the assistant's turn at the end.
        :param arguments: further variables of the template, such as ``enable_thinking``.
        :raises ChatRefused: if the template raises an exception of its own, for example because
            it knows no system message.
        :raises TemplateProblem: if it fails.
        """
        try:
            return self._template.render(
                {
                    **self._special,
                    "tools": None,  # templates ask whether it is none, not whether it is there
                    "documents": None,
                    **(arguments or {}),
                    "messages": list(messages),
                    "add_generation_prompt": generation_prompt,
                }
            )
        except ChatRefused:
            raise
        except Exception as error:
            raise TemplateProblem(f"the chat template fails: {error}") from error


def _refuse(message: object = "") -> NoReturn:
    raise ChatRefused(str(message) or "it does not say why")


def _now(form: str) -> str:
    return datetime.now().strftime(form)  # local time, as the templates expect it


def _to_json(value: Any, indent: int | None = None, **_more: Any) -> str:
    """Write JSON as it is: Jinja's own filter escapes it for HTML."""
    return json.dumps(value, ensure_ascii=False, indent=indent)
