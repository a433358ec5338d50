"""The mock on hosts without a command of their own for it: granian, and the server of the fixture.

``granian --factory mock_app:create_app``; ``python mock_app.py PORT`` is the server that tests in
Python get.  ``BENCHMARK_WORDS`` says how many words it answers with.
"""

from __future__ import annotations

import os
import sys
import threading

from flask import Flask

from caesar_server import app
from caesar_server.mock.matching import conditions
from caesar_server.mock.model.reply import Reply
from caesar_server.mock.model.rule import Rule
from caesar_server.mock.scopes import Scopes
from caesar_server.settings import Settings
from caesar_server.testing import mock_server

#: Names the number of words, which is that of the chunks that carry text.
WORDS_VARIABLE = "BENCHMARK_WORDS"
PROMPT = "To be, or not to be"


def model_of(words: int) -> str:
    """Return the model to ask for an answer of so many words, seven at least.

    The peer LLMock always says "Mock response from MODEL."; so do all others here.  With three
    short words among them as many pieces of five characters as words come out of it.
    """
    return " ".join(["abc"] * 4 + ["abcd"] * (words - 7))


def text_of(words: int) -> str:
    """Return the answer of so many words."""
    return f"Mock response from {model_of(words)}."


def _text() -> str:
    return text_of(int(os.environ[WORDS_VARIABLE]))


def create_app() -> Flask:
    """Return the app of granian's worker."""
    rule = Rule(id="bench", conditions=conditions(prompt=PROMPT), replies=(Reply(text=_text()),))
    return app.create_app(Settings(log_level="warning", threads=68), mock=Scopes(rules=[rule]))


def main() -> None:
    """Serve as the fixture does until the process is told to end."""
    with mock_server(port=int(sys.argv[1])) as mock:
        mock.on(prompt=PROMPT).reply(_text())
        threading.Event().wait()


if __name__ == "__main__":
    main()
