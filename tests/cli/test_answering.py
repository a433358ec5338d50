"""How answers leave gunicorn's workers."""

from __future__ import annotations

from collections.abc import Callable
from email.utils import parsedate_to_datetime

import pytest
from gunicorn.config import Config  # type: ignore[import-untyped]

from caesar_server.cli.workers.answering import Answer, Date


def test_the_date_is_that_of_the_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [784_111_777.0]
    monkeypatch.setattr("time.time", lambda: now[0])
    date = Date()
    assert date() == "Sun, 06 Nov 1994 08:49:37 GMT"
    now[0] += 0.9
    assert date() == "Sun, 06 Nov 1994 08:49:37 GMT"
    now[0] += 0.2
    assert parsedate_to_datetime(date()).timestamp() == 784_111_778


class Client:
    """Takes what is sent."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def sendall(self, data: bytes) -> None:
        self.sent.append(bytes(data))


class Request:
    """What gunicorn's response asks of a request."""

    version = (1, 1)

    def __init__(self, method: str) -> None:
        self.method = method

    def should_close(self) -> bool:
        return False


@pytest.fixture
def answer() -> Callable[..., tuple[Answer, Client]]:
    def make(
        *fields: tuple[str, str], status: str = "200 OK", method: str = "POST"
    ) -> tuple[Answer, Client]:
        client = Client()
        made = Answer(Request(method), client, Config(), lambda: "today")
        made.start_response(status, list(fields))
        return made, client

    return make


MakeAnswer = Callable[..., tuple[Answer, Client]]
HEAD = b"HTTP/1.1 200 OK\r\nServer: gunicorn\r\nDate: today\r\nConnection: keep-alive\r\n"


def test_head_and_body_leave_together(answer: MakeAnswer) -> None:
    made, client = answer(("Content-Length", "2"))
    assert client.sent == []
    made.write(b"{}")
    made.close()
    assert client.sent == [HEAD + b"Content-Length: 2\r\n\r\n{}"]


def test_the_first_part_of_a_stream_leaves_with_its_head(answer: MakeAnswer) -> None:
    made, client = answer()
    made.write(b"one")
    assert client.sent == [HEAD + b"Transfer-Encoding: chunked\r\n\r\n3\r\none\r\n"]
    made.write(b"two")
    made.close()
    assert client.sent[1:] == [b"3\r\ntwo\r\n", b"0\r\n\r\n"]


def test_a_first_part_without_bytes_still_begins_the_answer(answer: MakeAnswer) -> None:
    made, client = answer()
    made.write(b"")
    assert client.sent == [HEAD + b"Transfer-Encoding: chunked\r\n\r\n"]
    made.write(b"a")
    assert client.sent[1:] == [b"1\r\na\r\n"]


def test_a_large_body_is_not_copied_behind_the_head(answer: MakeAnswer) -> None:
    body = b"x" * 70_000
    made, client = answer(("Content-Length", "70000"))
    made.write(body)
    assert client.sent == [HEAD + b"Content-Length: 70000\r\n\r\n", body]


@pytest.mark.parametrize(("method", "status"), [("HEAD", "200 OK"), ("POST", "204 No Content")])
def test_what_has_no_body_has_a_head(answer: MakeAnswer, method: str, status: str) -> None:
    made, client = answer(method=method, status=status)
    made.write(b"dropped")
    made.close()
    assert len(client.sent) == 1
    assert client.sent[0].startswith(f"HTTP/1.1 {status}\r\n".encode())
    assert client.sent[0].endswith(b"\r\n\r\n")


def test_no_more_than_was_promised_is_sent(answer: MakeAnswer) -> None:
    made, client = answer(("Content-Length", "2"))
    made.write(b"abc")
    made.write(b"d")
    assert client.sent == [HEAD + b"Content-Length: 2\r\n\r\nab"]
