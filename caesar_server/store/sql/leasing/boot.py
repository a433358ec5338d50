"""A clock that all processes of a machine share, and that nobody can set."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

_LINUX_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_time_s() -> float:
    """Return seconds since the machine was started; goes on while it sleeps, where that is known.

    Linux has ``CLOCK_BOOTTIME``.  Elsewhere the monotonic clock stands in: it is common to all
    processes too.
    """
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


def boot_id() -> str:
    """Return what tells this start of the machine from earlier ones; empty where nothing does."""
    if _LINUX_BOOT_ID.exists():
        return _LINUX_BOOT_ID.read_text().strip()
    if sys.platform == "darwin":
        command = ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"]
        told = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        return told.stdout.strip()
    return ""
