"""The worker of greenlets, for backends that only wait for others.

Importing this needs the extra ``gevent``.  gunicorn patches Python's blocking calls in each worker
after the fork, so no plugin may be imported before.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gevent  # type: ignore[import-untyped]
from gevent.socket import socket as GeventSocket  # type: ignore[import-untyped]
from gunicorn import util  # type: ignore[import-untyped]
from gunicorn.http import errors as http_errors  # type: ignore[import-untyped]
from gunicorn.workers.ggevent import GeventWorker  # type: ignore[import-untyped]

from caesar_server.cli.workers.answering import Answering
from caesar_server.cli.workers.manners import Manners

#: How long a connection without a request stays open once the worker is to end: its client may be
#: sending one already.  As long as with threads.
_LINGER_S = 2.0
#: What a client may still send of a body that was refused; as much as with threads.
_LINGER_BYTES = 256 * 1024 * 1024
#: A body that a refused request still has is read up to here, so that the connection can go on to
#: the next request; as much as with threads.
_LEFT_BYTES = 64 * 1024
_LEFT_S = 0.1


class GeventServerWorker(Manners, Answering, GeventWorker):  # type: ignore[misc]
    """gunicorn's ``gevent`` worker with this server's manners.

    A request's head must be there within gunicorn's ``keepalive``; patience begins after it.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._clients: dict[object, GeventSocket] = {}
        self._idle: set[GeventSocket] = set()

    def in_background(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function in a greenlet of its own."""
        gevent.spawn(function, *arguments)

    def begin_to_end(self) -> None:
        """Give what runs its time, and connections on which nothing runs a little."""
        super().begin_to_end()
        gevent.spawn_later(_LINGER_S, self._let_idle_clients_go)

    def handle(self, listener: Any, client: Any, addr: Any) -> None:
        """Serve the requests of a connection."""
        patient = PatientSocket(client.family, client.type, client.proto, fileno=client.detach())
        me = gevent.getcurrent()
        self._clients[me] = patient
        try:
            super().handle(listener, patient, addr)
        finally:
            del self._clients[me]

    def handle_request(self, listener_name: Any, req: Any, sock: Any, addr: Any) -> Any:
        """Answer a request; give up if the client does not take the answer."""
        sock.settimeout(self.patience_s)
        closes_anyway = req.should_close
        found: list[bool] = []

        def should_close() -> bool:
            # asked for the first time when the answer begins, which tells the client; the app reads
            # no more then
            if not found:
                found.append(closes_anyway() or not _read_to_end(req.body))
            return found[0]

        req.should_close = should_close
        try:
            keep = self.answer(req, sock, addr, listener_name)
        except TimeoutError:
            raise self.give_up() from None
        except (gevent.GreenletExit, SystemExit):
            keep = False  # the worker ends
        finally:
            sock.settimeout(None)
        if not keep:
            raise StopIteration

    @contextmanager
    def timeout_ctx(self) -> Iterator[None]:
        """Bound the wait for the next request of the current connection."""
        sock = self._clients[gevent.getcurrent()]
        self._idle.add(sock)
        try:
            with super().timeout_ctx():
                yield
        finally:
            self._idle.discard(sock)

    def _let_idle_clients_go(self) -> None:
        for sock in self._idle:
            try:
                # Not close(): a request that is here already is still read and answered.
                sock.shutdown(socket.SHUT_RD)
            except OSError as error:
                self.log.debug("an idle client had left already: %s", error)


def _read_to_end(body: Any) -> bool:
    """Read what the app left of a request's body; return False if that is too much or broken."""
    left, ended = _LEFT_BYTES, False
    with gevent.Timeout(_LEFT_S, False):
        try:
            while left > 0 and (data := body.read(1024)):
                left -= len(data)
        except http_errors.ParseException:
            return False
        ended = left > 0 and not body.failed
    return ended  # noqa: RET504 - the time-out leaves the block, not the function


class PatientSocket(GeventSocket):  # type: ignore[misc]
    """A connection to a client that is given time.

    The time-out begins anew with each byte that is taken: gevent's own ``sendall`` bounds the whole
    of it, which would cut a slow but steady reader.  The end waits for the client, shortly: to
    close with something unread would take the response away from it, too.
    """

    _ends = False

    def close(self) -> None:
        """Let the client have what was sent, then close."""
        if self._ends:
            super().close()
        else:
            self._ends = True
            util.close_graceful(self, _LINGER_S, _LINGER_BYTES)

    def recv(self, *args: Any) -> Any:
        """Receive; others go on between the pieces of what comes after the end."""
        if self._ends:
            # where there always is more, gevent would not let them
            gevent.sleep(0)
        return super().recv(*args)

    def sendall(self, data: bytes, flags: int = 0) -> None:
        """Send all of ``data``.

        :raises TimeoutError: if no byte was taken for as long as the socket's time-out.
        """
        left = memoryview(data)
        while left:
            left = left[self.send(left, flags) :]
