"""One writer per run folder: a lock that the system lets go of when its holder dies, however it dies."""

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ttpfl.errors import FederationError

FILE = ".flower-lock"  # not the name of the local engine's lock, which a run has as well


@contextmanager
def alone(out: Path, token: str, seconds: float = 120.0) -> Iterator[None]:
    """Hold the folder; a run that was lost may take a moment to notice it."""
    end = time.monotonic() + seconds
    with open(out / FILE, "a+") as lock:
        while not _free(lock.fileno()):
            if time.monotonic() > end:
                raise FederationError(f"another run is writing to {out}: wait, or stop it")
            time.sleep(0.5)
        lock.truncate(0)
        lock.write(token)
        lock.flush()
        yield


def died(out: Path, token: str) -> bool:
    """Whether the run with this token held the folder, and does not any more.

    >>> import tempfile
    >>> out = Path(tempfile.mkdtemp())
    >>> with alone(out, "a1"):
    ...     died(out, "a1")
    False
    >>> died(out, "a1"), died(out, "b2")
    (True, False)
    """
    try:
        with open(out / FILE) as lock:
            return lock.read() == token and _free(lock.fileno(), fcntl.LOCK_SH)
    except FileNotFoundError:
        return False


def wait_until_free(out: Path, seconds: float) -> bool:
    """Whether nobody holds the folder; a run that was stopped may take a moment to let go of it.

    >>> import tempfile
    >>> out = Path(tempfile.mkdtemp())
    >>> with alone(out, "a1"):
    ...     wait_until_free(out, seconds=0)
    False
    >>> wait_until_free(out, seconds=0)
    True
    """
    end = time.monotonic() + seconds
    while _held(out):
        if time.monotonic() > end:
            return False
        time.sleep(0.5)
    return True


def _held(out: Path) -> bool:
    try:
        with open(out / FILE) as lock:
            return not _free(lock.fileno(), fcntl.LOCK_SH)
    except FileNotFoundError:
        return False


def _free(lock: int, kind: int = fcntl.LOCK_EX) -> bool:
    # Whoever only looks takes a shared lock, so that two who look do not take each other for a run.
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
