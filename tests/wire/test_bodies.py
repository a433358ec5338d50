"""Request bodies of every kind, over a socket: the error object, never a 500, never a hang."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import Any

import pytest

#: As in this folder's conftest.py.
MAX_BODY_BYTES = 100_000
GOOD = b'{"model": "m", "prompt": "caf\xc3\xa9 \xf0\x9f\x98\x80"}'
#: Without the time: tests are named after their bodies, and need the same name in each process.
GZIPPED = gzip.compress(GOOD, mtime=0)


def text_of(reply: Any) -> Any:
    assert reply.status == 200, reply.body
    return json.loads(reply.body)["choices"][0]["text"]


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b" \r\n\t", id="only space"),
        pytest.param(b'{"model": "m", "prompt": "p"', id="cut JSON"),
        pytest.param(b"{'model': 'm'}", id="single quotes"),
        pytest.param(b"model=m&prompt=p", id="a form"),
        pytest.param(b"[]", id="an array"),
        pytest.param(b'"x"', id="a string"),
        pytest.param(b"null", id="null"),
        pytest.param(b"7", id="a number"),
        pytest.param(b'{"model": "m", "prompt": "p"} {}', id="two documents"),
        pytest.param(b'{"model": "m", "prompt": "p", "top_p": NaN}', id="NaN"),
        pytest.param(b'{"model": "m", "prompt": "p", "top_p": Infinity}', id="Infinity"),
        pytest.param(b'{"model": "m", "prompt": "p", "seed": 0x10}', id="hexadecimal"),
        pytest.param(b'{"model": "m", "prompt": "p", "seed": 01}', id="leading zero"),
        pytest.param(b'{"model": "m", "prompt": "p", "seed": ' + b"9" * 5000 + b"}", id="digits"),
        pytest.param(b'{"model": "m", "prompt": "\x00"}', id="raw NUL"),
        pytest.param(b'{"model": "m", "prompt": "\n"}', id="raw line feed"),
        pytest.param(b'{"model": "m", "prompt": "\xff"}', id="no UTF-8"),
        pytest.param(b'{"model": "m", "prompt": "\xed\xa0\x80"}', id="surrogate in UTF-8"),
        pytest.param(b'{"model": "m", "prompt": "\xc3"}', id="half a character"),
        pytest.param(b'{"model": "m", "prompt": "\xc0\xaf"}', id="overlong UTF-8"),
        pytest.param('{"model": "é"}'.encode("latin-1"), id="Latin-1"),
        pytest.param(b"\xff\xfe{", id="half of UTF-16"),
        pytest.param(b"[" * 50_000, id="deep array"),
        pytest.param(b'{"a":' * 15_000, id="deep object"),
        pytest.param(b'{"a":' * 15_000 + b"1" + b"}" * 15_000, id="deep and whole"),
        pytest.param(GZIPPED, id="undeclared gzip"),
    ],
)
def test_a_body_that_cannot_be_read_is_a_400(host, post, raw):
    reply = host.ask(post(raw))
    assert (reply.status, reply.error["code"]) == (400, "malformed_body")
    assert len(reply.headers["x-request-id"]) == 32


@pytest.mark.parametrize("depth", [50, 200, 400, 700, 900, 980])
@pytest.mark.parametrize("place", ["metadata", "anything_else", "prompt", "stop", "logit_bias"])
@pytest.mark.parametrize("shape", ["array", "object"])
def test_no_depth_is_a_500(host, post, depth, place, shape):
    opened, closed = ("[", "]") if shape == "array" else ('{"a":', "}")
    inside = opened * depth + "1" + closed * depth
    if place == "metadata":
        inside = '{"trace": ' + inside + "}"
    raw = f'{{"model": "m", "prompt": "p", "{place}": {inside}}}'.encode()
    reply = host.ask(post(raw))
    if reply.status == 200:
        assert place in ("metadata", "anything_else")
    else:
        assert reply.status == 400
        assert reply.error["code"] in ("malformed_body", "invalid_value")


@pytest.mark.parametrize(
    ("encoding", "mark"),
    [
        ("utf-8", b""),
        ("utf-8", b"\xef\xbb\xbf"),
        ("utf-16-le", b"\xff\xfe"),
        ("utf-16-be", b"\xfe\xff"),
        ("utf-16-le", b""),
        ("utf-32-le", b"\xff\xfe\x00\x00"),
        ("utf-32-be", b""),
    ],
)
def test_every_unicode_that_json_may_come_in_is_read(host, post, encoding, mark):
    raw = mark + GOOD.decode().encode(encoding)
    assert text_of(host.ask(post(raw))) == "café 😀"


@pytest.mark.parametrize(
    ("escape", "back"),
    [
        ("\\u0000", "\0"),
        ("\\u2028", "\u2028"),
        ("\\uffff", "\uffff"),
        # half a character, which strict readers of JSON refuse
        ("\\ud800", "\ufffd"),
        ("\\udc00\\ud800", "\ufffd\ufffd"),
    ],
)
def test_every_escape_of_a_character_comes_back_as_it_went(host, post, escape, back):
    raw = f'{{"model": "{escape}", "prompt": "x{escape}y"}}'.encode()
    reply = host.ask(post(raw))
    assert text_of(reply) == f"x{back}y"
    assert json.loads(reply.body)["model"] == back
    streamed = host.ask(post(raw[:-1] + b', "stream": true}'))
    assert streamed.body.isascii()
    assert b"\\ud800" not in streamed.body
    assert streamed.body.endswith(b"data: [DONE]\n\n")


def test_of_equal_names_the_last_counts(host, post):
    raw = b'{"model": "m", "prompt": "first", "n": 0, "prompt": "last", "n": 1}'
    assert text_of(host.ask(post(raw))) == "last"


@pytest.mark.parametrize(
    ("number", "status"),
    [(b"1e300", 400), (b"-1e300", 400), (b"1e-400", 200), (b"1" + b"0" * 4000, 400), (b"2.0", 200)],
)
def test_numbers_beyond_all_bounds_are_judged_by_the_field(host, post, number, status):
    reply = host.ask(post(b'{"model": "m", "prompt": "p", "temperature": ' + number + b"}"))
    assert reply.status == status
    if status == 400:
        assert reply.error["param"] == "temperature"


@pytest.mark.parametrize("number", [b"1e400", b"-1.5e999", b"1" * 400 + b".0"])
@pytest.mark.parametrize("place", [b'"x": %s', b'"tools": [{"a": %s}]', b'"temperature": %s'])
def test_a_number_that_only_infinity_is_as_large_as_reaches_no_backend(host, post, number, place):
    reply = host.ask(post(b'{"model": "m", "prompt": "p", ' + place % number + b"}"))
    assert (reply.status, reply.error["code"]) == (400, "malformed_body")
    assert f"the number {number[:40].decode()} is too large" in reply.error["message"]


@pytest.mark.parametrize(
    "content_type",
    [
        None,
        "",
        "json",
        "text/plain",
        "text/json",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/jsonx",
        "application/x+jsonx",
        "application/json; charset=latin-1",
        "application/json; charset=utf-7",
        "application/json; charset=" + "x" * 5000,
        "x" * 5000,
    ],
)
def test_what_is_not_declared_as_json_is_a_415(host, post, content_type):
    reply = host.ask(post(GOOD, content_type=content_type))
    assert (reply.status, reply.error["code"]) == (415, "unsupported_media_type")


@pytest.mark.parametrize(
    "content_type",
    ["application/json", "APPLICATION/JSON ; Charset=\"UTF-8\"", "application/json; charset=utf8",
     "application/problem+json", "application/json; charset=utf-16; x=y",
     "application/json; charset="],
)  # fmt: skip
def test_json_may_be_declared_in_several_ways(host, post, content_type):
    assert text_of(host.ask(post(GOOD, content_type=content_type))) == "café 😀"


@pytest.mark.parametrize(
    ("encoding", "raw"),
    [
        ("gzip", GZIPPED),
        ("deflate", zlib.compress(GOOD)),
        ("br", GOOD),
        ("zstd", GOOD),
        ("gzip, identity", GOOD),
        ("GZIP", GZIPPED),
    ],
)
def test_a_compressed_body_is_a_415_that_says_what_to_do(host, post, encoding, raw):
    reply = host.ask(post(raw, f"Content-Encoding: {encoding}"))
    assert (reply.status, reply.error["code"]) == (415, "unsupported_media_type")
    assert "uncompressed" in reply.error["message"]


def test_identity_is_no_compression(host, post):
    assert text_of(host.ask(post(GOOD, "Content-Encoding: identity"))) == "café 😀"


def test_a_body_that_breaks_off_is_a_400_even_if_what_came_is_json(host, post):
    with host.wire() as wire:
        wire.send(post(GOOD, length=len(GOOD) + 10))
        wire.end_of_sending()
        reply = wire.reply()
        assert (reply.status, reply.error["code"]) == (400, "malformed_body")
        assert wire.closed()


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b'5\r\n{"mod',
        b'5\r\n{"mod\r\n',
        b"zz\r\n",
        b"-1\r\n",
        b"2\r\n{}xx",
        b"2;\r\n{}\r\n0\r\n\r\n",
    ],
)
def test_chunks_that_are_none_are_a_400(gunicorn, post, sent):
    with gunicorn.wire() as wire:
        wire.send(post(b"", "Transfer-Encoding: chunked") + sent)
        wire.end_of_sending()
        reply = wire.reply()
        assert (reply.status, reply.error["code"]) == (400, "malformed_body")
        assert wire.closed()


@pytest.mark.parametrize("kind", ["length", "chunks", "head"])
def test_a_body_that_stalls_does_not_hold_the_server(impatient, post, kind):
    with impatient.wire() as wire:
        if kind == "length":
            wire.send(post(GOOD, length=len(GOOD) + 1))
        elif kind == "chunks":
            wire.send(post(b"5\r\n12", "Transfer-Encoding: chunked"))
        else:
            wire.send(post(GOOD)[:40])
        if kind != "head":
            reply = wire.reply()
            assert (reply.status, reply.error["code"]) == (400, "malformed_body")
        assert wire.closed()


def chunked(body: bytes, size: int) -> bytes:
    pieces = (body[i : i + size] for i in range(0, len(body), size))
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_body_in_chunks_is_read(host, post, size):
    raw = post(chunked(GOOD, size), "Transfer-Encoding: chunked")
    assert text_of(host.ask(raw)) == "café 😀"


def padded(length: int) -> bytes:
    return GOOD + b" " * (length - len(GOOD))


@pytest.mark.parametrize("in_chunks", [False, True])
@pytest.mark.parametrize(("beyond", "status"), [(0, 200), (1, 413)])
def test_the_limit_is_exact(host, post, in_chunks, beyond, status):
    body = padded(MAX_BODY_BYTES + beyond)
    if in_chunks:
        reply = host.ask(post(chunked(body, 4096), "Transfer-Encoding: chunked"))
    else:
        reply = host.ask(post(body))
    assert reply.status == status
    if status == 413:
        assert reply.error["code"] == "body_too_large"
        assert str(MAX_BODY_BYTES) in reply.error["message"]


@pytest.mark.parametrize("expect", [(), ("Expect: 100-continue",)])
def test_a_body_over_the_limit_is_refused_before_it_is_sent(host, post, expect):
    with host.wire() as wire:
        wire.send(post(b"", *expect, length=10**12))
        reply = wire.reply()
        assert (reply.status, reply.error["code"]) == (413, "body_too_large")


def test_an_endless_upload_is_refused_when_it_passes_the_limit(gunicorn, post):
    with gunicorn.wire() as wire:
        wire.send(post(b"", "Transfer-Encoding: chunked"))
        piece = b"1000\r\n" + b" " * 0x1000 + b"\r\n"
        for _ in range(MAX_BODY_BYTES // 0x1000 + 1):
            wire.send(piece)
        reply = wire.reply()
        assert (reply.status, reply.error["code"]) == (413, "body_too_large")


def test_expect_100_continue_is_answered(gunicorn, post):
    with gunicorn.wire() as wire:
        raw = post(GOOD, "Expect: 100-continue")
        wire.send(raw.removesuffix(GOOD))
        assert wire.reply_head().status == 100
        wire.send(GOOD)
        assert text_of(wire.reply()) == "café 😀"


def test_a_body_of_the_largest_size_with_the_worst_values_is_judged_soon(gunicorn, post):
    # one error an item would be tens of thousands
    for field in ("messages", "tools"):
        raw = b'{"model": "m", "%s": [%s1]}' % (field.encode(), b"1," * 45_000)
        reply = gunicorn.ask(post(raw, path="/compat/chat/completions"))
        assert reply.status == 400
        assert reply.error["param"].startswith(("messages", "tools"))
