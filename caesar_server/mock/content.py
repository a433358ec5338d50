"""Bodies that are no JSON: what is kept of them, and what equal ones are known by."""

from __future__ import annotations

import hashlib
from email.message import Message

#: So much of the beginning is kept.
HEAD_BYTES = 64 * 1024
#: Stands for the boundary of a form, which clients draw anew for each request.
_BOUNDARY = b"boundary"


class Content:
    """A body as it comes.  For one thread at a time.

    :param content_type: the header.
    :ivar size: bytes of the whole body.
    """

    def __init__(self, content_type: str = "") -> None:
        self.size = 0
        self._head = bytearray()
        self._boundary = _boundary_of(content_type)
        self._digest = hashlib.blake2b(digest_size=16)
        #: May be the beginning of a boundary.
        self._rest = b""

    @classmethod
    def of(cls, body: bytes, content_type: str = "") -> Content:
        """Return what a whole body is."""
        content = cls(content_type)
        content.add(body)
        return content

    def add(self, piece: bytes) -> None:
        """Take the next bytes."""
        self.size += len(piece)
        if len(self._head) < HEAD_BYTES:
            self._head += piece[: HEAD_BYTES - len(self._head)]
        if not self._boundary:
            self._digest.update(piece)
            return
        *parts, rest = (self._rest + piece).split(self._boundary)
        for part in parts:
            self._digest.update(part)
            self._digest.update(_BOUNDARY)
        known = max(0, len(rest) - len(self._boundary) + 1)
        self._digest.update(rest[:known])
        self._rest = rest[known:]

    def leave(self, size: int) -> None:
        """Note that the body has so many bytes, none of which is read."""
        self.size = size

    @property
    def head(self) -> bytes:
        """The first :data:`HEAD_BYTES`, or all."""
        return bytes(self._head)

    @property
    def left_out_bytes(self) -> int:
        """How much longer the body is than its head."""
        return self.size - len(self._head)

    def digest(self) -> bytes:
        """Return what is the same for bodies that only differ in their boundary."""
        whole = self._digest.copy()
        whole.update(self._rest)
        return whole.digest()


def _boundary_of(content_type: str) -> bytes:
    if not content_type.lower().startswith("multipart/"):
        return b""
    message = Message()
    message["Content-Type"] = content_type.encode("ascii", "replace").decode()
    return (message.get_boundary() or "").encode("utf-8", "replace")
