"""gunicorn's ``gthread`` worker, without the waits that leave all other clients unanswered.

Four threads of a worker are kept for what is answered at once: ``/healthz`` and refusals.  They are
there only as long as nothing but a request takes a thread, and nothing at all stops the loop.
gunicorn 27.0 does not see to that:

* where the system allows fewer threads or open files than the settings, a request ends the worker
  and all that it answers;
* a new connection takes a thread for up to five seconds although nothing was sent on it yet, and
  one on which a request's head comes byte by byte for as long as that goes on;
* a connection that is not kept is closed in the loop, which waits up to two seconds for its client
  to close it too: 50 clients that were refused and stay connected stop the loop for 100 seconds;
* a thread waits up to five seconds for the rest of a body that the app did not want.  It does so
  after the answer has promised to keep the connection, and closes it if too much is left: the
  client's next request is lost.

And the loop is woken at the end of each answer, only to wait for the connection's next request: a
thread can say so itself.
"""

from __future__ import annotations

import errno
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, NamedTuple

from gunicorn import util  # type: ignore[import-untyped]
from gunicorn.http import errors as http_errors  # type: ignore[import-untyped]
from gunicorn.http.body import LengthReader  # type: ignore[import-untyped]
from gunicorn.http2 import negotiation  # type: ignore[import-untyped]
from gunicorn.workers.gthread import (  # type: ignore[import-untyped]
    STOP_KEEPALIVE_LINGER,
    PollableMethodQueue,
    TConn,
    ThreadWorker,
)

from caesar_server.cli.workers.answering import Answering
from caesar_server.errors import OverloadedError
from caesar_server.jobs.running.threads import PatientPool

#: What an accept may fail with although all is well.
_NO_CONNECTION = (errno.EAGAIN, errno.ECONNABORTED, errno.EWOULDBLOCK)
#: What an accept fails with while the system allows no more, and how long it is then left alone:
#: the connection that waits would wake the loop again and again.
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_NO_ROOM_S = 0.5
#: Seconds for which a closed connection's client may still send, and how much.  Without that time
#: it would lose its answer to a reset (RFC 9112, section 9.6): many send all of a body before they
#: read that it was refused.
_LINGER_S = 2.0
_LINGER_BYTES = 256 * 1024 * 1024
#: Taken at once; the loop sees to others in between.
_LINGER_PIECE_BYTES = 256 * 1024
#: Taken of a request's head at once; as much as gunicorn's parser does.
_HEAD_PIECE_BYTES = 8192
_END_OF_HEAD = b"\r\n\r\n"
#: Seconds that a thread waits for the rest of a body that the app did not read.
_DRAIN_S = 0.1


