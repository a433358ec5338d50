"""A grammar of a caller, tried in a process of its own before it is used in this one.

A few hundred bytes can be a grammar that takes hours or all memory to compile, or overflows the
stack: no rule about its text finds all of these.
"""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
import threading
from collections import OrderedDict
from collections.abc import Mapping

#: Processor time and memory of a trial.
CPU_S = 2
_MEMORY_BYTES = 2 * 1024**3
#: The stack of a thread where the limit of the process does not say it.
_USUAL_STACK_BYTES = 2 * 1024**2
#: Its longest time, on a machine where processor time is hard to come by.
_LONGEST_S = 60.0
#: How long one waits for the trials of others.
_PATIENCE_S = 20.0
#: Grammars that are remembered: most callers send the same ones again.
_REMEMBERED = 256

#: Compiles a grammar, for a vocabulary of the 256 bytes, and asks for the first token.
_PROGRAM = """
import json, resource, sys
asked = json.load(sys.stdin)
for limit, value in asked["resources"].items():
    kind = getattr(resource, limit)
    hard = resource.getrlimit(kind)[1]
    fits = hard == resource.RLIM_INFINITY or value <= hard
    resource.setrlimit(kind, (value if fits else hard, hard))
sys.path[:] = asked["path"]
import llguidance

class Bytes:
    tokens = [bytes([byte]) for byte in range(256)] + [b"\\xff<end>"]
    eos_token_id, bos_token_id, special_token_ids = 256, None, [256]
    def __call__(self, text):
        return list(text.encode() if isinstance(text, str) else text)

limits = llguidance.LLParserLimits(**asked["limits"])
tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(Bytes()))
matcher = llguidance.LLMatcher(tokenizer, asked["grammar"], log_level=0, limits=limits)
problem = matcher.get_error()
if not problem:
    allowed = matcher.compute_bitmask()
    problem = matcher.get_error()
    if problem.startswith("NoExtension") or not any(allowed):
        problem = "it allows no text at all"
json.dump(problem, sys.stdout)
"""


class TrialsBusyError(Exception):
    """Too many other grammars are being tried."""


class GrammarTrial:
    """Tries grammars, one at a time, and remembers what came of it.  Safe for threads.

    :param limits: what the library may spend on one.
    """

    def __init__(self, limits: Mapping[str, int | bool]) -> None:
        self._limits = dict(limits)
        self._known: OrderedDict[str, str] = OrderedDict()
        self._known_lock = threading.Lock()
        self._one_at_a_time = threading.Lock()

    def problem(self, grammar: str) -> str:
        """Return why a grammar cannot be used, or an empty text if it can.

        Takes some tenths of a second for one that is new, and at most :data:`CPU_S` of processor
        time.  One that is known waits for nobody.

        :raises TrialsBusyError: if those of others take too long.
        """
        found = self._recalled(grammar)
        if found is not None:
            return found
        if not self._one_at_a_time.acquire(timeout=_PATIENCE_S):
            raise TrialsBusyError
        try:
            found = self._recalled(grammar)
            return self._remembered(grammar, self._tried(grammar)) if found is None else found
        finally:
            self._one_at_a_time.release()

    def _recalled(self, grammar: str) -> str | None:
        with self._known_lock:
            if grammar in self._known:
                self._known.move_to_end(grammar)
            return self._known.get(grammar)

    def _remembered(self, grammar: str, problem: str) -> str:
        with self._known_lock:
            self._known[grammar] = problem
            while len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return problem

    def _tried(self, grammar: str) -> str:
        asked = {
            "grammar": grammar,
            "limits": self._limits,
            "path": sys.path,
            "resources": {
                "RLIMIT_CPU": CPU_S,
                "RLIMIT_AS": _MEMORY_BYTES,
                "RLIMIT_STACK": _thread_stack_bytes() // 2,  # what passes has room here
                "RLIMIT_CORE": 0,
            },
        }
        try:
            done = subprocess.run(  # noqa: S603 - the command is ours; the grammar is input
                [sys.executable, "-I", "-S", "-c", _PROGRAM],
                input=json.dumps(asked),
                capture_output=True,
                text=True,
                timeout=_LONGEST_S,
            )
        except subprocess.TimeoutExpired:
            return "it takes too long to compile"
        if done.returncode == 0:
            problem: str = json.loads(done.stdout)
            return f"{problem.strip():.300}"
        if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
            return "it takes too long to compile"
        if done.returncode < 0:
            return "it is too deep or too large to compile"
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        return f"it cannot be compiled: {last:.200}"


def _thread_stack_bytes() -> int:
    limit, _ = resource.getrlimit(resource.RLIMIT_STACK)
    usual = _USUAL_STACK_BYTES if limit == resource.RLIM_INFINITY else limit
    return threading.stack_size() or usual
