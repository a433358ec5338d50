"""Numbers that outlive a worker process: files that the workers of a server share.

prometheus-client keeps each process's numbers in files of a folder, which the environment variable
``PROMETHEUS_MULTIPROC_DIR`` names; any worker answers with the sum.  gunicorn's master makes the
folder, adds up what dead workers leave behind and removes the folder at its end: the functions that
take ``server`` are gunicorn's hooks, called in the master.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from caesar_server.settings import set_variable

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

logger = logging.getLogger(__name__)

VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
#: Stands in the names of files in place of a process id, for all processes that are gone.
_GONE = "gone"
#: What is added up; of a dead worker's gauges nothing is kept.
_ADDED = ("counter", "histogram")


def share_numbers(server: Any) -> None:
    """At the start (``on_starting``): make the folder and name it in the workers' environment."""
    folder = Path(tempfile.mkdtemp(prefix="caesar-server-metrics-"))
    os.chown(folder, server.cfg.uid, server.cfg.gid)
    set_variable(VARIABLE, str(folder))
    server.metrics_folder = folder
    if server.cfg.preload_app:
        server.log.warning("with preload_app each worker's /metrics knows its own numbers only")


def keep_numbers(server: Any, worker: Any) -> None:
    """When a worker is gone (``child_exit``): add its numbers to those of its predecessors."""
    folder: Path | None = getattr(server, "metrics_folder", None)
    if folder is None:
        return  # somebody else's on_starting is in place of ours
    from prometheus_client.multiprocess import mark_process_dead

    mark_process_dead(worker.pid, str(folder))
    living = {str(pid) for pid in server.WORKERS}
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


@contextmanager
def reading() -> Iterator[CollectorRegistry]:
    """Give a registry of all processes' numbers; inside the block none of them is moved."""
    from prometheus_client import CollectorRegistry
    from prometheus_client.multiprocess import MultiProcessCollector

    registry = CollectorRegistry()
    folder = Path(MultiProcessCollector(registry)._path)
    with _locked(folder, fcntl.LOCK_SH):
        yield registry


def _add_up(folder: Path, kind: str, living: set[str]) -> None:
    """Move the numbers of dead processes into one file, or each restart would leave some behind."""
    from prometheus_client.mmap_dict import MmapedDict

    dead = [
        path
        for path in folder.glob(f"{kind}_*.db")
        if path.stem.partition("_")[2] not in {*living, _GONE}
    ]
    if not dead:
        return
    total = MmapedDict(str(folder / f"{kind}_{_GONE}.db"))
    try:
        for path in dead:
            # A process that was killed may not have got to the first byte.
            empty = path.stat().st_size == 0
            values = () if empty else MmapedDict.read_all_values_from_file(str(path))
            for key, value, _, _ in tuple(values):
                total.write_value(key, total.read_value(key)[0] + value, 0.0)
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