class PollingWorker(Answering, ThreadWorker):  # type: ignore[misc]
    """Gives no thread to a connection on which no whole head is, nor to one that is closing.

    A head has as long to come as a connection has for its next request, gunicorn's ``keepalive``.
    """

    #: How long an idle connection stays open when the worker is to end, in seconds.
    idle_s: ClassVar[float] = STOP_KEEPALIVE_LINGER

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.method_queue = CallQueue()
        self._lingering: deque[_Lingering] = deque()
        self._no_room_until: float | None = None

    def get_thread_pool(self) -> PatientPool:
        """Return the threads that answer; gunicorn asks once, when the worker begins."""
        return PatientPool(self.cfg.threads, thread_name_prefix="caesar-http")

    def accept(self, listener: socket.socket) -> None:
        """Take a new connection; it waits in the loop for its first byte."""
        try:
            sock, address = listener.accept()
        except OSError as error:
            if error.errno in _NO_ROOM:
                self._accept_later(error)
            elif error.errno not in _NO_CONNECTION:
                raise
            return
        self.nr_conns += 1
        connection = _Connection(self, sock, address, listener)
        connection.set_timeout()
        self.pending_conns.append(connection)
        ready = partial(self.on_pending_socket_readable, connection)
        self.poller.register(sock, selectors.EVENT_READ, ready)

    def on_pending_socket_readable(self, conn: Any, client: socket.socket) -> None:
        """Take what came of a request; the loop's, as all that follows."""
        if conn.take_head():
            super().on_pending_socket_readable(conn, client)

    def on_client_socket_readable(self, conn: Any, client: socket.socket) -> None:
        """Take what came of a further request."""
        if conn.take_head():
            super().on_client_socket_readable(conn, client)
        elif conn.head:
            # it is idle no more, and its time begins
            self.keepalived_conns.remove(conn)
            conn.set_timeout()
            self.pending_conns.append(conn)
            ready = partial(self.on_pending_socket_readable, conn)
            self.poller.modify(client, selectors.EVENT_READ, ready)
            self._cap_if_ending()

    def set_accept_enabled(self, enabled: bool) -> None:
        """Take new connections or none; the loop asks in each round for what it thinks right."""
        until = self._no_room_until
        if not enabled or until is None or time.monotonic() >= until:
            super().set_accept_enabled(enabled)

    def _accept_later(self, error: OSError) -> None:
        """Take no connections for a while: those that are open may end meanwhile."""
        if self._no_room_until is None:
            self.log.warning(
                "new connections have to wait (%s); allow more open files (ulimit -n, "
                "LimitNOFILE), or set threads lower",
                error.strerror,
            )
        self._no_room_until = time.monotonic() + _NO_ROOM_S
        self.set_accept_enabled(False)

    def murder_keepalived(self, force: bool = False) -> None:
        """Close connections whose time is over; called in each round of the loop and at its end."""
        super().murder_keepalived(force=force)
        now = time.monotonic()
        while self._lingering and (force or self._lingering[0].until <= now):
            self._end_linger(self._lingering[0])

    def linger(self, sock: socket.socket) -> None:
        """Say that no more will come, and close once the client has or its time is over.

        Called in the loop alone.  The connection counts among the worker's meanwhile.
        """
        try:
            sock.shutdown(socket.SHUT_WR)
        except OSError:
            util.close(sock)
            return
        sock.setblocking(False)
        lingering = _Lingering(sock, time.monotonic() + _LINGER_S)
        self._lingering.append(lingering)
        self.nr_conns += 1
        self.poller.register(sock, selectors.EVENT_READ, partial(self._drain, lingering))

    def _drain(self, lingering: _Lingering, sock: socket.socket) -> None:
        try:
            taken = len(sock.recv(_LINGER_PIECE_BYTES))
        except BlockingIOError:
            return
        except OSError:
            taken = 0
        lingering.taken += taken
        if not taken or lingering.taken > _LINGER_BYTES:
            self._end_linger(lingering)

    def _end_linger(self, lingering: _Lingering) -> None:
        self._lingering.remove(lingering)
        self.poller.unregister(lingering.sock)
        self.nr_conns -= 1
        util.close(lingering.sock)

    def _cap_keepalive(self, deadline: float = float("inf")) -> None:
        """Let idle connections go by ``deadline``: the worker is to end."""
        deadline = min(deadline, time.monotonic() + self.idle_s)
        # copied: threads add to them meanwhile
        for connection in (*self.keepalived_conns, *self.pending_conns):
            connection.timeout = min(connection.timeout, deadline)

    def enqueue_req(self, conn: Any) -> None:
        """Give a connection on which something was sent to a thread."""
        try:
            self.tpool.submit(self._serve, conn)
        except OverloadedError as error:
            # not even a first thread, which would say it to the client
            self.log.warning("a connection is closed: %s", error)
            self.nr_conns -= 1
            conn.close()

    def _serve(self, conn: Any) -> None:
        """Serve the next request of a connection and see to its future; called in a thread."""
        kept: object = False
        waits = False
        try:
            kept = self.handle(conn)
            waits = kept is True and self._wait_for_more(conn)
        except BaseException:  # the thread must live on, and the loop know of the connection
            kept = False
            self.log.exception("a connection is closed, for an error of this server")
        if not waits:
            self.method_queue.defer(self.finish_request, conn, _Done(kept))

    def _wait_for_more(self, conn: Any) -> bool:
        """Let the loop wait for a connection's next request; return False if it must do that.

        The loop may look at everything here meanwhile: it finds the connection among those that are
        kept before it can hear of it.
        """
        if not self.alive or conn.has_next():
            return False
        waiting, readable = self.keepalived_conns, self.on_client_socket_readable
        if conn.head:
            waiting, readable = self.pending_conns, self.on_pending_socket_readable
        conn.set_timeout()
        waiting.append(conn)
        try:
            self.poller.register(conn.sock, selectors.EVENT_READ, partial(readable, conn))
        except Exception:
            if conn not in waiting:
                return True  # its time was over already, and the loop has closed it
            waiting.remove(conn)
            raise
        # The worker may have been told to end in between, and the loop have looked already.
        self._cap_if_ending()
        return True

    def _cap_if_ending(self) -> None:
        if not self.alive:
            self.method_queue.defer(self._cap_keepalive)

    def handle_request(self, req: Any, conn: Any) -> bool:
        """Answer a request; the answer says whether the connection goes on."""
        closes_anyway = req.should_close
        found: list[bool] = []

        def should_close() -> bool:
            # asked for the first time when the answer begins: the app reads no more then
            if not found:
                found.append(closes_anyway() or not _finish_body(conn.parser))
            return found[0]

        req.should_close = should_close
        goes_on = len(self.keepalived_conns) < self.max_keepalived
        return self.answer(req, conn.sock, conn.client, conn.server, goes_on=goes_on)

    def _keepalive_after(self, conn: Any, keepalive: bool) -> bool:
        # nothing is left of the body: the answer has promised it
        return bool(keepalive)


