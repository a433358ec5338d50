"""What each fault makes of a JSON body."""

from __future__ import annotations

import json

import pytest

from caesar_server.mock.faults import KINDS, body_acts, sent_length
from caesar_server.mock.model.fault import Fault

BODY = json.dumps({"id": "x", "choices": [{"text": 'a \\ "b" {c} €'}]}).encode()


def play(tell, *faults):
    return tell(body_acts(BODY, faults))


def test_without_faults_it_passes(tell):
    assert play(tell) == [BODY]


def test_a_silent_close_cuts_it(tell):
    assert play(tell, Fault(kind="silent_close", after_chunks=9)) == [
        *(BODY[:9], "happens silent_close", "end")
    ]


def test_a_reset_cuts_it(tell):
    assert play(tell, Fault(kind="connection_reset")) == ["happens connection_reset", "reset"]


def test_a_stall_is_between_two_bytes(tell):
    assert play(tell, Fault(kind="stall", after_chunks=5, delay_s=1)) == [
        *(BODY[:5], "happens stall", "pause 1", BODY[5:])
    ]


@pytest.mark.parametrize("place", range(0, len(BODY) + 1, 3))
@pytest.mark.parametrize("kind", ["malformed_json", "truncated_utf8"])
def test_broken_bodies_are_broken_at_whatever_place(tell, kind, place):
    seen = play(tell, Fault(kind=kind, after_chunks=place))
    parts = [part for part in seen if isinstance(part, bytes)]
    broken = b"".join(parts)
    assert broken.startswith(BODY[:place])
    assert seen.count(f"happens {kind}") == 1
    with pytest.raises((json.JSONDecodeError, UnicodeDecodeError)):
        json.loads(broken)
    if kind == "malformed_json":
        # wrong as JSON in itself, and not only because it is no text
        with pytest.raises(json.JSONDecodeError):
            json.loads(broken.decode())


def test_slow_drip_comes_last_and_keeps_every_byte(tell):
    seen = play(
        tell,
        Fault(kind="slow_drip", delay_s=0.1, count=4, after_chunks=2),
        Fault(kind="malformed_json", after_chunks=6),
    )
    parts = [part for part in seen if isinstance(part, bytes)]
    assert b"".join(parts) == BODY[:6] + b"\x00" + BODY[6:]
    assert parts[0] == BODY[:2]
    assert all(len(part) <= 4 for part in parts)
    assert seen.count("pause 0.1") == len(parts) - 1


def test_a_place_beyond_the_end_is_never_reached(tell):
    for name, kind in KINDS.items():
        if kind.in_body and not kind.needs_stream and name != "error_frame" and kind.fields:
            if "after_chunks" not in kind.fields:
                continue
            fault = Fault(kind=name, after_chunks=len(BODY) + 1, delay_s=0)
            assert play(tell, fault) == [BODY]


def test_what_follows_an_end_is_left_out(tell):
    acts = body_acts(
        BODY,
        [Fault(kind="stall", after_chunks=9), Fault(kind="silent_close", after_chunks=4)],
    )
    assert tell(acts) == [BODY[:4], "happens silent_close", "end"]
    assert sent_length(acts) == 4
