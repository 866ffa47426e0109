"""Ending worker processes together with their parent."""

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
import time

_PR_SET_PDEATHSIG = 1  # from <linux/prctl.h>
_LOOK_EVERY = 1.0  # seconds


def die_with_parent() -> None:
    """Kill this forked process when the process that forked it ends.

    On Linux the kernel does so at once (for the kernel, the parent is the thread that forked). On other
    systems a thread checks every second whether the parent is still alive.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None, "only a process that was started by multiprocessing has a parent"
    assert parent.pid is not None
    if not _ask_the_kernel():
        threading.Thread(target=_watch, args=(parent.pid,), daemon=True).start()
    elif os.getppid() != parent.pid:  # the parent ended before the call
        os.kill(os.getpid(), signal.SIGKILL)


def _ask_the_kernel() -> bool:
    if not sys.platform.startswith("linux"):
        return False
    try:
        return int(ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)) == 0
    except (AttributeError, OSError):  # not in this C library
        return False


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_EVERY)
    os.kill(os.getpid(), signal.SIGKILL)
