"""Grammars of callers who mean harm: every one ends in a sentence, and soon."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

#: Two ways to go on after each "a": a parser that keeps them apart has 2^n of them.
TWO_WAYS = 'root ::= "a" root "b" | "a" root "c" | "c"'
#: The same, as a schema: each array ends in one of two ways.
TWO_ENDS = {
    "$defs": {
        "x": {
            "anyOf": [
                {"type": "array", "prefixItems": [{"$ref": "#/$defs/x"}, end], "minItems": 2}
                for end in ({"type": "null"}, {"type": "boolean"})
            ]
        }
    },
    "$ref": "#/$defs/x",
}


@pytest.fixture
def noise(tiny_model: Callable[..., Any]) -> Any:
    return tiny_model("random", "bpe", context=4096)


@pytest.mark.parametrize(
    ("extra", "letter"), [({"grammar": TWO_WAYS}, "a"), ({"json_schema": TWO_ENDS}, "[")]
)
def test_a_text_with_many_ways_to_end_is_followed(opened, noise, extra, letter: str) -> None:
    ask = opened(noise.path, n_ctx=4096)
    likely = {noise.byte_ids[ord(letter)]: 100.0}
    answer = ask.complete("x", max_tokens=200, seed=1, logit_bias=likely, extra=extra)
    assert answer.text == letter * 200


def test_a_grammar_that_takes_too_long_ends_the_answer(opened, noise, monkeypatch) -> None:
    from caesar_backend_local_llm.engine.grammars import grammar as module

    monkeypatch.setattr(module, "_FREE_S", 0.3)
    monkeypatch.setattr(module, "_TOKEN_S", 0.0)
    ask = opened(noise.path, n_ctx=4096)
    grammar = 'root ::= root root root | root root | . | "a"'
    likely = {noise.byte_ids[ord("a")]: 100.0}
    extra = {"grammar": grammar}
    answer = ask.complete("x", max_tokens=1500, seed=1, logit_bias=likely, extra=extra)
    assert (answer.error.status, answer.error.param) == (400, "grammar")
    assert answer.error.message == (
        "grammar: the text cannot go on by this grammar: it takes too long to follow"
    )
    assert ask.complete("x", max_tokens=3, extra={"ignore_eos": True}).reason == "length"


def chain(count: int) -> str:
    """Return rules each of which is the next one, or ends."""
    rules = [f'r{n} ::= r{n + 1} | "b"' for n in range(count)]
    return "\n".join(["root ::= r0", *rules, f'r{count} ::= "a"'])


def references(count: int) -> dict[str, Any]:
    """Return a schema whose definitions each refer to the next."""
    defs: dict[str, Any] = {
        f"a{n}": {"anyOf": [{"$ref": f"#/$defs/a{n + 1}"}, {"type": "null"}]} for n in range(count)
    }
    return {"$defs": {**defs, f"a{count}": {"type": "integer"}}, "$ref": "#/$defs/a0"}


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        # the compiler's own stack overflows: in a process of its own
        ({"json_schema": references(600)}, "too deep or too large"),
        # many minutes of processor time
        (
            {"json_schema": {"allOf": [{"pattern": f"^.*x.{{{n}}}"} for n in range(200)]}},
            "too long",
        ),
        ({"grammar": "root ::= root"}, "allows no text"),
        ({"guided_regex": "(" * 5000 + "a" + ")" * 5000}, "regex"),
        ({"json_schema": {"enum": ["x" * 70_000]}}, "at most 65536 bytes"),
    ],
)
def test_what_cannot_be_compiled_is_refused(opened, noise, extra, words: str) -> None:
    ask = opened(noise.path)
    error = ask.complete("x", extra=extra).error
    assert error.status == 400
    assert words in error.message
    assert len(error.message) < 500
    assert ask.complete("x", max_tokens=3, extra={"ignore_eos": True}).reason == "length"


@pytest.mark.parametrize(
    "extra",
    [
        {"grammar": chain(900)},
        {"grammar": 'root ::= (("a"{60000}){60000}){60000}'},
        {"guided_regex": "(a|b)*a(a|b){200}"},
        {"json_schema": {"type": "array", "minItems": 10**9, "items": {"const": 1}}},
        {"json_schema": {"const": "x" * 60_000}},
        {"json_schema": {"type": "string", "minLength": 10**6}},
    ],
)
def test_what_is_large_and_can_be_followed(opened, noise, extra) -> None:
    answer = opened(noise.path).complete("x", max_tokens=20, seed=1, extra=extra)
    assert answer.reason in ("length", "stop")


@pytest.fixture
def trials(engine: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The processes in which grammars have been tried."""
    begun: list[Any] = []
    run = subprocess.run

    def noted(*arguments: Any, **more: Any) -> Any:
        begun.append(run(*arguments, **more))
        return begun[-1]

    monkeypatch.setattr(subprocess, "run", noted)
    return begun


def test_a_grammar_is_tried_once(opened, noise, trials) -> None:
    ask = opened(noise.path)
    schema = {"json_schema": {"enum": ["cat", "dog"]}}
    for _ in range(5):
        assert ask.complete("x", extra=schema).text in ('"cat"', '"dog"')
    bad = [ask.complete("x", extra={"guided_regex": "("}).error for _ in range(2)]
    assert bad[0] == bad[1]
    assert len(trials) == 2


def test_a_trial_has_limits(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from caesar_backend_local_llm.engine.grammars import trial

    program = """
import json, sys
asked = json.load(sys.stdin)
json.dump(json.dumps([asked["resources"], asked["limits"]]), sys.stdout)
"""
    monkeypatch.setattr(trial, "_PROGRAM", program)
    limits, library = json.loads(trial.GrammarTrial({"step_max_items": 5}).problem("x"))
    assert limits["RLIMIT_CPU"] == trial.CPU_S
    assert limits["RLIMIT_AS"] > 0
    assert limits["RLIMIT_CORE"] == 0
    assert library == {"step_max_items": 5}


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("import time; time.sleep(60)", "too long"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "too deep or too large"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGXCPU)", "too long"),
        ("raise MemoryError", "cannot be compiled: MemoryError"),
        ("import sys; sys.exit(3)", "cannot be compiled: no reason given"),
    ],
)
def test_how_a_trial_may_end(engine: Any, monkeypatch, program: str, words: str) -> None:
    from caesar_backend_local_llm.engine.grammars import trial

    monkeypatch.setattr(trial, "_PROGRAM", program)
    monkeypatch.setattr(trial, "_LONGEST_S", 2.0)
    assert words in trial.GrammarTrial({}).problem("x")


def test_who_waits_too_long_for_the_trials_of_others(opened, noise, monkeypatch) -> None:
    from caesar_backend_local_llm.engine.grammars import trial

    monkeypatch.setattr(trial, "_PATIENCE_S", 0.05)
    ask = opened(noise.path)
    known, new = {"guided_choice": ["cat"]}, {"guided_choice": ["dog"]}
    assert ask.complete("x", extra=known).text == "cat"
    (host,) = ask.backend._hosts.values()
    with host._ready.model.grammars._trial._one_at_a_time:
        error = ask.complete("x", extra=new).error
        assert (error.status, error.code) == (503, "grammars_busy")
        assert ask.complete("x", extra=known).text == "cat"  # waits for nobody
    assert ask.complete("x", extra=new).text == "dog"
