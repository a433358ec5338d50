"""The clients, each asked in its usual way."""

from __future__ import annotations

import json
import ssl
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import openai
from fault_cases import (
    LONGEST_FIRST,
    RETRIES,
    Outcome,
    Question,
    serve_by_command,
    serve_in_process,
)
from langchain_openai import OpenAI

NODE_FOLDER = Path(__file__).parents[1] / "node"
#: So many calls at a time; most of them wait.
_AT_ONCE = 8

#: Outcomes by the keys of their questions.
Answers = dict[str, Outcome]


@dataclass(frozen=True, slots=True)
class Client:
    """A client to be asked.

    :param version: returns its version.
    :param serve: what it is tried against.
    :param ask: asks all questions of a base URL.
    """

    version: Callable[[], str]
    serve: Callable[[Path], AbstractContextManager[str]]
    ask: Callable[[str], Answers]

    def outcomes(self, folder: Path) -> Answers:
        """Return what it makes of each question."""
        with self.serve(folder) as base_url:
            return self.ask(base_url)


def ask_node(base_url: str, questions: Sequence[Question] = LONGEST_FIRST) -> Answers:
    """Ask in one process of Node.js."""
    given = [
        {
            "key": question.key,
            "stream": question.stream,
            "timeout": round(question.case.timeout_s() * 1000),
        }
        for question in questions
    ]
    asked = {
        "baseURL": base_url,
        "maxRetries": RETRIES,
        "atOnce": _AT_ONCE,
        "questions": given,
    }
    done = subprocess.run(
        ["node", "faults.mjs", json.dumps(asked)],
        cwd=NODE_FOLDER,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return {key: Outcome(**found) for key, found in json.loads(done.stdout).items()}


def ask_in_parallel(ask: Callable[[Question, dict[str, Any]], Outcome], base_url: str) -> Answers:
    """Ask each question in a thread and count its requests."""
    # making one takes longer than asking
    context = ssl.create_default_context()

    def one(question: Question) -> Outcome:
        sent: list[object] = []
        hooks = {"request": [sent.append]}
        with openai.DefaultHttpxClient(verify=context, event_hooks=hooks) as http:
            settings = {
                "base_url": base_url,
                "api_key": "unused",
                "max_retries": RETRIES,
                "timeout": question.case.timeout_s(),
                "default_headers": {"x-case": question.key},
                "http_client": http,
            }
            outcome = ask(question, settings)
        return replace(outcome, tries=len(sent))

    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="asking") as pool:
        outcomes = pool.map(one, LONGEST_FIRST)
        return {
            question.key: outcome for question, outcome in zip(LONGEST_FIRST, outcomes, strict=True)
        }


def ask_openai(question: Question, settings: dict[str, Any]) -> Outcome:
    """Ask with ``openai.OpenAI().completions.create``."""
    client = openai.OpenAI(**settings)

    def pieces() -> Iterator[str]:
        with client.completions.create(model="m", prompt="Hi", stream=True) as stream:
            for chunk in stream:
                yield from (choice.text for choice in chunk.choices)

    return _outcome(
        pieces if question.stream else lambda: client.completions.create(model="m", prompt="Hi")
    )


def ask_langchain(question: Question, settings: dict[str, Any]) -> Outcome:
    """Ask with ``langchain_openai.OpenAI``: its ``stream`` or its ``invoke``."""
    model = OpenAI(model="m", **settings)
    return _outcome(partial(model.stream if question.stream else model.invoke, "Hi"))


def _outcome(ask: Callable[[], Any]) -> Outcome:
    """Ask, and return the text, joined if it comes in pieces, with what was raised after it."""
    pieces: list[str] = []
    try:
        answer = ask()
        if isinstance(answer, Iterator):
            pieces.extend(answer)
            return Outcome("".join(pieces))
        if isinstance(answer, str):
            return Outcome(answer)
        choices = answer.choices
    except Exception as error:  # noqa: BLE001 - which one it is is the question
        return Outcome("".join(pieces), error=_name(error))
    return Outcome(choices[0].text) if choices else Outcome(instead="an object without choices")


def _name(error: Exception) -> str:
    """Return the class of an error as its users import it."""
    package = type(error).__module__.partition(".")[0]
    name = type(error).__name__
    return name if package == "builtins" else f"{package}.{name}"


def _node_version() -> str:
    package = NODE_FOLDER / "node_modules" / "openai" / "package.json"
    version: str = json.loads(package.read_text())["version"]
    return version


CLIENTS: Mapping[str, Client] = {
    "openai-python": Client(
        partial(metadata.version, "openai"),
        serve_in_process,
        partial(ask_in_parallel, ask_openai),
    ),
    "langchain-openai": Client(
        partial(metadata.version, "langchain-openai"),
        serve_in_process,
        partial(ask_in_parallel, ask_langchain),
    ),
    "openai-node": Client(_node_version, serve_by_command, ask_node),
}
