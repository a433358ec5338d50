"""One call while it is answered: what it waits for, what is written down of it, how it ends."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from caesar_server.mock.clock import Pause
from caesar_server.mock.journal import Recording
from caesar_server.mock.model.fault import Fault
from caesar_server.mock.model.rule import Decision, Rule
from caesar_server.mock.scope import Scope
from caesar_server.web.gone import SocketWatch, client_socket

#: Of the WSGI environ.
EXCHANGE_KEY = "caesar_server.mock.exchange"
#: Longer than any clock is turned.
_FOR_EVER_S = 1e9
_NO_RULES: Mapping[int, Rule | None] = {}


class Exchange:
    """Safe from any thread; made by the gate, ended once the answer is over.

    :ivar connection: the client's, or None if the host does not lend it.
    :ivar framed: whether whoever writes the body also notes it in the journal.
    :ivar over: called once it has ended; harmless when called twice.
    :ivar body_faults: what is to go wrong in the body of the answer.
    :ivar fault_answers: whether the answer is that of a fault, not a backend's or a refusal.
    """

    def __init__(
        self,
        scope: Scope,
        recording: Recording,
        environ: Mapping[str, Any],
        watch: SocketWatch,
        over: Callable[[Exchange], None],
    ) -> None:
        self.scope = scope
        self.recording = recording
        self.connection: socket.socket | None = client_socket(environ)
        self.framed = False
        self.body_faults: Sequence[Fault] = ()
        self.fault_answers = False
        self._epoch = scope.clock.epoch
        self._watch = watch
        self._over = over
        self._lock = threading.Lock()
        self._rules: Mapping[int, Rule | None] = _NO_RULES
        self._decision: Decision | None = None
        self._happened: set[int] = set()
        self._settled = False
        self._pause: Pause | None = None
        self._left = False
        self._stopped = False
        self._ended = False

    def decided(self, decision: Decision) -> None:
        """Hear what is done with the call."""
        if decision.faults:
            self._rules = {id(fault): rule for fault, rule in decision.faults}
        self._decision = decision
        self.recording.decided(decision)

    def refused(self) -> None:
        """Hear that the server refuses the call itself: it gives back what it took of the rules.

        A fault rule stays used if one of its faults has happened already.
        """
        decision = self._decision
        if decision is None:
            return
        self._decision, self._settled = None, True
        happened = self._rules_of(self._happened)
        self.scope.give_back(use for use in decision.uses if use.rule.id not in happened)
        # where no rule matched, that is the reason
        if decision.reply is not None:
            self.recording.refused()

    @property
    def goes_on(self) -> bool:
        """Whether the client is not known to be gone, and the server not about to end."""
        return not (self._left or self._stopped)

    @property
    def is_over(self) -> bool:
        """Whether its end has been noted."""
        return self._ended

    def happened(self, fault: Fault) -> None:
        """Note that one of the call's faults happens now."""
        self._happened.add(id(fault))
        self.recording.faulted(fault.kind, self._rules.get(id(fault)))

    def settle(self, coming: Iterable[Fault] = ()) -> None:
        """Note which faults the answer has no place for: it is too short, or ended otherwise.

        A fault rule none of whose faults happens is not used.  To be called before the client can
        see the end, for its next call may be meant for the same rule.

        :param coming: faults that have not happened yet and will.
        """
        with self._lock:
            if self._settled:
                return
            self._settled = True
        seen = self._happened.union(map(id, coming))
        missed = [fault for fault in self.body_faults if id(fault) not in seen]
        if not missed or self._decision is None:
            return
        self.recording.missed(fault.kind for fault in missed)
        idle = self._rules_of(map(id, missed)) - self._rules_of(seen)
        self.scope.give_back(use for use in self._decision.uses if use.rule.id in idle)

    def pause(self, seconds: float | None) -> bool:
        """Wait; False if the client left meanwhile, or the server is about to end.

        Somebody must tell :meth:`leave`, or the client's leaving is not noticed.

        :param seconds: by the scope's clock; None: for ever.
        """
        wait_s = _FOR_EVER_S if seconds is None else seconds
        pause = self.scope.clock.pause(wait_s, self._epoch)
        with self._lock:
            if not self.goes_on:
                return False
            self._pause = pause
        return pause.wait()

    def watched_pause(self, seconds: float | None) -> bool:
        """Wait as :meth:`pause` does, and watch the connection meanwhile."""
        with self.watched():
            return self.pause(seconds)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Notice within the block when the client leaves, where the host lets us."""
        end_watch = self._watch.watch(self.connection, self.leave)
        try:
            yield
        finally:
            end_watch()

    def leave(self) -> None:
        """Hear that the client is gone; ends a wait."""
        with self._lock:
            self._left = True
            self._wake()

    def stop(self) -> None:
        """Hear that the server is about to end; ends a wait."""
        with self._lock:
            self._stopped = True
            self._wake()

    def _rules_of(self, faults: Iterable[int]) -> set[str]:
        """Return the ids of the rules that ask for faults, which are known by their identity."""
        return {rule.id for fault in faults if (rule := self._rules.get(fault)) is not None}

    def _wake(self) -> None:
        if self._pause is not None:
            self._pause.end()

    def end(self, how: str, detail: str = "") -> None:
        """Note how it ended; only the first call counts."""
        if self._ended:  # at the latest the host says so once more
            return
        self._ended = True
        if self.body_faults:
            self.settle()
        # of two threads that come this far the recording hears the first one alone
        self.recording.end(how, detail)
        self._over(self)

    def give_up(self) -> None:
        """Note that it cannot go on, since a wait was ended."""
        if self._left:
            self.end("client_left")
        else:
            self.end("failed", "the server ended")

    def end_of_body(self, *, whole: bool) -> None:
        """Note that the host is done with the body.

        :param whole: whether it asked for all of it.
        """
        self.end("completed" if whole and not self._left else "client_left")
