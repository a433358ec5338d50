"""The switch that stops a run."""

from __future__ import annotations

import threading
from contextlib import ExitStack

import pytest

from caesar_server.contract import Cancelled
from caesar_server.jobs.cancellation import Cancellation

WITHIN_S = 60.0


def test_it_is_off_at_first():
    cancellation = Cancellation()
    assert not cancellation.cancelled
    assert cancellation.reason is None
    cancellation.raise_if_cancelled()


@pytest.mark.parametrize("reason", ["cancelled", "deadline", "fenced", "shutdown"])
def test_it_raises_with_its_reason(reason):
    cancellation = Cancellation()
    cancellation.cancel(reason)
    assert cancellation.cancelled
    assert cancellation.event.is_set()
    with pytest.raises(Cancelled) as raised:
        cancellation.raise_if_cancelled()
    assert raised.value.reason == reason


def test_the_first_reason_stays():
    cancellation = Cancellation()
    cancellation.cancel("deadline")
    cancellation.cancel("shutdown")
    cancellation.cancel()
    assert cancellation.reason == "deadline"


def test_callbacks_are_called_once_and_in_order():
    cancellation, calls = Cancellation(), []
    with (
        cancellation.on_cancel(lambda: calls.append("a")),
        cancellation.on_cancel(lambda: calls.append("b")),
    ):
        assert calls == []
        cancellation.cancel()
        cancellation.cancel()
        assert calls == ["a", "b"]
    assert calls == ["a", "b"]


def test_a_callback_that_is_given_twice_is_called_twice():
    cancellation, calls = Cancellation(), []

    def callback() -> None:
        calls.append(1)

    with cancellation.on_cancel(callback), cancellation.on_cancel(callback):
        cancellation.cancel()
    assert calls == [1, 1]


def test_a_callback_is_called_at_once_and_here_if_it_is_too_late():
    cancellation, threads = Cancellation(), []
    cancellation.cancel()
    with cancellation.on_cancel(lambda: threads.append(threading.get_ident())):
        assert threads == [threading.get_ident()]
    assert len(threads) == 1


def test_a_callback_is_not_called_after_its_block():
    cancellation, calls = Cancellation(), []
    with cancellation.on_cancel(lambda: calls.append("outer")):
        with cancellation.on_cancel(lambda: calls.append("inner")):
            pass
        cancellation.cancel()
    assert calls == ["outer"]


def test_a_callback_is_not_called_after_its_block_was_left_by_an_exception():
    cancellation, calls = Cancellation(), []
    with pytest.raises(KeyError), cancellation.on_cancel(lambda: calls.append(1)):
        raise KeyError
    cancellation.cancel()
    assert calls == []


def test_a_callback_whose_turn_has_not_come_is_called_off_by_the_end_of_its_block(in_thread):
    cancellation, calls = Cancellation(), []
    entered, go_on = threading.Event(), threading.Event()

    def first() -> None:
        entered.set()
        assert go_on.wait(WITHIN_S)

    with cancellation.on_cancel(first):
        with cancellation.on_cancel(lambda: calls.append("second")):
            cancelling = in_thread(cancellation.cancel)
            assert entered.wait(WITHIN_S)
        go_on.set()
        cancelling.result(WITHIN_S)
    assert calls == []


def test_the_end_of_the_block_waits_for_a_call_under_way(in_thread):
    cancellation, left_early = Cancellation(), []
    entered, left = threading.Event(), threading.Event()

    def callback() -> None:
        entered.set()
        left_early.append(left.wait(0.05))

    with cancellation.on_cancel(callback):
        cancelling = in_thread(cancellation.cancel)
        assert entered.wait(WITHIN_S)
    left.set()
    assert left_early == [False]
    cancelling.result(WITHIN_S)


def test_a_block_can_be_left_while_another_blocks_callback_is_under_way(in_thread):
    cancellation = Cancellation()
    entered, go_on = threading.Event(), threading.Event()

    def slow() -> None:
        entered.set()
        assert go_on.wait(WITHIN_S)

    with ExitStack() as others:
        others.enter_context(cancellation.on_cancel(slow))
        cancelling = in_thread(cancellation.cancel)
        assert entered.wait(WITHIN_S)
        with cancellation.on_cancel(lambda: None):
            pass  # nothing waits for the slow one here
        go_on.set()
    cancelling.result(WITHIN_S)


def test_the_thread_that_cancels_may_leave_the_block_from_within_the_callback():
    cancellation, block = Cancellation(), ExitStack()
    block.enter_context(cancellation.on_cancel(block.close))
    cancellation.cancel()  # would wait for itself for ever


def test_a_callback_may_cancel_and_register_callbacks():
    cancellation, calls = Cancellation(), []

    def callback() -> None:
        cancellation.cancel("shutdown")
        with cancellation.on_cancel(lambda: calls.append("inner")):
            calls.append("outer")

    with cancellation.on_cancel(callback):
        cancellation.cancel()
    assert calls == ["inner", "outer"]
    assert cancellation.reason == "cancelled"


@pytest.mark.parametrize("error", [ValueError("broken"), SystemExit(1), Cancelled()])
def test_what_a_callback_raises_is_logged_and_the_others_are_called(error, caplog):
    cancellation, calls = Cancellation(), []

    def raising() -> None:
        raise error

    with (
        cancellation.on_cancel(raising),
        cancellation.on_cancel(lambda: calls.append("other")),
    ):
        cancellation.cancel()
    assert calls == ["other"]
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert record.exc_info[1] is error


def test_what_a_late_callback_raises_is_logged(caplog):
    cancellation = Cancellation()
    cancellation.cancel()

    def raising() -> None:
        raise ValueError("broken")

    with cancellation.on_cancel(raising):
        pass
    assert "broken" in caplog.text


def test_one_of_many_cancels_wins(in_thread):
    reasons = ("cancelled", "deadline", "fenced", "shutdown") * 4
    for _ in range(50):
        cancellation, calls, seen = Cancellation(), [], []
        together = threading.Barrier(len(reasons))

        def cancel(reason, cancellation=cancellation, together=together, seen=seen):
            together.wait(WITHIN_S)
            cancellation.cancel(reason)
            seen.append(cancellation.reason)

        with cancellation.on_cancel(lambda calls=calls: calls.append(1)):
            for running in [in_thread(cancel, reason) for reason in reasons]:
                running.result(WITHIN_S)
        assert calls == [1]
        assert set(seen) == {cancellation.reason}


def test_no_callback_is_lost_called_twice_or_late_in_a_race(in_thread):
    for _ in range(100):
        cancellation = Cancellation()
        together = threading.Barrier(9)

        def block(cancellation=cancellation, together=together) -> tuple[int, bool]:
            calls, inside = [], True

            def callback() -> None:
                calls.append(inside)

            together.wait(WITHIN_S)
            with cancellation.on_cancel(callback):
                noticed = cancellation.cancelled
            inside = False
            assert all(calls), "called after the block"
            return len(calls), noticed

        blocks = [in_thread(block) for _ in range(8)]
        together.wait(WITHIN_S)
        cancellation.cancel()
        for running in blocks:
            calls, noticed = running.result(WITHIN_S)
            assert calls <= 1
            assert calls or not noticed
