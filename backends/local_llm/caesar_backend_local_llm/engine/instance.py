"""One context of a model: the memory of what it has read, and evaluation."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from caesar_backend_local_llm.engine.failures import AbortedError, EvaluationError, ModelLoadError
from caesar_backend_local_llm.engine.native import AbortFlag, native

if TYPE_CHECKING:
    from caesar_backend_local_llm.engine.weights import Weights

#: The score of each token of the vocabulary, before any sampling.
Logits = npt.NDArray[np.float32]

#: What ``llama_decode`` returns when the abort callback said so.
_ABORTED = 2


class Instance:
    """A context.  For one thread at a time: two in one context end the whole process.

    What is evaluated depends on the tokens alone, to the last bit: a prompt is cut into batches at
    multiples of ``batch_tokens``, and only whole batches of an earlier prompt are taken over.

    :param context_tokens: how many tokens it can hold.
    :param batch_tokens: how many tokens of a prompt are evaluated at once.
    :raises ModelLoadError: if there is no memory for it.
    """

    def __init__(
        self, weights: Weights, *, context_tokens: int, batch_tokens: int, threads: int
    ) -> None:
        self._native = native()
        self._weights = weights
        self._lib = lib = self._native.lib
        parameters = lib.llama_context_default_params()
        parameters.n_ctx = context_tokens
        parameters.n_batch = parameters.n_ubatch = batch_tokens
        parameters.n_seq_max = 1
        parameters.n_threads = parameters.n_threads_batch = threads
        parameters.no_perf = True
        with self._native.listening() as said:
            self._context = lib.llama_init_from_model(weights.model, parameters)
        if not self._context:
            raise ModelLoadError(
                f"no memory for a context of {context_tokens} tokens: lower n_ctx or instances"
                + (f" ({said[-1]})" if said else "")
            )
        self._memory = lib.llama_get_memory(self._context)
        self._batch = _Batch(lib, batch_tokens)
        self._batch_tokens = batch_tokens
        self.context_tokens: int = lib.llama_n_ctx(self._context)
        self.flag = AbortFlag()
        self.flag.attach(lib, self._context)
        self._tokens: list[int] = []
        self._view: tuple[int, Logits] | None = None

    def close(self) -> None:
        """Free it; must come before the weights are freed."""
        if self._context:
            self._batch.free()
            self._lib.llama_free(self._context)
            self._context = None

    @property
    def size(self) -> int:
        """How many tokens it holds."""
        return len(self._tokens)

    def shared_with(self, tokens: Sequence[int]) -> int:
        """Return how many tokens of a prompt need not be evaluated: whole batches, not the last."""
        same = 0
        for ours, theirs in zip(self._tokens, tokens, strict=False):
            if ours != theirs:
                break
            same += 1
        return min(same, len(tokens) - 1) // self._batch_tokens * self._batch_tokens

    def read(
        self,
        tokens: Sequence[int],
        *,
        reuse: bool = True,
        each: Callable[[int, Logits], None] | None = None,
    ) -> tuple[Logits, int]:
        """Hold ``tokens`` and nothing else; return the logits after the last, and what was reused.

        :param tokens: at least one.
        :param reuse: take over what an earlier prompt has in common with this one.
        :param each: gets the position of every token, in order, and the logits after it, which are
            valid during the call only.  Nothing is reused then.
        :raises AbortedError: if the flag is set.
        :raises EvaluationError: if the library fails.
        """
        shared = self.shared_with(tokens) if reuse and each is None else 0
        if not self.rewind(shared):
            self.clear()
            shared = 0
        if each is not None:
            self._extend(tokens, each)
            # Logits of all rows come from other matrix shapes, and may differ in their last bits.
            last = (len(tokens) - 1) // self._batch_tokens * self._batch_tokens
            if not self.rewind(last):
                self.clear()
        return self._extend(tokens[len(self._tokens) :]), shared

    def append(self, token: int) -> Logits:
        """Hold one token more; return the logits after it, valid until the next evaluation.

        :raises AbortedError: if the flag is set.
        :raises EvaluationError: if the library fails.
        """
        return self._evaluate((token,))

    def rewind(self, size: int) -> bool:
        """Hold the first ``size`` tokens only; False, and nothing is changed, if it cannot."""
        if size == len(self._tokens):
            return True
        if size == 0:
            self.clear()
            return True
        if not self._weights.rewinds:
            return False
        if not self._lib.llama_memory_seq_rm(self._memory, 0, size, -1):
            return False
        del self._tokens[size:]
        return True

    def clear(self) -> None:
        """Hold nothing."""
        self._lib.llama_memory_clear(self._memory, True)
        self._tokens.clear()

    def _extend(
        self, tokens: Sequence[int], each: Callable[[int, Logits], None] | None = None
    ) -> Logits:
        size = self._batch_tokens
        logits: Logits | None = None
        while tokens:
            batch, tokens = tokens[:size], tokens[size:]
            logits = self._evaluate(batch, each)
        if logits is None:
            raise EvaluationError("there is nothing to evaluate")
        return logits

    def _evaluate(
        self, tokens: Sequence[int], each: Callable[[int, Logits], None] | None = None
    ) -> Logits:
        first = len(self._tokens)
        self._batch.fill(tokens, first, all_rows=each is not None)
        code = self._lib.llama_decode(self._context, self._batch.struct)
        if code:
            self.clear()  # parts of the batch may have been taken in
            if code == _ABORTED:
                raise AbortedError
            raise EvaluationError(f"llama_decode returned {code}")
        self._tokens.extend(tokens)
        if each is not None:
            for row in range(len(tokens)):
                each(first + row, self._logits(row))
        return self._logits(-1)

    def _logits(self, row: int) -> Logits:
        address = self._native.quick.llama_get_logits_ith(self._context, row)
        if not address:
            raise EvaluationError("the library has no logits for this token")
        if self._view is None or self._view[0] != address:
            values = (ctypes.c_float * self._weights.vocabulary.size).from_address(address)
            self._view = address, np.ctypeslib.as_array(values)
        return self._view[1]


class _Batch:
    """Tokens on their way into a context."""

    def __init__(self, lib: Any, size: int) -> None:
        self._lib = lib
        self.struct = lib.llama_batch_init(size, 0, 1)
        shape = (size,)
        self._token = np.ctypeslib.as_array(self.struct.token, shape)
        self._position = np.ctypeslib.as_array(self.struct.pos, shape)
        self._row = np.ctypeslib.as_array(self.struct.logits, shape)
        np.ctypeslib.as_array(self.struct.n_seq_id, shape)[:] = 1
        for number in range(size):
            self.struct.seq_id[number][0] = 0

    def fill(self, tokens: Sequence[int], first: int, *, all_rows: bool) -> None:
        count = len(tokens)
        self.struct.n_tokens = count
        self._token[:count] = tokens
        self._position[:count] = range(first, first + count)
        self._row[:count] = all_rows
        self._row[count - 1] = 1

    def free(self) -> None:
        self._lib.llama_batch_free(self.struct)
