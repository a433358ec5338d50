"""What is drawn from a seed: a number for each call, ids, and whether a fault of chance happens."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from random import Random

from caesar_server.mock.model.call import Call
from caesar_server.mock.model.fault import Fault
from caesar_server.mock.model.rule import Rule

#: So many different calls are told apart by how often they came.
_MOST_CALLS = 16_384


class Seeds:
    """Draws a number for each call.  Safe for threads.

    :param seed: what they are drawn from.
    """

    def __init__(self, seed: int = 0) -> None:
        self._lock = threading.Lock()
        self._seed = seed
        self._came: dict[bytes, int] = {}
        self._epoch = 0

    @property
    def seed(self) -> int:
        """What they are drawn from."""
        return self._seed

    def forget(self, seed: int) -> None:
        """Begin anew: forget which calls came.

        :param seed: what they are drawn from now.
        """
        with self._lock:
            self._seed = seed
            self._came.clear()
            self._epoch = 0

    def draw(self, call: Call) -> int:
        """Return a number of 64 bits; only seed, call and how often the call came before decide it.

        So calls that come at once get the same in whatever order they arrive.
        """
        content = call.content or repr(call.request).encode("utf-8", "surrogatepass")
        place = f"{call.method} {call.path}\n".encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(place + content, digest_size=16).digest()
        with self._lock:
            if digest not in self._came and len(self._came) >= _MOST_CALLS:
                self._came.clear()
                self._epoch += 1
            count = self._came[digest] = self._came.get(digest, 0) + 1
            text = f"{self._seed}|{self._epoch}|{count}|".encode()
        return int.from_bytes(hashlib.blake2b(text + digest, digest_size=8).digest(), "big")


def drawn_uuid(digest: bytes) -> str:
    """Return 16 bytes as a UUID of version 4; the standard library takes twenty calls for that."""
    text = digest.hex()
    variant = "89ab"[int(text[16], 16) & 3]
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-{variant}{text[17:20]}-{text[20:]}"


def happening(
    faults: Sequence[Fault], rule: Rule | None, seed: int
) -> tuple[tuple[Fault, Rule | None], ...]:
    """Return the faults that chance lets happen, each with the rule that asks for it."""
    if not faults:
        return ()
    who = "" if rule is None else rule.id
    return tuple(
        (fault, rule)
        for number, fault in enumerate(faults)
        if fault.probability >= 1 or Random(f"{seed}|{who}|{number}").random() < fault.probability
    )
