"""What each fault makes of the frames of a stream."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caesar_server.contract import sse
from caesar_server.contract.sse import DONE, HEARTBEAT
from caesar_server.mock.faults import KINDS, End, Reset, StreamFaults, Write
from caesar_server.mock.model.fault import Fault

ENDING = ("error_frame", "silent_close", "connection_reset")
IN_BODY = [name for name, kind in KINDS.items() if kind.in_body]


def fault(kind, **fields):
    return Fault(kind=kind, **({"delay_s": 0} if kind == "slow_drip" else {}), **fields)


def test_without_faults_everything_passes(through, frames):
    assert through() == list(frames["all"])


def test_an_error_frame_replaces_what_follows(through, frames):
    error = sse.frame({"error": {"message": "Gone"}})
    seen = through(fault("error_frame", after_chunks=2, message="Gone"))
    assert seen == [
        *(frames["role"], frames["one"], frames["two"]),
        *("happens error_frame", error, DONE, "end"),
    ]


@pytest.mark.parametrize(
    ("kind", "does"),
    [("silent_close", "end"), ("connection_reset", "reset")],
)
def test_what_ends_a_stream_comes_right_after_the_chunk(through, frames, kind, does):
    # in the same batch, although the next frame has not come yet
    batches = ((frames["role"], frames["one"]), (frames["two"], DONE))
    seen = through(fault(kind, after_chunks=1), batches=batches[:1])
    assert seen == [frames["role"], frames["one"], f"happens {kind}", does]


@pytest.mark.parametrize("kind", ENDING)
def test_after_no_chunk_nothing_leaves_before_it(through, kind):
    assert through(fault(kind))[0] == f"happens {kind}"


@pytest.mark.parametrize(("delay_s", "pause"), [(None, "pause None"), (3, "pause 3")])
def test_a_stall_waits_and_lets_the_rest_follow(through, frames, delay_s, pause):
    seen = through(fault("stall", after_chunks=1, delay_s=delay_s))
    assert seen == [
        *(frames["role"], frames["one"], "happens stall", pause),
        *(frames["two"], frames["three"], frames["finish"], DONE),
    ]


def test_malformed_json_is_one_chunk_cut_off(through, frames):
    seen = through(fault("malformed_json", after_chunks=1))
    broken = seen[3]
    assert seen == [
        *(frames["role"], frames["one"], "happens malformed_json", broken),
        *(frames["three"], frames["finish"], DONE),
    ]
    assert frames["two"].startswith(broken.rstrip(b"\n"))
    assert broken.endswith(b"\n\n")
    with pytest.raises(json.JSONDecodeError):
        json.loads(broken.removeprefix(b"data: "))


def test_truncated_utf8_is_in_the_text_of_one_chunk(through, frames):
    seen = through(fault("truncated_utf8", after_chunks=1))
    assert seen[3] == frames["two"].replace(b'" two"', b'" two\xe2\x82"')
    assert seen[:2] == [frames["role"], frames["one"]]
    with pytest.raises(UnicodeDecodeError):
        seen[3].decode()


def test_truncated_utf8_spares_the_same_mark_in_the_text(through):
    chunk = sse.frame({"choices": [{"delta": {"content": "\uf8ff!"}}], "mark": "\uf8ff"})
    (_, broken) = through(fault("truncated_utf8"), batches=[[chunk]])
    assert broken.count(b"\xe2\x82") == 1


def test_missing_done_leaves_nothing_else_out(through, frames):
    assert through(fault("missing_done")) == [*frames["all"][:-1], "happens missing_done"]


def test_a_duplicate(through, frames):
    seen = through(fault("duplicate_chunk", after_chunks=2))
    assert seen == [
        *(frames["role"], frames["one"], frames["two"], "happens duplicate_chunk"),
        *(frames["three"], frames["three"], frames["finish"], DONE),
    ]


@pytest.mark.parametrize("size", [1, 2, 6])
def test_reordered_chunks(through, frames, size):
    whole = frames["all"]
    batches = [whole[at : at + size] for at in range(0, len(whole), size)]
    seen = through(fault("reorder_chunks"), batches=batches)
    assert seen == [
        *(frames["role"], "happens reorder_chunks", frames["two"], frames["one"]),
        *(frames["three"], frames["finish"], DONE),
    ]


def test_the_last_chunk_changes_places_with_the_end_of_its_choice(through, frames):
    seen = through(fault("reorder_chunks", after_chunks=2))
    assert seen[-3:] == [frames["finish"], frames["three"], DONE]


@pytest.mark.parametrize("last", [[DONE], []])
def test_a_chunk_with_nothing_behind_it_keeps_its_place(through, frames, last):
    seen = through(fault("reorder_chunks"), batches=[[frames["one"], HEARTBEAT], last])
    assert seen == [HEARTBEAT, frames["one"], *last]


def test_crlf(through, frames):
    seen = through(fault("crlf", after_chunks=2))
    assert seen[:4] == [frames["role"], frames["one"], frames["two"], "happens crlf"]
    assert seen[-1] == b"data: [DONE]\r\n\r\n"
    assert seen[4:] == [frame.replace(b"\n", b"\r\n") for frame in frames["all"][3:]]


def test_empty_data(through, frames):
    seen = through(fault("empty_data", after_chunks=1, count=2))
    assert seen[2:6] == ["happens empty_data", b"data:\n\n", b"data:\n\n", frames["two"]]


def test_a_storm_of_comments(through, frames):
    seen = through(fault("comment_storm", after_chunks=1, count=3))
    comments = [b": comment 1\n\n", b": comment 2\n\n", b": comment 3\n\n"]
    assert seen[2:7] == ["happens comment_storm", *comments, frames["two"]]
    assert through(fault("comment_storm"))[1000] == b": comment 1000\n\n"


def test_slow_drip(through, frames):
    seen = through(Fault(kind="slow_drip", after_chunks=2, delay_s=0.5, count=7))
    assert seen[:4] == [frames["role"], frames["one"], frames["two"], "happens slow_drip"]
    pauses, pieces = seen[4::2], seen[5::2]
    assert set(pauses) == {"pause 0.5"}
    assert b"".join(pieces) == b"".join(frames["all"][3:])
    assert {len(piece) for piece in pieces[:-4]} <= set(range(1, 8))


def test_faults_stand_in_a_row_and_pieces_come_last(through, frames):
    seen = through(
        Fault(kind="slow_drip", delay_s=0, count=1000),
        fault("duplicate_chunk"),
        fault("missing_done"),
    )
    pieces = [part for part in seen if isinstance(part, bytes)]
    assert pieces == [frames["role"], frames["one"], *frames["all"][1:-1]]


def test_a_place_beyond_the_end_is_never_reached(through, frames):
    for kind in IN_BODY:
        if "after_chunks" in KINDS[kind].fields:
            assert through(fault(kind, after_chunks=99)) == list(frames["all"]), kind


@given(
    kind=st.sampled_from(IN_BODY),
    after_chunks=st.integers(0, 4),
    cuts=st.lists(st.integers(0, 6), max_size=4),
)
def test_how_frames_are_batched_changes_nothing(kind, after_chunks, cuts):
    texts = ["one", " two\u20ac", " three"]
    chunks = [sse.frame({"choices": [{"delta": {"content": text}}]}) for text in texts]
    whole = [HEARTBEAT, *chunks, DONE]
    faulty = fault(kind, **({"after_chunks": after_chunks} if after_chunks else {}))

    def run(batches):
        row = StreamFaults([faulty], lambda _: {"error": {}})
        parts, others = [], []
        for number, batch in enumerate(batches, 1):
            for act in row.acts(batch, ended=number == len(batches)):
                if isinstance(act, Write):
                    parts += act.parts
                else:
                    others.append((b"".join(parts), act))
                if isinstance(act, (End, Reset)):
                    return parts, others
        return parts, others

    edges = sorted({0, *(min(cut, len(whole)) for cut in cuts), len(whole)})
    batches = [whole[a:b] for a, b in pairwise(edges)]
    assert run(batches) == run([whole])
