"""What an upstream server streams is what comes out, however its bytes are cut."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from caesar_server.testing import collect_events

CHOICES = 3
#: Characters that are cut in bad places: of one to four bytes, line separators, JSON's own.
TEXT = st.text(st.sampled_from('ab \n\r\t"\\{}:\u00e9\u2028\u0085\u20ac\U0001f600\0[DONE]data:'))
REASONS = st.sampled_from(("stop", "length", "content_filter"))


@st.composite
def streams(draw: st.DrawFn) -> dict[str, Any]:
    """One stream: its chunks in order, what they say, and how its bytes are cut."""
    chat = draw(st.booleans())
    deltas = draw(st.lists(st.tuples(st.integers(0, CHOICES - 1), TEXT), max_size=12))
    reasons = draw(st.lists(REASONS, min_size=CHOICES, max_size=CHOICES))
    usage = draw(st.none() | st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)))
    return {
        "chat": chat,
        "deltas": deltas,
        "reasons": reasons,
        "usage": usage,
        "line_break": draw(st.sampled_from((b"\n", b"\r\n", b"\r"))),
        "space": draw(st.sampled_from((b"", b" "))),
        "comments": draw(st.booleans()),
        "ascii": draw(st.booleans()),
        "cuts": draw(st.lists(st.integers(1, 40), min_size=1, max_size=8)),
        "chunked": draw(st.booleans()),
    }


def chunk(stream: dict[str, Any], choice: int, text: str, reason: str | None) -> dict[str, Any]:
    content = {"delta": {"content": text}} if stream["chat"] else {"text": text}
    return {"choices": [{"index": choice, **content, "finish_reason": reason}]}


def payload(stream: dict[str, Any]) -> bytes:
    bodies = [chunk(stream, choice, text, None) for choice, text in stream["deltas"]]
    bodies += [chunk(stream, number, "", r) for number, r in enumerate(stream["reasons"])]
    if stream["usage"] is not None:
        prompt, completion = stream["usage"]
        usage = {"prompt_tokens": prompt, "completion_tokens": completion}
        bodies.append({"choices": [], "usage": usage})
    rows = [json.dumps(body, ensure_ascii=stream["ascii"]).encode() for body in bodies]
    end = stream["line_break"] * 2
    noise = b": still here" + end if stream["comments"] else b""
    return b"".join(noise + b"data:" + stream["space"] + row + end for row in [*rows, b"[DONE]"])


def pieces(data: bytes, sizes: list[int]) -> Iterator[bytes]:
    at, turn = 0, 0
    while at < len(data):
        size = sizes[turn % len(sizes)]
        yield data[at : at + size]
        at, turn = at + size, turn + 1


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_text_usage_and_finish_reasons_come_out_as_they_went_in(
    raw, opened, wire, told, requests_of
) -> None:
    current: dict[str, Any] = {}

    def reply(peer) -> bool:
        head = wire.head().replace(b"Connection: close\r\n", b"")
        parts = list(pieces(payload(current), current["cuts"]))
        if current["chunked"]:
            peer.send(head.replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n"))
            for part in parts:
                peer.send(b"%x\r\n%b\r\n" % (len(part), part))
            peer.send(b"0\r\n\r\n")
            return True
        peer.send(head.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        for part in parts:
            peer.send(part)
        return False

    ask = opened(raw(reply), retries=0)
    seen = 0

    @settings(
        max_examples=1000,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(streams())
    def check(stream: dict[str, Any]) -> None:
        nonlocal seen
        seen += 1
        current.clear()
        current.update(stream)
        make = requests_of.chat if stream["chat"] else requests_of.completion
        answer = told(collect_events(ask.backend, make("x", n=CHOICES)))
        assert answer.error is None, answer.error
        for choice in range(CHOICES):
            sent = "".join(text for number, text in stream["deltas"] if number == choice)
            assert answer.text(choice) == sent
        assert answer.reasons == dict(enumerate(stream["reasons"]))
        if stream["usage"] is not None:
            assert answer.usage == stream["usage"]
        assert answer.details.get("usage_estimated", False) is (stream["usage"] is None)

    check()
    assert seen >= 1000
