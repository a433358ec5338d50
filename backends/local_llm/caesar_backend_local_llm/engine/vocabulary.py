"""Text to tokens and back, as the model's file says."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from typing import Any

from caesar_backend_local_llm.engine.native import native

#: Bytes of a piece that are asked for at first; longer ones are asked for again.
_PIECE_BYTES = 64


class Vocabulary:
    """The tokens of a model.  Safe for threads: it never changes."""

    def __init__(self, model: Any) -> None:
        self._native = native()
        self._lib = lib = self._native.lib
        self.pointer: Any = lib.llama_model_get_vocab(model)
        self.size: int = lib.llama_vocab_n_tokens(self.pointer)
        self.adds_beginning: bool = lib.llama_vocab_get_add_bos(self.pointer)
        self._adds_end: bool = lib.llama_vocab_get_add_eos(self.pointer)
        #: Token ids, or None where the model has no such token.
        self.beginning = self._known(lib.llama_vocab_bos)
        self.end = self._known(lib.llama_vocab_eos)
        self.fill_prefix = self._known(lib.llama_vocab_fim_pre)
        self.fill_suffix = self._known(lib.llama_vocab_fim_suf)
        self.fill_middle = self._known(lib.llama_vocab_fim_mid)
        self._pieces: dict[tuple[int, bool], bytes] = {}
        self._ends: dict[int, bool] = {}

    def _known(self, ask: Any) -> int | None:
        token: int = ask(self.pointer)
        return token if token >= 0 else None

    @property
    def fills_in(self) -> bool:
        """Whether the model knows how to put text between a prefix and a suffix."""
        return None not in (self.fill_prefix, self.fill_suffix, self.fill_middle)

    def tokens(self, text: str, *, special: bool, beginning: bool = True) -> list[int]:
        """Return the tokens of ``text``.

        :param special: ``<|im_end|>`` and the like become the one token that they name.
        :param beginning: with what the model wants before a prompt, once: a text that begins with
            it in words gets no second one.
        """
        data = text.encode("utf-8", errors="replace")
        size = len(data) + 8
        while True:
            found = (ctypes.c_int32 * size)()
            count: int = self._lib.llama_tokenize(
                self.pointer, data, len(data), found, size, beginning, special
            )
            if count >= 0:
                break
            size = -count
        tokens = list(found[:count])
        if beginning:
            if len(tokens) > 1 and tokens[0] == tokens[1] == self.beginning:
                del tokens[0]
            if self._adds_end and tokens and tokens[-1] == self.end:
                del tokens[-1]  # nothing is to come after it
        return tokens

    def piece(self, token: int, *, special: bool = False) -> bytes:
        """Return the bytes that a token stands for, which may be parts of a character.

        :param special: control tokens are shown by their names; else they stand for nothing.
        """
        key = token, special
        found = self._pieces.get(key)
        if found is None:
            found = self._pieces[key] = self._ask_piece(token, special)
        return found

    def _ask_piece(self, token: int, special: bool) -> bytes:
        size = _PIECE_BYTES
        while True:
            buffer = ctypes.create_string_buffer(size)
            count: int = self._native.quick.llama_token_to_piece(
                self.pointer, token, buffer, size, 0, special
            )
            if count >= 0:
                return buffer.raw[:count]
            size = -count

    def pieces(self) -> Iterator[bytes]:
        """Yield what each token stands for; control tokens by their names after a byte 255."""
        for token in range(self.size):
            plain = self._ask_piece(token, False)
            yield plain or b"\xff" + self._ask_piece(token, True)

    def is_end(self, token: int) -> bool:
        """Return whether a token ends the text: the end of it, of a turn, ..."""
        found = self._ends.get(token)
        if found is None:
            found = self._ends[token] = bool(
                self._native.quick.llama_vocab_is_eog(self.pointer, token)
            )
        return found

    def is_control(self, token: int) -> bool:
        """Return whether a token is no text but tells the model something."""
        return bool(self._lib.llama_vocab_is_control(self.pointer, token))

    def text(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens, without the space that some models put before the first."""
        pieces = [self.piece(token) for token in tokens]
        data = b"".join(pieces)
        if self.puts_space_first and data.startswith(b" "):
            data = data[1:]
        return data.decode("utf-8", errors="replace")

    @property
    def puts_space_first(self) -> bool:
        """Whether the model reads every text as if it began with a space."""
        bare = self.tokens("a", special=False, beginning=False)
        return b"".join(self.piece(token) for token in bare).startswith(b" ")

    def name(self, token: int) -> str:
        """Return what to call a token in a list: its text, or its bytes where that is none."""
        data = self.piece(token, special=True)
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            # as OpenAI writes them
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)
