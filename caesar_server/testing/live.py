"""A real threaded HTTP server on a free loopback port, for tests that look at the wire."""

from __future__ import annotations

import io
import socket
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any

from werkzeug.serving import ThreadedWSGIServer, WSGIRequestHandler

from caesar_server.testing.sse_client import SseClient
from caesar_server.web.services import EXTENSION, Services

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication


#: Hundreds of clients may come at once; who finds no place tries again only after a second.
_BACKLOG = 1024


#: What ends a body that is sent in chunks.
_LAST_CHUNK = b"0\r\n\r\n"


class _Writer(io.BufferedWriter):
    """Sends the end of a body at once.

    werkzeug flushes after each piece and not after the end.  Before it closes the connection it
    waits 10 ms for what the client may still send, and the client for the end.
    """

    def write(self, data: Any) -> int:
        """Take the next bytes."""
        taken = super().write(data)
        if data == _LAST_CHUNK:
            self.flush()
        return taken


class _QuietHandler(WSGIRequestHandler):
    """HTTP/1.1, so that streams are sent in chunks and a cut one can be told from a whole one."""

    protocol_version = "HTTP/1.1"
    # One send for the head and the first piece of a body, and one for each later piece: werkzeug
    # writes each in four parts and flushes then.  Sent singly they would wait for one another, up
    # to 40 ms, while the client is in no hurry to acknowledge.
    wbufsize = -1
    disable_nagle_algorithm = True

    def setup(self) -> None:
        """Get ready for a connection."""
        super().setup()
        self.wfile.close()
        self.wfile = _Writer(self.connection.makefile("wb", buffering=0))

    def parse_request(self) -> bool:
        """Answer who speaks HTTP/1.0 in kind: it knows no chunks, and a body ends with the end."""
        parsed = super().parse_request()
        if parsed and self.request_version == "HTTP/1.0":
            self.protocol_version = "HTTP/1.0"
        return parsed

    def handle_expect_100(self) -> bool:
        """Tell who waits for it to send the body, now: curl waits a second, others for ever."""
        told = super().handle_expect_100()
        self.wfile.flush()
        # or werkzeug tells it once more, and no earlier than the answer
        del self.headers["Expect"]
        return told

    def finish(self) -> None:
        """Close both sides; who has left already does not get the rest."""
        try:
            super().finish()
        except ConnectionError:
            self.rfile.close()

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Leave requests out of the log; errors still go there."""


class _Server(ThreadedWSGIServer):
    """Knows its open connections and their threads, which the standard one forgets."""

    def __init__(self, app: WSGIApplication, host: str, port: int) -> None:
        self._lock = threading.Lock()
        self._open: dict[threading.Thread, socket.socket] = {}
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        # werkzeug would end the whole program if the port is taken
        with socket.create_server((host, port), family=family, backlog=_BACKLOG) as listener:
            super().__init__(host, port, app, handler=_QuietHandler, fd=listener.fileno())

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a connection in a thread of its own."""
        thread = threading.Thread(
            target=self._serve, args=(request, client_address), name="live-request", daemon=True
        )
        with self._lock:
            self._open[thread] = request
        thread.start()

    def _serve(self, request: Any, client_address: Any) -> None:
        try:
            self.process_request_thread(request, client_address)
        finally:
            with self._lock:
                del self._open[threading.current_thread()]

    def hang_up(self, timeout_s: float) -> list[str]:
        """Cut the open connections and return what still runs after ``timeout_s`` seconds."""
        with self._lock:
            threads = list(self._open)
            for connection in self._open.values():
                # Not close(): the handler still needs the descriptor to notice it.
                _shut_down(connection)
        until = time.monotonic() + timeout_s
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
        return [thread.name for thread in threads if thread.is_alive()]


def _shut_down(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        # The client has left already: that is what was wanted.
        return


class LiveServer:
    """Serves a WSGI app over HTTP/1.1 while the ``with`` block lasts.

    At the end the app's own services are closed (jobs cancelled, backends and store closed), open
    connections are cut and all threads have ended::

        with LiveServer(create_app(settings)) as server:
            body = server.client().post("/compat/completions", {...}).json()

    :param app: a Flask app or any other WSGI app, such as a stand-in for somebody else's service.
    :param end_timeout_s: real seconds that requests under way may take to end.
    :param host: address to listen on.
    :param port: 0 takes a free one.
    """

    def __init__(
        self,
        app: WSGIApplication,
        *,
        end_timeout_s: float = 10.0,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self._app = app
        self._host = host
        self._wanted_port = port
        self._end_timeout_s = end_timeout_s
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        """The port, once started."""
        if self._server is None:
            raise RuntimeError("the server is not running")
        return self._server.port

    @property
    def base_url(self) -> str:
        """``http://HOST:PORT``, once started."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self.port}"

    def client(self, **kwargs: Any) -> SseClient:
        """Return a client of this server; the arguments are those of :class:`SseClient`."""
        return SseClient(self.base_url, **kwargs)

    def start(self) -> None:
        """Bind the port and begin to serve, and to look for jobs of durable backends.

        :raises OSError: if the port is taken.
        """
        self._server = _Server(self._app, self._host, self._wanted_port)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="live-server", daemon=True
        )
        self._thread.start()
        if (services := self._services()) is not None:
            services.start()

    def stop(self) -> None:
        """Stop serving and end everything; may be called more than once.

        :raises RuntimeError: if requests are still under way after ``end_timeout_s``.
        """
        server, self._server = self._server, None
        if server is None:
            return
        server.shutdown()
        if self._thread is not None:
            self._thread.join()
        if (services := self._services()) is not None:
            services.close()
        if left := server.hang_up(self._end_timeout_s):
            raise RuntimeError(f"{len(left)} requests did not end within {self._end_timeout_s} s")

    def _services(self) -> Services | None:
        """Return the parts of the server's own app; None for another one."""
        found = getattr(self._app, "extensions", {}).get(EXTENSION)
        return found if isinstance(found, Services) else None

    def __enter__(self) -> LiveServer:
        self.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
