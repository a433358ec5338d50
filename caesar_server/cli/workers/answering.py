"""How a request becomes an answer, on gunicorn's workers of threads and of greenlets alike.

gunicorn 27.0 sends the head of an answer and its body apart.  That is one packet more for clients,
and one more call into the kernel, each of which hands the interpreter to another thread.  It also
writes out the date anew for each answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from email.utils import formatdate
from typing import Any

from gunicorn.http import wsgi  # type: ignore[import-untyped]

#: What is larger is sent behind the head as it is, and not copied to stand behind it.
_JOINED_BYTES = 64 * 1024


class Date:
    """The present second as HTTP writes it.  Safe from any thread."""

    def __init__(self) -> None:
        self._known = (-1, "")

    def __call__(self) -> str:
        """Return it, such as ``Sun, 06 Nov 1994 08:49:37 GMT``."""
        second = int(time.time())
        known, text = self._known
        if known != second:
            text = formatdate(second, usegmt=True)
            self._known = (second, text)
        return text


class Answer(wsgi.Response):  # type: ignore[misc]
    """gunicorn's response, whose head leaves together with what follows it."""

    def __init__(self, req: Any, sock: Any, cfg: Any, date: Callable[[], str]) -> None:
        super().__init__(req, sock, cfg)
        self._date = date
        self._held = b""

    def default_headers(self) -> list[str]:
        """Return the status line and the host's own fields."""
        after = "close" if self.should_close() else "keep-alive"
        major, minor = self.req.version
        lines = [
            f"HTTP/{major}.{minor} {self.status}\r\n",
            f"Server: {self.version}\r\n",
            f"Date: {self._date()}\r\n",
            f"Connection: {'upgrade' if self.upgrade else after}\r\n",
        ]
        if self.chunked:
            lines.append("Transfer-Encoding: chunked\r\n")
        return lines

    def send_headers(self) -> None:
        """Send the head if it has not left yet."""
        if not self.headers_sent:
            self._hold()
            self._release()

    def write(self, arg: bytes) -> None:
        """Send a part of the body, the first one together with the head."""
        if not self.headers_sent:
            if not isinstance(arg, bytes):
                # before the head counts as sent: there still is room for an error
                raise TypeError(f"the app's body holds {type(arg).__name__}, and must hold bytes")
            self._hold()
        super().write(arg)
        # what has no body, or nothing in its first part, still has a head
        self._release()

    def _hold(self) -> None:
        fields = [f"{name}: {value}\r\n" for name, value in self.headers]
        self._held = "".join([*self.default_headers(), *fields, "\r\n"]).encode("latin-1")
        self.headers_sent = True

    def _release(self) -> None:
        held, self._held = self._held, b""
        if held:
            self.sock.sendall(held)

    def _emit_body(self, data: bytes) -> None:
        if len(data) > _JOINED_BYTES:
            self._release()
        held, self._held = self._held, b""
        if self.chunked:
            data = b"%X\r\n%b\r\n" % (len(data), data)
        self.sock.sendall(held + data if held else data)


class Answering:
    """To be inherited before one of gunicorn's workers, whose members it uses."""

    cfg: Any
    log: Any
    nr: int
    max_requests: int
    alive: bool
    wsgi: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._date = Date()

    def answer(
        self, req: Any, sock: Any, client: Any, server: Any, *, goes_on: bool = True
    ) -> bool:
        """Answer a request; return whether its connection goes on to the next.

        :param goes_on: whether the worker has room for it meanwhile.
        :raises StopIteration: if the connection ended in the middle of the answer.
        :raises OSError: if the client is gone, or takes nothing.
        """
        environ: dict[str, Any] = {}
        answer: Answer | None = None
        try:
            self.cfg.pre_request(self, req)
            began = datetime.now()
            answer, environ = wsgi.create(
                req, sock, client, server, self.cfg, Answer, (self._date,)
            )
            environ["wsgi.multithread"] = True
            self._count()
            if not (self.alive and self.cfg.keepalive and goes_on):
                answer.force_close()
            self._send(answer, req, environ, began)
            return not answer.should_close()
        except OSError:
            raise
        except (Exception, SystemExit):
            if answer is None or not answer.headers_sent:
                raise  # there is room for an error
            self.log.exception("Error handling request")
            raise StopIteration from None
        finally:
            self._tell_hook(req, environ, answer)

    def retire(self) -> None:
        """End after the current requests: ``max_requests`` of them were answered."""
        self.log.info("Autorestarting worker after current request.")
        self.alive = False

    def _count(self) -> None:
        self.nr += 1
        if self.nr >= self.max_requests and self.alive:
            self.retire()

    def _send(self, answer: Answer, req: Any, environ: dict[str, Any], began: datetime) -> None:
        body = self.wsgi(environ, answer.start_response)
        try:
            if isinstance(body, environ["wsgi.file_wrapper"]):
                answer.write_file(body)
            else:
                for part in body:
                    answer.write(part)
            answer.close()
        finally:
            self.log.access(answer, req, environ, datetime.now() - began)
            if hasattr(body, "close"):
                body.close()

    def _tell_hook(self, req: Any, environ: dict[str, Any], answer: Answer | None) -> None:
        try:
            self.cfg.post_request(self, req, environ, answer)
        except Exception:
            self.log.exception("Exception in post_request hook")