class CallQueue(PollableMethodQueue):  # type: ignore[misc]
    """What threads want the loop to call; after :meth:`close` it takes no more.

    gunicorn's goes on to write to the number of its pipe, which may be that of another file by
    then: a thread that answers longer than the worker waits put a byte into the database of jobs.
    """

    _read_fd: int | None
    _write_fd: int | None

    def __init__(self) -> None:
        super().__init__()
        # by the same thread again, which a signal may find here
        self._open = threading.RLock()

    def defer(self, callback: Callable[..., object], *args: object) -> None:
        """Have the loop call ``callback``.  Safe from any thread, and in a signal handler."""
        with self._open:
            if self._write_fd is not None:
                super().defer(callback, *args)

    def close(self) -> None:
        """Close the pipe."""
        with self._open:
            super().close()
            self._read_fd = self._write_fd = None


def _finish_body(parser: Any) -> bool:
    """Read what the app left of a request's body; return False if that is too much or broken."""
    body = parser.mesg.body
    if isinstance(body.reader, LengthReader) and body.reader.length == 0 and not body.failed:
        return True  # to look for more takes calls into the kernel
    try:
        return bool(parser.finish_body(deadline=time.monotonic() + _DRAIN_S))
    except http_errors.ParseException:
        return False


class _Connection(TConn):  # type: ignore[misc]
    """A connection whose heads the loop can take, and that does not stop it when it is closed."""

    def __init__(
        self, worker: PollingWorker, sock: socket.socket, address: Any, listener: socket.socket
    ) -> None:
        super().__init__(worker.cfg, sock, address, listener.getsockname())
        self._worker = worker
        #: What came of a request that no thread has yet.
        self.head = bytearray()
        cfg = worker.cfg
        #: Encrypted bytes tell nothing, and HTTP/2 begins in its own way.
        self._is_plain = not cfg.is_ssl and not negotiation.prior_knowledge_allowed(cfg, address)
        self._most_line = cfg.limit_request_line + 2
        self._most_bytes = cfg.limit_request_line + cfg.limit_request_fields * (
            cfg.limit_request_field_size + 2
        )

    def init(self) -> None:
        """Give the parser what the loop has taken; called in the thread, for each request."""
        super().init()
        if self.head:
            self.parser.unreader.unread(bytes(self.head))
            self.head.clear()

    def take_head(self) -> bool:
        """Take what came of a request's head; return whether a thread has something to do now.

        It also has where the head is too long, the client has gone, or nobody can tell.
        """
        if not self._is_plain:
            return True
        known = len(self.head)
        try:
            piece = self.sock.recv(_HEAD_PIECE_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True  # the thread meets the same
        self.head += piece
        return not piece or self._is_whole(known)

    def has_next(self) -> bool:
        """Return whether the parser holds another request; else take what it holds of one."""
        left = self.parser.unreader.buf.getvalue()
        if self._is_plain and left and not (_END_OF_HEAD in left or self._is_refused(left, 0)):
            self.head += self.parser.unreader.take_buffered()
            return False
        return bool(left)

    def _is_whole(self, known: int) -> bool:
        """Return whether the head is; the first ``known`` bytes were not."""
        end = (head := self.head).find(_END_OF_HEAD, max(0, known - len(_END_OF_HEAD) + 1))
        return end >= 0 or len(head) > self._most_bytes or self._is_refused(head, known)

    def _is_refused(self, head: bytes | bytearray, known: int) -> bool:
        """Return whether the parser refuses this part of a head, whatever comes after it.

        So encrypted bytes, and others that are no HTTP, are answered at once: no end of a head
        would ever come.

        :param known: of so many bytes it is known that they are not refused by themselves.
        """
        at = head.find(b"\n", known)
        while at >= 0:
            if at == 0 or head[at - 1] != 0x0D:
                return True  # a line that ends with LF alone
            at = head.find(b"\n", at + 1)
        begin = 2 if head.startswith(b"\r\n") else 0
        line_end = head.find(b"\r\n", begin)
        if line_end < 0:
            return bool(len(head) - begin > self._most_line)
        if known > line_end + 1:
            return False  # looked at before
        words = head[begin:line_end].split(b" ")
        return len(words) != 3 or not words[2].startswith(b"HTTP/")

    def close(self, graceful: bool = False) -> None:
        if graceful:
            self._worker.linger(self.sock)
        else:
            util.close(self.sock)


class _Done(NamedTuple):
    """What became of a request, as gunicorn's loop asks for it."""

    kept: object

    def cancelled(self) -> bool:
        """Return that it was not."""
        return False

    def result(self) -> object:
        """Return whether the connection goes on."""
        return self.kept


class _Lingering:
    """A connection on which nothing more is sent."""

    def __init__(self, sock: socket.socket, until: float) -> None:
        self.sock = sock
        self.until = until
        self.taken = 0
