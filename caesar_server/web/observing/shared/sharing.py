"""Numbers that outlive a worker process: files that the workers of a server share.

prometheus-client keeps each process's numbers in files of a folder, which the environment variable
``PROMETHEUS_MULTIPROC_DIR`` names; any worker answers with the sum.  gunicorn's master makes the
folder, adds up what dead workers leave behind and removes the folder at its end: the functions that
take ``server`` are gunicorn's hooks, called in the master.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from caesar_server.settings import set_variable

if TYPE_CHECKING:
    from prometheus_client import Metric

VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
_PREFIX = "caesar-server-metrics-"
_LOCK = "lock"
#: Stands in the names of files in place of a process id, for all processes that are gone.
_GONE = "gone"
#: What is added up; of a dead worker's gauges nothing is kept.
_ADDED = ("counter", "histogram")


def share_numbers(server: Any) -> None:
    """At the start (``on_starting``): make the folder and name it in the workers' environment."""
    _remove_left_behind()
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    server.metrics_lock = _occupied(folder, server.cfg)
    set_variable(VARIABLE, str(folder))
    server.metrics_folder = folder
    if server.cfg.preload_app:
        server.log.warning("with preload_app each worker's /metrics knows its own numbers only")
    elif not _shares_already():
        _remember_process()


def place_numbers(server: Any, worker: Any) -> None:
    """Before a worker begins (``pre_fork``): make the folder anew if somebody has removed it."""
    folder: Path | None = getattr(server, "metrics_folder", None)
    if folder is None or folder.is_dir():
        return
    try:
        folder.mkdir(0o700)
        before, server.metrics_lock = server.metrics_lock, _occupied(folder, server.cfg)
        os.close(before)
    except OSError as error:
        server.log.warning("there is no place for the numbers of /metrics: %s", error)
    else:
        server.log.warning("%s was removed, and the numbers of /metrics with it", folder)


def _occupied(folder: Path, config: Any) -> int:
    """Return the lock on a folder that was just made, held until all of the server has ended.

    :raises OSError: if it cannot be made.
    """
    descriptor = os.open(folder / "new", os.O_CREAT | os.O_RDWR, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    # it gets its name when it is locked already
    (folder / "new").rename(folder / _LOCK)
    os.chown(folder, config.uid, config.gid)
    return descriptor


def _shares_already() -> bool:
    """Return whether this process has shared numbers: another kind would write to their files."""
    values = sys.modules.get("prometheus_client.values")
    return values is not None and values.ValueClass._multiprocess


def _remember_process() -> None:
    """Let prometheus-client ask the kernel once a process who it is, not at each number it counts.

    A short answer counts seventeen, and in a sandbox each of these questions takes microseconds.
    """
    from prometheus_client import values

    process = [os.getpid()]

    def look_again() -> None:
        process[0] = os.getpid()

    os.register_at_fork(after_in_child=look_again)
    values.ValueClass = values.MultiProcessValue(lambda: process[0])


def keep_numbers(server: Any, worker: Any) -> None:
    """When a worker is gone (``child_exit``): add its numbers to those of its predecessors."""
    folder: Path | None = getattr(server, "metrics_folder", None)
    if folder is None:
        return  # somebody else's on_starting is in place of ours
    try:
        _keep(folder, worker.pid, {str(pid) for pid in server.WORKERS})
    except OSError as error:
        server.log.warning("cannot add up numbers of /metrics: %s", error)


def _keep(folder: Path, gone: int, living: set[str]) -> None:
    """Add up what is left of a process.

    :raises OSError: if the disk has no room, or the folder was removed.
    """
    from prometheus_client.multiprocess import mark_process_dead

    mark_process_dead(gone, str(folder))
    with _locked(folder, fcntl.LOCK_EX | fcntl.LOCK_NB) as got_it:
        # Busy: the files count as they are, and are added up when the next worker goes.
        if got_it:
            for kind in _ADDED:
                _add_up(folder, kind, living)


def drop_numbers(server: Any) -> None:
    """At the end (``on_exit``): remove the folder."""
    folder: Path | None = getattr(server, "metrics_folder", None)
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(server.metrics_lock)


def _remove_left_behind() -> None:
    """Remove the folders of servers that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            descriptor = os.open(folder / _LOCK, os.O_RDWR)
        except OSError:
            continue  # another user's, or just being made
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue  # its server lives
        else:
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(descriptor)


class SharedNumbers:
    """The sum over all processes, as something that can be written out."""

    def __init__(self) -> None:
        """:raises ValueError: if the environment names no folder."""
        from prometheus_client.multiprocess import MultiProcessCollector

        self._folder = Path(MultiProcessCollector(None)._path)

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics; nothing is moved meanwhile from one file to another."""
        from prometheus_client.multiprocess import MultiProcessCollector

        with _locked(self._folder, fcntl.LOCK_SH):
            # A worker that begins has made its file a moment before there is anything in it.
            files = [str(path) for path in self._folder.glob("*.db") if _size(path) > 0]
            yield from MultiProcessCollector.merge(files)


def _size(path: Path) -> int:
    """Return 0 for a file that is gone: a dead worker's gauges are."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _add_up(folder: Path, kind: str, living: set[str]) -> None:
    """Move the numbers of dead processes into one file, or each restart would leave some behind.

    :raises OSError: if the disk has no room for them; those that were not moved count as they are.
    """
    from prometheus_client.mmap_dict import MmapedDict

    from caesar_server.web.observing.shared.reserving import ReservedFile

    dead = [
        path
        for path in folder.glob(f"{kind}_*.db")
        if path.stem.partition("_")[2] not in {*living, _GONE}
    ]
    if not dead:
        return
    total = ReservedFile(str(folder / f"{kind}_{_GONE}.db"))
    try:
        for path in dead:
            # A process that was killed may not have got to the first byte.
            found = () if _size(path) == 0 else MmapedDict.read_all_values_from_file(str(path))
            numbers = {key: value for key, value, _, _ in found}
            # all have their places before any is moved, or some would count twice
            before = {key: total.read_value(key)[0] for key in numbers}
            for key, value in numbers.items():
                total.write_value(key, before[key] + value, 0.0)
            path.unlink()
    finally:
        total.close()


@contextmanager
def _locked(folder: Path, how: int) -> Iterator[bool]:
    """Hold a lock on the folder; gives False if it was to be had without waiting and could not."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, how)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)
