"""Replies that are templates over the call: Jinja in its sandbox, with seeded chance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from random import Random
from typing import Any, TypeVar

from jinja2 import StrictUndefined, Template, TemplateError, TemplateSyntaxError, pass_context
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from caesar_server.mock.calls import content_text
from caesar_server.mock.journal.masking import masked
from caesar_server.mock.model.call import Call

#: A template may not make more than that many characters.
LONGEST_TEXT = 10_000_000
_CHANCE = "caesar_chance"

T = TypeVar("T")


class TemplateFailedError(Exception):
    """A template could not be rendered for this call.

    :param message: for the client: what the template lacks.
    """


class Templates:
    """Renders templates and keeps the last ones compiled.  Safe for threads."""

    def __init__(self) -> None:
        self._environment = _Sandbox(
            autoescape=False, keep_trailing_newline=True, undefined=StrictUndefined
        )
        self._environment.filters["random"] = _chosen
        del self._environment.globals["lipsum"]  # its chance is nobody's
        self._compiled = lru_cache(maxsize=256)(self._environment.from_string)

    def render(self, source: str, call: Call, seed: int) -> str:
        """Return the text of a template for a call; the same for the same call and seed.

        :raises TemplateFailedError: if it asks for what is not there, or for what is not allowed.
        """
        names: dict[str, Any] = {"call": shown(call), _CHANCE: Random(seed)}
        try:
            return _limited(self._compiled(source), names)
        except TemplateFailedError:
            raise
        except TemplateError as error:
            told = error.message or type(error).__name__
            raise TemplateFailedError(told + _hint(told, names["call"])) from error
        except Exception as error:  # of the template's own making, such as 1 / 0
            raise TemplateFailedError(f"{type(error).__name__}: {error}") from error

    def problem(self, source: str) -> str | None:
        """Return what is wrong with the form of a template, or None."""
        try:
            self._environment.compile(source)
        except TemplateSyntaxError as error:
            return f"line {error.lineno}: {error.message}"
        return None


def shown(call: Call) -> dict[str, Any]:
    """Return what templates see of a call: no key, and no header that holds one."""
    return {
        "id": call.id,
        "scope": call.scope,
        "method": call.method,
        "path": call.path,
        "headers": masked(call.headers),
        "body": call.body,
        "model": call.model,
        "prompt": call.prompt,
        "prompts": call.prompts,
        "messages": [{**message, "text": content_text(message)} for message in call.messages],
        "query": call.query,
        "metadata": dict(call.metadata),
        "stream": call.stream,
        "attempt": call.attempt,
        "turn": call.turn,
    }


def _hint(told: str, call: Mapping[str, Any]) -> str:
    """Return where a name is that a template sought beside the call."""
    name = told.removesuffix("' is undefined").removeprefix("'")
    return f"; it is call.{name} here" if f"'{name}' is undefined" == told and name in call else ""


class _Sandbox(ImmutableSandboxedEnvironment):
    """Refuses also what is only large: a test's server must not hang over a slip of the pen."""

    intercepted_binops = frozenset({"*", "**"})

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "**" and not (_small(left, 1e6) and _small(right, 64)):
            raise SecurityError("a power is too large")
        if operator == "*" and _repeated(left, right) > LONGEST_TEXT:
            raise SecurityError("a text or list is repeated too often")
        return super().call_binop(context, operator, left, right)


def _small(value: Any, limit: float) -> bool:
    return isinstance(value, (int, float)) and abs(value) <= limit


def _repeated(left: Any, right: Any) -> int:
    """Return how long the product is if one of the two is a text or a list."""
    for items, times in ((left, right), (right, left)):
        if isinstance(items, (str, bytes, list, tuple)) and isinstance(times, int):
            return len(items) * times
    return 0


@pass_context
def _chosen(context: Context, items: Sequence[T]) -> T:
    """Jinja's own filter ``random`` draws from what no seed reaches."""
    chance: Random = context[_CHANCE]
    return chance.choice(list(items))


def _limited(template: Template, names: Mapping[str, Any]) -> str:
    parts, size = [], 0
    for part in template.generate(names):
        size += len(part)
        if size > LONGEST_TEXT:
            raise TemplateFailedError(f"its text is longer than {LONGEST_TEXT} characters")
        parts.append(part)
    return "".join(parts)
