"""Detection of worker processes that were stopped (SIGSTOP) and never continued."""

import logging
import os
import time
from collections.abc import Callable

from ttpfl.util.limits import STOPPED

log = logging.getLogger("ttpfl")


class StoppedProcesses:
    """Tracks how long child processes have been stopped; a busy process does not count.

    Systems without `os.waitid` detect nothing.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: dict[int, float] = {}

    def overdue(self, process: int | None, at: str) -> bool:
        """Whether this child has been stopped for too long; `at` tells the warning what it was doing."""
        if process is None or not is_stopped(process):
            self._since.pop(process or 0, None)
            return False
        if process not in self._since:
            deadline = f"unless it continues within {STOPPED.value} seconds"
            log.warning("worker process %d was stopped %s: it is replaced %s", process, at, deadline)
        return self._clock() - self._since.setdefault(process, self._clock()) >= STOPPED.value


def is_stopped(process: int) -> bool:
    """Whether a child process is currently stopped.

    >>> is_stopped(os.getpid())  # not a child
    False
    """
    if not hasattr(os, "waitid"):
        return False
    try:
        # WNOWAIT leaves the status to whoever waits for the process.
        status = os.waitid(os.P_PID, process, os.WSTOPPED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return status is not None and status.si_code == os.CLD_STOPPED
