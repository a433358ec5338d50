"""The upstream servers: which is asked first, which is unwell, and how often one may ask again."""

from __future__ import annotations

import fnmatch
import random
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from caesar_backend_upstream.http.transport import Transport
from caesar_backend_upstream.keys import Key, Scrubber
from caesar_backend_upstream.options import ServerOptions

#: Retries that are always in hand, so that a quiet server's clients are not given up at once.
_BUDGET_RESERVE = 10.0


class Condition:
    """How a server is, from how its answers went.  Safe for threads.

    :param failures: so many in a row make it cool down.
    """

    def __init__(
        self, failures: int, cooldown_s: float, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit = failures
        self._cooldown_s = cooldown_s
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._failures = 0
        self._cool_until = 0.0

    @property
    def cooling(self) -> bool:
        """Whether it is to be asked only if all others fail."""
        return self._monotonic() < self._cool_until

    def succeeded(self) -> None:
        """Note a good answer."""
        if self._failures:
            with self._lock:
                self._failures, self._cool_until = 0, 0.0

    def failed(self) -> None:
        """Note a failure."""
        with self._lock:
            self._failures += 1
            if self._failures >= self._limit:
                self._cool_until = self._monotonic() + self._cooldown_s

    def asked_for_a_break(self, delay_s: float) -> None:
        """Note that it wants no requests for a while; not believed beyond the cool-down."""
        with self._lock:
            until = self._monotonic() + min(delay_s, self._cooldown_s)
            self._cool_until = max(self._cool_until, until)


@dataclass(frozen=True)
class Server:
    """One upstream server, ready to be asked.

    :ivar key: the operator's, or None.
    """

    name: str
    options: ServerOptions
    transport: Transport = field(repr=False)
    condition: Condition = field(repr=False)
    key: Key | None = field(repr=False)
    scrubber: Scrubber = field(repr=False)

    def url_of(self, path: str) -> str:
        """Return the URL of a path below the base URL, whose query, if any, stays at its end."""
        base, mark, query = self.options.url.partition("?")
        if query and "?" in path:
            mark = "&"
        return f"{base.rstrip('/')}/{path}{mark}{query}"

    def answers_for(self, model: str) -> bool:
        """Return whether it is asked for this model; an empty name is anybody's."""
        patterns = self.options.models
        return (
            not patterns
            or not model
            or any(fnmatch.fnmatchcase(model, pattern) for pattern in patterns)
        )


def in_order(
    servers: Iterable[Server], order: Literal["listed", "weighted"], chance: random.Random
) -> Sequence[Server]:
    """Return the servers in the order in which they are to be asked; those that cool down last."""
    servers = list(servers)
    if order == "weighted" and len(servers) > 1:
        # Each gets an arrival time at its rate (Efraimidis and Spirakis); weight 0 never arrives.
        arrival = {
            server.name: chance.expovariate(server.options.weight)
            if server.options.weight
            else float("inf")
            for server in servers
        }
        servers.sort(key=lambda server: arrival[server.name])
    return sorted(servers, key=lambda server: server.condition.cooling)


class RetryBudget:
    """Retries as a share of the requests.  Safe for threads.

    :param per_request: what each request adds.
    """

    def __init__(self, per_request: float) -> None:
        self._per_request = per_request
        self._lock = threading.Lock()
        self._left = _BUDGET_RESERVE

    def add_request(self) -> None:
        """Note a request."""
        with self._lock:
            self._left = min(_BUDGET_RESERVE, self._left + self._per_request)

    def take(self) -> bool:
        """Take one retry, if there is one."""
        with self._lock:
            if self._left < 1:
                return False
            self._left -= 1
            return True
