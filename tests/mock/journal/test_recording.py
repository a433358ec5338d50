"""What is written down of one exchange."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from caesar_server.mock.journal import FaultNote, Frame, Journal
from caesar_server.mock.model.call import Call
from caesar_server.mock.model.reply import Reply
from caesar_server.mock.model.rule import Decision, Nearest, Rule
from caesar_server.testing import FakeClock

MakeCall = Callable[..., Call]


def test_an_exchange_from_the_first_byte_to_the_last(
    journal: Journal, clock: FakeClock, make_call: MakeCall
) -> None:
    rule = Rule(id="r1", replies=(Reply(text="Hi there"),))
    began = clock.time()
    recording = journal.open(make_call())
    recording.decided(Decision(rule=rule, reply=rule.replies[0]))
    clock.advance(0.5)
    recording.answered(200, {"Content-Type": "text/event-stream"})
    recording.frames([b'data: {"a":1}\n\n', b'data: {"a":2}\n\n'])
    clock.advance(1)
    recording.frame(b"data: [DONE]\n\n")
    recording.end("completed")

    (entry,) = journal.entries()
    assert (entry.id, entry.number, entry.group, entry.at) == ("c1", 1, "c1", began)
    assert entry.decided
    assert entry.rule is rule
    assert (entry.status, entry.headers) == (200, {"content-type": "text/event-stream"})
    assert entry.head_at_s == 0.5
    assert entry.frames == (
        Frame(0.5, b'data: {"a":1}\n\n'),
        Frame(0.5, b'data: {"a":2}\n\n'),
        Frame(1.5, b"data: [DONE]\n\n"),
    )
    assert entry.body == b"".join(frame.data for frame in entry.frames)
    assert entry.bytes_sent == len(entry.body)
    assert (entry.ended, entry.ended_at_s, entry.succeeded) == ("completed", 1.5, True)


def test_it_is_visible_from_the_beginning(journal: Journal, make_call: MakeCall) -> None:
    recording = journal.open(make_call())
    (before,) = journal.entries()
    assert (before.decided, before.rule, before.status, before.ended) == (False, None, None, None)
    recording.answered(404)
    recording.end("completed")
    assert before.ended is None  # it does not change any more
    (after,) = journal.entries()
    assert (after.status, after.ended, after.succeeded) == (404, "completed", False)


def test_the_nearest_rules_are_kept(journal: Journal, make_call: MakeCall) -> None:
    nearest = (Nearest(rule=Rule(id="r1"), failed=("prompt: wanted 'a', got 'b'",)),)
    journal.open(make_call()).decided(Decision(nearest=nearest))
    (entry,) = journal.entries()
    assert (entry.decided, entry.rule, entry.nearest) == (True, None, nearest)


def test_faults_have_their_time_and_rule(
    journal: Journal, clock: FakeClock, make_call: MakeCall
) -> None:
    recording = journal.open(make_call())
    clock.advance(2)
    recording.faulted("delay", Rule(id="r7", name="slow"))
    recording.faulted("reset")
    recording.end("fault:reset")
    (entry,) = journal.entries()
    assert entry.faults == (FaultNote("delay", 2, "r7", "slow"), FaultNote("reset", 2, ""))
    assert journal.totals().faults == {"delay": 1, "reset": 1}
    assert journal.totals().ended == {"fault:reset": 1}


@pytest.mark.parametrize("done", [b"data: [DONE]\n\n", b"data: [DONE]\r\n\r\n"])
def test_a_client_that_closes_after_the_last_frame_has_got_everything(
    journal: Journal, make_call: MakeCall, done: bytes
) -> None:
    recording = journal.open(make_call())
    recording.answered(200)
    recording.frames([b"data: 1\n\n", done])
    recording.end("client_left")
    assert journal.entries()[0].ended == "completed"


def test_a_client_that_closes_earlier_has_left(journal: Journal, make_call: MakeCall) -> None:
    recording = journal.open(make_call())
    recording.frames([b'data: {"text": "data: [DONE]\\n\\n"}\n\n'])
    recording.end("client_left")
    assert journal.entries()[0].ended == "client_left"


def test_only_the_first_end_counts(journal: Journal, clock: FakeClock, make_call: MakeCall) -> None:
    recording = journal.open(make_call())
    recording.end("failed", "the disk is full")
    clock.advance(1)
    recording.end("completed")
    (entry,) = journal.entries()
    assert (entry.ended, entry.ended_at_s, entry.detail) == ("failed", 0, "the disk is full")
    assert journal.totals().ended == {"failed": 1}


def test_the_last_head_counts_and_repeated_headers_are_joined(
    journal: Journal, make_call: MakeCall
) -> None:
    recording = journal.open(make_call())
    recording.answered(103, [("Link", "</a>")])
    recording.answered(200, [("Vary", "a"), ("vary", "b"), ("Set-Cookie", "id=secret")])
    (entry,) = journal.entries()
    assert (entry.status, entry.headers) == (200, {"vary": "a, b", "set-cookie": "***"})


def test_secrets_are_not_shown_but_conditions_see_them(
    journal: Journal, make_call: MakeCall
) -> None:
    headers = {
        "authorization": "Bearer sk-secret",
        "api-key": "secret",
        "x-acme-token": "secret",
        "cookie": "a=secret; b=c",
        "idempotency-key": "not one",
        "x-team": "blue",
    }
    journal.open(make_call(headers=headers, api_key="sk-secret"))
    (entry,) = journal.entries()
    assert entry.call.headers == {
        "authorization": "Bearer ***",
        "api-key": "***",
        "x-acme-token": "***",
        "cookie": "***",
        "idempotency-key": "not one",
        "x-team": "blue",
    }
    assert entry.call.api_key is None
    assert entry.original.headers == headers
    assert "secret" not in repr(entry)


def test_the_beginning_of_a_long_body_is_kept(
    make_journal: Callable[..., Journal], make_call: MakeCall
) -> None:
    journal = make_journal(frame_bytes=200)
    recording = journal.open(make_call())
    recording.frames([b"x" * 100])
    recording.frames([b"y" * 100])
    recording.frames([b"z"])  # would fit, but then there would be a gap
    (entry,) = journal.entries()
    assert entry.body == b"x" * 100
    assert (entry.frames_left_out, entry.bytes_sent) == (2, 201)


def test_a_write_of_a_stream_is_noted_as_its_frames(
    make_journal: Callable[..., Journal], clock: FakeClock, make_call: MakeCall
) -> None:
    """Cut when somebody looks, and before and after that the same."""
    call = make_call()
    whole, single = (make_journal(frame_bytes=400).open(call) for _ in range(2))
    for frames in ([b": keep-alive\n\n", b"data: 1\n\n"], [b"data: 2\n\n"]):
        clock.advance(0.5)
        whole.stream(b"".join(frames))
        single.frames(frames)
        assert whole.entry().batches == single.entry().batches
        assert whole.size == single.size
    for frames in ([b"x" * 200 + b"\n\n", b"data: 3\n\n"], [b"data: [DONE]\n\n"]):
        whole.stream(b"".join(frames))
        single.frames(frames)
    for recording in (whole, single):
        recording.end("client_left")
    assert whole.entry() == single.entry()
    assert (whole.entry().frames_left_out, whole.entry().ended) == (3, "completed")


def test_an_empty_write_is_nothing(journal: Journal, make_call: MakeCall) -> None:
    journal.open(make_call()).frames([])
    assert journal.entries()[0].frames == ()


def test_an_hour_of_a_clock_that_is_turned_is_an_hour(make_call: MakeCall) -> None:
    """Though a machine that runs for long counts in numbers that are rounded."""
    clock = FakeClock(monotonic_s=14000.006172835)
    journal = Journal(monotonic=clock.monotonic, wall_time=clock.time)
    recording = journal.open(make_call())
    clock.advance(3599.9)
    clock.advance(0.1)
    assert clock.monotonic() - 14000.006172835 < 3600
    recording.answered(200)
    assert recording.entry().head_at_s == 3600
