"""Bodies that are no JSON: what is kept, and which are taken for equal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caesar_server.mock.calls import call_from_http
from caesar_server.mock.content import HEAD_BYTES, Content
from caesar_server.mock.model.call import Call


def form(boundary: str, text: str = "hello") -> bytes:
    return (
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n{text}'
        f"\r\n--{boundary}--\r\n"
    ).encode()


def digest(body: bytes, content_type: str) -> bytes:
    return Content.of(body, content_type).digest()


@pytest.mark.parametrize("said", ["boundary={}", 'charset=utf-8; boundary="{}"', "Boundary={} "])
def test_only_the_boundary_makes_no_difference(said: str) -> None:
    kind = f"multipart/form-data; {said}"
    one = digest(form("abc"), kind.format("abc"))
    assert one == digest(form("xyz-longer"), kind.format("xyz-longer"))
    assert one != digest(form("abc", "other"), kind.format("abc"))
    assert one != digest(form("xyz"), kind.format("abc"))
    assert digest(form("abc"), "text/plain; boundary=abc") != one


@given(
    st.lists(st.sampled_from([b"ab", b"aab", b"a", b"b", b"cab"])),
    st.integers(1, 5),
    st.sampled_from(["a", "ab", "aab"]),
)
def test_pieces_make_no_difference(parts: list[bytes], size: int, boundary: str) -> None:
    body, kind = b"".join(parts), f"multipart/form-data; boundary={boundary}"
    content = Content(kind)
    for start in range(0, len(body), size):
        content.add(body[start : start + size])
    assert content.digest() == digest(body, kind)
    # what it is, in one step
    plain = body.replace(boundary.encode(), b"boundary")
    assert content.digest() == digest(plain, "")
    assert (content.head, content.size, content.left_out_bytes) == (body, len(body), 0)


@given(st.text(), st.binary(max_size=50))
def test_any_header_will_do(rest: str, body: bytes) -> None:
    for kind in (rest, f"multipart/form-data;{rest}", f"multipart/x; boundary*={rest}"):
        assert Content.of(body, kind).head == body


def test_only_the_head_of_what_is_no_json_is_kept() -> None:
    def call(body: bytes) -> Call:
        return call_from_http(method="POST", path="/x", headers={}, body=body)

    most = call(b"x" * HEAD_BYTES)
    more = call(b"x" * (HEAD_BYTES + 1))
    assert most.raw_body == more.raw_body == b"x" * HEAD_BYTES
    assert (most.left_out_bytes, more.left_out_bytes) == (0, 1)
    assert most.content != more.content
    long = b'"' + b"x" * HEAD_BYTES + b'"'
    assert (call(long).raw_body, call(long).left_out_bytes) == (long, 0)
