"""The seam between the frames of a stream and the WSGI server that sends them.

What goes wrong below the events (a connection that is reset, half a frame, a silent end) cannot be
said by a backend.  Whoever wants that puts a :class:`Wire` into the WSGI environ before the view
runs; where nobody does, a stream looks once whether there is one, and that is all it costs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, cast

#: Where the wire of an exchange is in its WSGI environ.
WIRE_KEY = "caesar_server.wire"


class Wire(Protocol):
    """Stands between the frames of one stream and its client.

    :ivar over: whether the stream ends here: nothing is asked for, or written, any more.
    """

    over: bool

    def writes(self, data: bytes, *, ended: bool) -> Iterable[bytes]:
        """Return what to write instead of ``data``, each item in a write of its own.

        Called, and the result iterated, in the thread that writes; both may block.

        :param data: whole frames and comments, in their order, at least one; see
            :func:`~caesar_server.contract.sse.split_frames`.
        :param ended: whether they are the last ones.
        """

    def left(self) -> None:
        """Hear that the client left; ends whatever blocks.  Called from any thread, once."""


def wire_of(environ: Mapping[str, Any]) -> Wire | None:
    """Return the wire that was put into a WSGI environ, or None."""
    return cast("Wire | None", environ.get(WIRE_KEY))
