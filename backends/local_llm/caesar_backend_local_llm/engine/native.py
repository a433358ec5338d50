"""The native library, reached through the ctypes binding of llama-cpp-python.

Its high-level class is not used: that evaluates and samples in one, keeps what it evaluated before
in ways that change later texts, and has one context for each copy of the weights.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

logger = logging.getLogger("caesar_server.backend.local_llm")

#: ``enum ggml_log_level``; 5 goes on with the line before.
_LEVELS = {3: logging.INFO}
_CONTINUED = 5
_WARNING = 2


class Native:
    """The functions of llama.cpp.  One a process; safe for threads as far as llama.cpp is.

    Calls of :attr:`lib` let other threads of Python run meanwhile.  Those of :attr:`quick` do not:
    they take less than a microsecond, and to get the interpreter back from a busy thread takes up
    to five milliseconds, for each call again.
    """

    def __init__(self) -> None:
        self.lib: Any = importlib.import_module("llama_cpp.llama_cpp")
        library = self.lib._lib
        self.quick: Any = ctypes.PyDLL(library._name, handle=library._handle)
        for name, result, arguments in (
            ("llama_get_logits_ith", ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_int32]),
            ("llama_vocab_is_eog", ctypes.c_bool, [ctypes.c_void_p, ctypes.c_int32]),
            (
                "llama_token_to_piece",
                ctypes.c_int32,
                [
                    *(ctypes.c_void_p, ctypes.c_int32, ctypes.c_char_p),
                    *(ctypes.c_int32, ctypes.c_int32, ctypes.c_bool),
                ],
            ),
        ):
            function = getattr(self.quick, name)
            function.restype, function.argtypes = result, arguments
        self._said = threading.local()
        self._log = self.lib.llama_log_callback(self._take_line)
        self.lib.llama_log_set(self._log, ctypes.c_void_p(0))
        self._end = _end_callback(self.lib)
        self.lib.llama_backend_init()

    @contextmanager
    def listening(self) -> Iterator[list[str]]:
        """Collect the warnings and errors that the library logs in this thread."""
        self._said.lines = lines = list[str]()
        try:
            yield lines
        finally:
            self._said.lines = None

    def _take_line(self, level: int, text: bytes, _data: object) -> None:
        """Hand on what the library logs; the callback of its own binding prints it to stderr."""
        line = text.decode("utf-8", errors="replace").strip()
        lines: list[str] | None = getattr(self._said, "lines", None)
        if lines is not None and level >= _WARNING and level != _CONTINUED and line:
            lines.append(line)
        if line:
            logger.log(_LEVELS.get(level, logging.DEBUG), "llama.cpp: %s", line)


def _end_callback(lib: Any) -> Any:
    """Let a failed assertion of the library be logged; returns what must live as long as it.

    Without this the library starts a debugger for a backtrace, which stops the whole process while
    it reads symbols.  The process still ends after the callback.
    """

    def log(message: bytes) -> None:
        logger.critical("llama.cpp ends this process: %s", message.decode(errors="replace"))

    callback = ctypes.CFUNCTYPE(None, ctypes.c_char_p)(log)
    base = ctypes.CDLL(lib._lib._name, handle=lib._lib._handle)
    try:
        set_callback = base.ggml_set_abort_callback
    except AttributeError:  # a build that has it in a library of its own, not linked to this one
        return None
    set_callback.restype, set_callback.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    set_callback(ctypes.cast(callback, ctypes.c_void_p))
    return callback


@functools.cache
def native() -> Native:
    """Load the library, once a process, since its log callback is one a process.

    :raises ImportError: if llama-cpp-python is not installed.
    """
    return Native()


class AbortFlag:
    """Ends an evaluation that is under way.  Safe from any thread.

    The library asks a function between any two steps of its graph, some hundred times a token.  One
    written in Python would take the interpreter's lock each time, so it is ``strlen`` of the C
    library, on a text that is empty as long as the evaluation may go on.
    """

    def __init__(self) -> None:
        self._text = ctypes.create_string_buffer(2)

    def attach(self, lib: Any, context: Any) -> None:
        """Let the evaluations of a native context look at this flag."""
        callback = ctypes.cast(ctypes.CDLL(None).strlen, lib.ggml_abort_callback)
        lib.llama_set_abort_callback(context, callback, ctypes.addressof(self._text))

    def set(self) -> None:
        """End the evaluation that is under way, and each one until :meth:`clear`."""
        self._text[0] = b"\1"

    def clear(self) -> None:
        """Let evaluations go on again."""
        self._text[0] = b"\0"
