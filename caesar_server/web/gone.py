"""Noticing that a client has left without writing to it.

A JSON answer and a stream that is silent write nothing, so nothing tells that nobody reads.  Where
the host lends the socket, one thread per process watches all of them for hang-up; elsewhere the
next write, at the latest a stream's heartbeat, finds out.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

from caesar_server.web.observing.exchange import noting_departure

logger = logging.getLogger(__name__)

#: Where gunicorn and werkzeug's server put the connection.
_SOCKET_KEYS = ("gunicorn.socket", "werkzeug.socket")
_HANG_UP = getattr(select, "EPOLLRDHUP", 0) | getattr(select, "EPOLLHUP", 0)
#: Taken now: gevent removes it from the module, since its waiting would hold up every greenlet.
_EPOLL: type[select.epoll] | None = getattr(select, "epoll", None)
#: Taken now: gevent's own knows reading and writing alone, and sees no hang-up.
_POLL: Any = getattr(select, "poll", None)


def client_socket(environ: Mapping[str, Any]) -> socket.socket | None:
    """Return the connection of a WSGI request, or None if the host does not lend it."""
    for key in _SOCKET_KEYS:
        found = environ.get(key)
        if isinstance(found, socket.socket):
            return found
    return None


class SocketWatch:
    """Calls back when the other end of a socket closes or half-closes its side.

    Half-closing counts as leaving, as nginx has it.  The thread starts with the first socket, so
    never before a fork; it is a daemon and ends with :meth:`close`.  Where the system has no epoll,
    or gevent took it away before this module was imported, nothing is ever noticed.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: The sockets in the poll, by descriptor and, since that is used again, by themselves.
        self._clients: dict[int, _Client] = {}
        self._known: WeakKeyDictionary[socket.socket, _Client] = WeakKeyDictionary()
        self._poll: select.epoll | None = None
        self._wake = -1
        self._thread: threading.Thread | None = None
        self._closed = False

    def watch(self, sock: socket.socket | None, callback: Callable[[], None]) -> Callable[[], None]:
        """Begin to watch; return the function that ends it, to be called before the socket closes.

        If the client has left already the callback comes at once.

        :param sock: None watches nothing.
        :param callback: called once, from the watch's thread or, if the client has left already,
            from this one.  It must be short and must not raise; it may still come while the watch
            is being ended.
        """
        fd = -1 if sock is None else sock.fileno()
        if sock is None or fd < 0 or _EPOLL is None:
            return _nothing
        # a run that is cancelled does not say why
        callback = noting_departure(callback)
        with self._lock:
            if self._closed:
                return _nothing
            client = self._known.get(sock)
            if client is None:
                try:
                    _register(self._ready_poll(_EPOLL), fd)
                except RuntimeError:  # the system allows no further thread
                    return _nothing
                client = self._known[sock] = self._clients[fd] = _Client()
            if client.callback is not None:
                return _nothing
            if not client.left:
                client.callback = callback
        if client.left:
            _call(callback)

        def stop() -> None:
            if client.callback is callback:
                client.callback = None

        return stop

    def close(self) -> None:
        """Watch nothing any more and end the thread."""
        with self._lock:
            self._closed = True
            for client in self._clients.values():
                client.callback = None
            self._clients.clear()
            thread, self._thread = self._thread, None
            if thread is not None:
                os.eventfd_write(self._wake, 1)
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _ready_poll(self, epoll: type[select.epoll]) -> select.epoll:
        """Return the poll object; makes it and its thread on first use."""
        if self._poll is None:
            poll, wake = epoll(), os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            poll.register(wake, select.EPOLLIN)
            thread = threading.Thread(
                target=self._run, args=(poll, wake), name="caesar-gone", daemon=True
            )
            try:
                thread.start()
            except RuntimeError:
                poll.close()
                os.close(wake)
                raise
            self._poll, self._wake, self._thread = poll, wake, thread
        return self._poll

    def _run(self, poll: select.epoll, wake: int) -> None:
        # An epoll is itself something to poll, and that kind of waiting gevent knows how to do.
        events = select.poll()
        events.register(poll.fileno(), select.POLLIN)
        try:
            while True:
                events.poll()
                for fd, _ in poll.poll(0):
                    if fd == wake:
                        return
                    self._note_hang_up(fd)
        finally:
            with self._lock:
                self._poll = None
            poll.close()
            os.close(wake)

    def _note_hang_up(self, fd: int) -> None:
        with self._lock:
            client = self._clients.get(fd)
            # The host may have closed that socket since, and given its number to another client.
            if client is None or not _hung_up(fd):
                return
            client.left = True
            callback = client.callback
        if callback is not None:
            _call(callback)


class _Client:
    """The other end of a socket.

    :ivar left: whether it has hung up.
    :ivar callback: whom to tell.
    """

    __slots__ = ("callback", "left")

    def __init__(self) -> None:
        self.callback: Callable[[], None] | None = None
        self.left = False


def _call(callback: Callable[[], None]) -> None:
    try:
        callback()
    except Exception:
        logger.exception("what follows a client's leaving raised")


def _register(poll: select.epoll, fd: int) -> None:
    """Add a socket for good: its close takes it out.

    Most have many requests, and each call into the kernel hands the interpreter over.  One shot: a
    hang-up stays true, and would wake the thread again and again.
    """
    try:
        poll.register(fd, _HANG_UP | select.EPOLLONESHOT)
    except FileExistsError:
        # another object for the same connection
        poll.modify(fd, _HANG_UP | select.EPOLLONESHOT)


def _hung_up(fd: int) -> bool:
    poll = _POLL()
    poll.register(fd, _HANG_UP)
    return any(event & _HANG_UP for _, event in poll.poll(0))  # looks, and does not wait


def _nothing() -> None:
    """End a watch that never began."""
