"""Text that must follow a grammar: a JSON schema, a regular expression, GBNF, or one of some texts.

llguidance follows it, not llama.cpp: there, a grammar of forty characters takes minutes and all
memory for the twentieth token, with nothing to stop it, and a token at the wrong time ends the
process.  Here every step has a bound.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from caesar_backend_local_llm.engine.grammars.gbnf import GbnfError, lark_of_gbnf
from caesar_backend_local_llm.engine.grammars.trial import GrammarTrial
from caesar_backend_local_llm.engine.vocabulary import Vocabulary

if TYPE_CHECKING:
    import llguidance

#: Longest grammar or schema.
_LARGEST_BYTES = 64 * 1024
#: What one step may spend: some tenths of a second at the very most.  A state of the lexer takes
#: about 2 KiB.
_LIMITS: Mapping[str, Any] = {
    "max_items_in_row": 20_000,
    "step_max_items": 500_000,
    "max_lexer_states": 20_000,
    "max_grammar_size": 100_000,
    "verbose_errors": False,
}
#: What the library says in place of its inner state.
_NO_DETAILS = "<non-verbose/>"
#: Processor time that following a grammar may take: for a whole text, and besides for each token.
_FREE_S = 2.0
_TOKEN_S = 0.02
#: Every way to cut a text into tokens is allowed, not only the usual one: to look for that in a
#: long text takes time at each token.
_HEAD = '%llguidance {"no_forcing": true}\n'
#: Between the parts of JSON: nothing, a space, or a line break and indentation.  A model that may
#: write as much as it likes of it sometimes does nothing else.
_SCHEMA_OPTIONS = {"whitespace_pattern": r"[ ]?|\n[ \t]{0,20}", "lenient": False}


class GrammarError(ValueError):
    """A grammar or a schema that cannot be used, or not any further; its text says why."""


def grammar_of_schema(schema: object) -> str:
    """Return the grammar of JSON values that fit ``schema``.

    :raises GrammarError: if it is no schema.
    """
    if schema is True:
        schema = {}
    if not isinstance(schema, Mapping):
        raise GrammarError("expected an object")
    try:
        text = json.dumps({**schema, "x-guidance": _SCHEMA_OPTIONS})
    except RecursionError:
        raise GrammarError("it is nested too deeply") from None
    return _sized(f"{_HEAD}start: %json {text}\n")


def grammar_of_gbnf(source: str) -> str:
    """Return the grammar that ``source``, one of llama.cpp, means.

    :raises GrammarError: if it is none.
    """
    _sized(source)
    try:
        return _HEAD + lark_of_gbnf(source)
    except GbnfError as error:
        raise GrammarError(str(error)) from None


def grammar_of_choices(texts: Sequence[str]) -> str:
    """Return the grammar that allows each of some texts.

    :raises GrammarError: if they are too long.
    """
    return _sized(_HEAD + "start: " + " | ".join(map(json.dumps, texts)) + "\n")


def grammar_of_regex(pattern: str) -> str:
    """Return the grammar of the texts that a regular expression matches as a whole.

    :raises GrammarError: if it is too long.
    """
    import llguidance

    return _sized(f"{_HEAD}start: TEXT\nTEXT: /{llguidance.regex_to_lark(pattern, '')}/\n")


def _sized(text: str) -> str:
    if len(text.encode(errors="replace")) > _LARGEST_BYTES:
        raise GrammarError(f"expected at most {_LARGEST_BYTES} bytes")
    return text


class Grammars:
    """Compiles grammars for a vocabulary.  Safe for threads."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._lock = threading.Lock()
        self._tokenizer: llguidance.LLTokenizer | None = None
        self._trial = GrammarTrial(_LIMITS)

    def compiled(self, grammar: str) -> Grammar:
        """Return where a text begins.

        :raises GrammarError: if ``grammar`` cannot be used.
        :raises TrialsBusyError: if too many others are being compiled.
        """
        problem = self._trial.problem(grammar)
        if problem:
            raise GrammarError(problem)
        import llguidance

        limits = llguidance.LLParserLimits(**_LIMITS)
        tokenizer = self._known_tokenizer()
        matcher = llguidance.LLMatcher(tokenizer, grammar, log_level=0, limits=limits)
        return Grammar(matcher, self._vocabulary.size)

    def _known_tokenizer(self) -> llguidance.LLTokenizer:
        """Return the vocabulary as the library wants it: made for the first grammar."""
        import llguidance

        with self._lock:
            if self._tokenizer is None:
                tokens = _Tokens(self._vocabulary)
                self._tokenizer = llguidance.LLTokenizer(
                    llguidance.TokenizerWrapper(tokens), eos_token=tokens.ends
                )
            return self._tokenizer


class _Tokens:
    """A vocabulary as llguidance reads it."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        numbers = range(vocabulary.size)
        self.tokens = list(vocabulary.pieces())
        self.special_token_ids = [one for one in numbers if vocabulary.is_control(one)]
        self.ends = [one for one in numbers if vocabulary.is_end(one)]
        self.bos_token_id = vocabulary.beginning
        self.eos_token_id = self.ends[0] if self.ends else 0

    def __call__(self, text: str) -> list[int]:
        return self._vocabulary.tokens(text, special=False, beginning=False)


class Grammar:
    """Where in a grammar a text is.  For one thread at a time.

    :param matcher: at that place.
    :param size: of the vocabulary.
    :raises GrammarError: if the grammar cannot be used.
    """

    def __init__(self, matcher: Any, size: int) -> None:
        self._matcher = matcher
        self._size = size
        self._mask = np.zeros(-(-size // 32), dtype=np.int32)
        self._left_s = _FREE_S
        self._check()

    def copy(self) -> Grammar:
        """Return the same place, to go on from in another way."""
        return Grammar(self._matcher.deep_copy(), self._size)

    def allows(self, token: int) -> bool:
        """Return whether the text may go on with ``token``.

        :raises GrammarError: if that is too much to find out.
        """
        with self._counted():
            allowed: int = self._matcher.validate_tokens([token])
        return allowed == 1

    def masked(self, scores: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Return ``scores`` with minus infinity for the tokens that the text may not go on with.

        :raises GrammarError: if that is too much to find out.
        """
        with self._counted():
            self._matcher.unsafe_compute_mask_ptr(self._mask.ctypes.data, self._mask.nbytes)
        bits = np.unpackbits(self._mask.view(np.uint8), bitorder="little")[: self._size]
        return np.where(bits, scores, np.float32(-np.inf))

    def accept(self, token: int) -> None:
        """Go on with ``token``, which must be allowed.

        :raises GrammarError: if it is not.
        """
        with self._counted():
            self._matcher.consume_token(token)
        self._left_s += _TOKEN_S

    @contextmanager
    def _counted(self) -> Iterator[None]:
        began = time.thread_time()
        yield
        self._left_s -= time.thread_time() - began
        self._check()
        if self._left_s < 0:
            raise GrammarError("it takes too long to follow")

    def _check(self) -> None:
        problem: str = self._matcher.get_error()
        if problem:
            raise GrammarError(f"{problem.split(_NO_DETAILS)[0].strip():.300}")
