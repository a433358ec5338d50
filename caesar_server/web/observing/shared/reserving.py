"""Files of numbers that have their room on the disk before anything is in it.

prometheus-client writes through memory that is mapped to its files, and makes these longer by
holes.  Where a hole cannot be filled, since the disk is full, such a write is no error but the
signal SIGBUS, which ends the process: worker after worker would die until somebody makes room.

Importing this module imports prometheus-client: see :mod:`caesar_server.web.observing.metrics`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from prometheus_client import values
from prometheus_client.mmap_dict import MmapedDict

logger = logging.getLogger(__name__)

#: A file's first length in bytes, from which it doubles; as prometheus-client has it.
_FIRST_BYTES = 1 << 16
#: What a number takes at most besides its name: its length, spaces, its value and its time.
_VALUE_BYTES = 4 + 8 + 16

_Write: TypeAlias = Callable[[str, float, float], None]


def reserve_numbers() -> None:
    """Let the numbers that this process shares take their room first; harmless when repeated."""
    module: Any = values  # which does not say that others may
    module.MmapedDict = SharedFile


class ReservedFile:
    """A file of numbers that says so if there is no room for one more.

    :param filename: made if it is not there.
    :ivar write_value: sets a number that has its place, with its time.
    """

    def __init__(self, filename: str) -> None:
        """:raises OSError: if the disk has no room for the file."""
        with Path(filename).open("ab") as file:
            _fill(file.fileno(), _FIRST_BYTES)
        self._numbers = MmapedDict(filename)
        self.write_value: _Write = self._numbers.write_value

    def read_value(self, key: str) -> tuple[float, float]:
        """Return value and time of a number; a new one gets its place.

        :raises OSError: if the disk has no room for it; the others are as before.
        """
        numbers = self._numbers
        if key not in numbers._positions:
            needed, capacity = numbers._used + len(key.encode()) + _VALUE_BYTES, numbers._capacity
            while needed > capacity:
                capacity *= 2
            _fill(numbers._f.fileno(), capacity)
        value, timestamp = numbers.read_value(key)
        return value, timestamp

    def close(self) -> None:
        """Close the file."""
        self._numbers.close()


class SharedFile:
    """The numbers of one kind, in a file that the other processes read, or else in memory.

    A number for which the disk has no room is known to nobody: requests are answered all the same.

    :param filename: made when the first number comes.
    :ivar write_value: sets a number that was read before, with its time: the file's own as long as
        all have found room, since each answer sets a dozen and more.
    """

    def __init__(self, filename: str) -> None:
        self._filename = filename
        self._file: ReservedFile | None = None
        self._homeless: dict[str, tuple[float, float]] = {}
        self.write_value: _Write = self._write

    def read_value(self, key: str) -> tuple[float, float]:
        """Return value and time of a number; a new one gets its place."""
        try:
            if key not in self._homeless:
                if self._file is None:
                    self._file = ReservedFile(self._filename)
                    self.write_value = self._write if self._homeless else self._file.write_value
                return self._file.read_value(key)
        except OSError as error:
            if not self._homeless:
                told = f"{self._filename}: {error.strerror}"
                logger.warning("/metrics will lack some numbers of this process: %s", told)
            self._homeless[key] = (0.0, 0.0)
            self.write_value = self._write
        return self._homeless[key]

    def _write(self, key: str, value: float, timestamp: float) -> None:
        if self._file is None or key in self._homeless:
            self._homeless[key] = (value, timestamp)
        else:
            self._file.write_value(key, value, timestamp)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


def _fill(descriptor: int, size: int) -> None:
    """Let a file be at least ``size`` bytes long, without holes.

    :param descriptor: of a file that is open for writing.
    :raises OSError: if the disk has no room for them; the file is then as long as before.
    """
    before = length = os.fstat(descriptor).st_size
    try:
        while length < size:
            length += os.pwrite(descriptor, bytes(size - length), length)
    except OSError:
        os.ftruncate(descriptor, before)
        raise
