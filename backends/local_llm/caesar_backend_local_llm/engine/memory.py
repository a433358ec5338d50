"""How much memory there is, asked before it is taken: the kernel ends whoever takes too much."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

_KIB = 1024
#: Files of a control group: limit, use, and in the statistics the cache that can be given up.
_VERSION_2 = ("memory.max", "memory.current", "inactive_file")
_VERSION_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def available_bytes(root: Path = Path("/")) -> int | None:
    """Return the bytes that this process may still take, or None where nobody says.

    That is what the machine has free or can free, and not more than what is left of the limits of
    the control groups that the process is in, as containers have them.

    :param root: where ``proc`` and ``sys`` are.
    """
    machine = _numbers(root / "proc/meminfo").get("MemAvailable:")
    known = [] if machine is None else [machine * _KIB]
    for folder, files in _groups(root):
        left = _left(folder, *files)
        if left is not None:
            known.append(left)
    return min(known) if known else None


def give_back() -> None:
    """Return freed memory to the machine: the C library of most Linux systems keeps it for later.

    Elsewhere there is no such function, and nothing happens.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _groups(root: Path) -> Iterator[tuple[Path, tuple[str, str, str]]]:
    """Yield the folders of this process's control groups, inner ones first, with their files."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            top, files = root / "sys/fs/cgroup", _VERSION_2
        elif "memory" in controllers.split(","):
            top, files = root / "sys/fs/cgroup/memory", _VERSION_1
        else:
            continue
        inner = top / path.lstrip("/")
        # in a container the path may be one of the machine outside, where only the top is seen
        while inner != top:
            yield inner, files
            inner = inner.parent
        yield top, files


def _left(folder: Path, limit: str, used: str, cache: str) -> int | None:
    try:
        most, taken = (int((folder / name).read_text()) for name in (limit, used))
    except (OSError, ValueError):  # no such file, or "max": no limit
        return None
    return max(0, most - taken + _numbers(folder / "memory.stat").get(cache, 0))


def _numbers(path: Path) -> dict[str, int]:
    """Return the numbers of a file with a name and a number in each line."""
    try:
        lines = [line.split() for line in path.read_text().splitlines()]
    except OSError:
        return {}
    return {line[0]: int(line[1]) for line in lines if len(line) > 1 and line[1].isdigit()}
