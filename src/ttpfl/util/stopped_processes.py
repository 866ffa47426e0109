"""Worker processes that somebody stopped (SIGSTOP) and did not continue: they live, but never answer."""

import logging
import os
import time
from collections.abc import Callable

from ttpfl.util.limits import STOPPED

log = logging.getLogger("ttpfl")


class StoppedProcesses:
    """Asks the system about child processes, so that one that is just busy for long is never meant.

    Where the system cannot tell (it needs `os.waitid`), nothing is noticed.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: dict[int, float] = {}

    def overdue(self, process: int | None, at: str) -> bool:
        """Whether this child has been stopped for too long; `at` says in a warning what it worked at."""
        if process is None or not is_stopped(process):
            self._since.pop(process or 0, None)
            return False
        if process not in self._since:
            log.warning(
                "worker process %d was stopped %s: it is given up unless it goes on within %d seconds",
                process,
                at,
                STOPPED.value,
            )
        return self._clock() - self._since.setdefault(process, self._clock()) >= STOPPED.value


def is_stopped(process: int) -> bool:
    """Whether a child process is stopped at the moment.

    >>> is_stopped(os.getpid())  # not a child
    False
    """
    if not hasattr(os, "waitid"):
        return False
    try:
        # Looks only: whoever waits for the process still gets to know how it ended.
        found = os.waitid(os.P_PID, process, os.WSTOPPED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return found is not None and found.si_code == os.CLD_STOPPED
