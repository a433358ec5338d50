"""When the master begins workers and tells them to end, asked directly."""

from __future__ import annotations

import errno
import os
import signal
from types import SimpleNamespace
from typing import Any

import pytest
from gunicorn.arbiter import Arbiter  # type: ignore[import-untyped]
from gunicorn.config import Config  # type: ignore[import-untyped]

from caesar_server.cli.workers.master import Master
from caesar_server.web.access.keyring import Latch


class Recorded(Master):
    """A master that forks nothing; ``told`` are the signals that it sent."""

    def __init__(self, workers: int) -> None:
        config = Config()
        config.set("workers", workers)
        super().__init__(SimpleNamespace(cfg=config, read_settings=lambda: True))
        self.WORKERS: dict[int, Any] = {}  # else all masters of a process would have the same
        self.told: list[tuple[int, int]] = []
        self.manage_workers()
        self.serve()

    def spawn_workers(self) -> None:
        while len(self.WORKERS) < self.num_workers:
            self.spawn_worker()

    def spawn_worker(self) -> None:  # type: ignore[override]
        self.worker_age += 1
        self.WORKERS[self.worker_age] = SimpleNamespace(
            age=self.worker_age, serves=Latch(), asks_to_go=Latch()
        )

    def kill_worker(self, pid: int, sig: int) -> None:
        self.told.append((pid, sig))

    def serve(self) -> None:
        """Let all workers have begun."""
        for worker in self.WORKERS.values():
            worker.serves.set()

    def after(self, *, asking: tuple[int, ...] = (), gone: tuple[int, ...] = ()) -> Any:
        """Return the workers after the next round, in which some have asked and some are gone."""
        for pid in asking:
            self.WORKERS[pid].asks_to_go.set()
        for pid in gone:
            del self.WORKERS[pid]
        self.manage_workers()
        return list(self.WORKERS)


def test_a_worker_goes_once_its_successor_answers() -> None:
    master = Recorded(2)
    assert master.after() == [1, 2]
    assert master.after(asking=(1,)) == [1, 2, 3]
    assert master.after() == [1, 2, 3]
    assert master.told == []
    master.serve()
    assert master.after() == [1, 2, 3]
    assert master.after() == [1, 2, 3]
    assert master.told == [(1, signal.SIGTERM)], "once is enough"
    assert master.after(gone=(1,)) == [2, 3]
    assert master.told == [(1, signal.SIGTERM)]
    assert master.num_workers == 2


def test_workers_that_ask_at_once_get_successors_at_once() -> None:
    master = Recorded(2)
    assert master.after(asking=(1, 2)) == [1, 2, 3, 4]
    master.WORKERS[3].serves.set()
    assert master.after() == [1, 2, 3, 4]
    assert master.told == []
    master.serve()
    master.after()
    assert master.told == [(1, signal.SIGTERM), (2, signal.SIGTERM)]


def test_those_that_ask_while_others_are_ending_wait_and_answer() -> None:
    master = Recorded(1)
    master.after(asking=(1,))
    master.serve()
    assert master.after(asking=(2,)) == [1, 2], "there would be no end of processes"
    assert master.told == [(1, signal.SIGTERM)]
    assert master.after(gone=(1,)) == [2, 3]
    assert master.told == [(1, signal.SIGTERM)]
    master.serve()
    master.after()
    assert master.told[1:] == [(2, signal.SIGTERM)]


def test_what_is_lost_meanwhile_is_replaced() -> None:
    master = Recorded(2)
    master.after(asking=(1,))
    assert master.after(gone=(3,)) == [1, 2, 4], "the successor"
    assert master.after(gone=(1,)) == [2, 4], "the one that asked"
    assert master.after(gone=(2,)) == [4, 5], "another one"
    assert master.told == []


def test_a_lesser_number_counts_for_those_that_ask_too() -> None:
    master = Recorded(2)
    master.after(asking=(1,))
    master.serve()
    master.handle_ttou()
    assert {pid for pid, _ in master.told} == {1}
    master.after(gone=(1,))
    assert {pid for pid, _ in master.told} == {1, 2}
    assert master.after(gone=(2,)) == [3]


def test_a_reload_waits_for_no_successor(monkeypatch: pytest.MonkeyPatch) -> None:
    master = Recorded(2)
    master.after(asking=(1, 2))

    def reload(self: Recorded) -> None:
        # what gunicorn's does about workers
        for _ in range(2):
            self.spawn_worker()
        self.manage_workers()

    monkeypatch.setattr(Arbiter, "reload", reload)
    master.reload()
    assert [pid for pid, _ in master.told] == [1, 2, 3, 4]
    assert master.after(gone=(1, 2, 3, 4)) == [5, 6]


def test_where_no_process_can_begin_it_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = Config()
    config.set("worker_class", "gthread")
    begun: list[Any] = []
    config.set("pre_fork", lambda server, worker: begun.append(worker))
    master = Master(SimpleNamespace(cfg=config))
    master.pid, master.WORKERS = os.getpid(), {}

    def fork() -> int:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr("os.fork", fork)
    master.manage_workers()
    assert master.WORKERS == {}
    assert "cannot begin now, and is tried again" in capsys.readouterr().err
    monkeypatch.setattr("os.fork", lambda: 4711)
    master.manage_workers()
    (worker,) = master.WORKERS.values()
    assert worker.pid == 4711
    for each in begun:
        each.tmp.close()


def test_a_workers_process_never_becomes_a_master(monkeypatch: pytest.MonkeyPatch) -> None:
    class Left(BaseException):
        """Stands for the end of the process."""

    def leave(code: int) -> None:
        raise Left(code)

    def fail(master: Arbiter) -> None:
        master.pid = os.getpid() + 1  # what the worker's process finds: it is another's
        raise BrokenPipeError

    monkeypatch.setattr("os._exit", leave)
    monkeypatch.setattr(Arbiter, "spawn_worker", fail)
    with pytest.raises(Left, match="1"):
        Master(SimpleNamespace(cfg=Config())).spawn_worker()
