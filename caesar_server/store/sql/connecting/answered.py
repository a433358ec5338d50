"""Connections to PostgreSQL that do not wait for ever for a server that says nothing."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any, ClassVar, TypeVar

import psycopg

T = TypeVar("T")

#: Longest that one statement may take; the server ends it then, and says so.
STATEMENT_S = 30


class AnsweredConnection(psycopg.Connection[Any]):
    """Closes itself once the server has said nothing for longer than any statement may take.

    No option of libpq does this: keep-alive and ``tcp_user_timeout`` notice a machine that is gone,
    but a process that is stopped, or a proxy that swallows all, still has a kernel that
    acknowledges every byte; and the server's own time-outs are of no use where it does not run.
    """

    #: From the last byte of the server on, while it is its turn.
    silence_s: ClassVar[float] = STATEMENT_S + 5.0

    def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        """Wait until ``gen`` is done.

        :raises psycopg.OperationalError: if the server says nothing; the connection is closed then,
            and what it was asked may have been done or not.
        """
        try:
            return super().wait(while_answered(gen, self.silence_s), *args, **kwargs)
        except _SilenceError:
            self.pgconn.finish()
            raise


def while_answered(gen: Generator[Any, Any, T], silence_s: float) -> Generator[Any, Any, T]:
    """Go on with ``gen`` as long as something comes for it at least every ``silence_s`` seconds.

    It is sent 0 each time that it has waited for a while and nothing came.
    """
    try:
        wanted = next(gen)
        until = time.monotonic() + silence_s
        while True:
            ready = yield wanted
            now = time.monotonic()
            if ready:
                until = now + silence_s
            elif now > until:
                raise _SilenceError(f"the server has said nothing for {silence_s:g} s")
            wanted = gen.send(ready)
    except StopIteration as end:
        value: T = end.value
        return value


class _SilenceError(psycopg.OperationalError):
    pass
