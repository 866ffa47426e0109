"""Processes that tests start, and that must not stay."""

import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path


def alive(pid: int) -> bool:
    """Whether there is such a process, and not just its entry that nobody has looked at."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def wait_until_gone(pids: Iterable[int], seconds: float = 60) -> list[int]:
    """Those that are still there after a long time."""
    left, end = list(pids), time.monotonic() + seconds
    while (left := [pid for pid in left if alive(pid)]) and time.monotonic() < end:
        time.sleep(0.02)
    return left


def environment() -> dict[str, str]:
    """For a new process of Python that finds the same packages."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
