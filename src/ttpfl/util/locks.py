"""File locks, which the operating system releases when their holder ends."""

import logging
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ttpfl.errors import FederationError

log = logging.getLogger("ttpfl")

FOLDER_LOCK = ".lock"
RUN_LOCK = ".flower-lock"  # a run over sites holds both

_held: set[tuple[int, Path]] = set()  # with the process id, since a forked process holds none of them
_guard = threading.Lock()


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Lock a folder for this process; raise a FederationError if it is locked already.

    The lock belongs to this process, not to its forked workers. The lock file is not removed; it contains the
    id of the last process that held the lock.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with folder_lock(folder):
    ...     (folder / FOLDER_LOCK).read_text() == str(os.getpid())
    True
    """
    with _once_in_this_process(folder), open(folder / FOLDER_LOCK, "a+b", buffering=0) as file:
        try:
            _lock_for_process(file.fileno())
        except (BlockingIOError, PermissionError):
            file.seek(0)
            raise FederationError(
                f"{folder} is in use by process {file.read().decode() or '(unknown)'}: wait until it ends, "
                "stop it, or choose another folder"
            ) from None
        except OSError as error:  # some network file systems
            log.warning("cannot lock %s (%s): make sure that no other process uses it", folder, error)
        with suppress(OSError):  # if the disk is full, writing the first checkpoint reports it
            file.truncate(0)
            file.write(str(os.getpid()).encode())
        yield


@contextmanager
def run_lock(folder: Path, token: str, seconds: float = 120.0) -> Iterator[None]:
    """Lock a run folder for the run `token`, waiting up to `seconds` for a previous run to release it."""
    with open(folder / RUN_LOCK, "a+") as file:
        if not _wait(lambda: _try_lock(file.fileno()), seconds):
            raise FederationError(f"another run is writing to {folder}: wait for it, or stop it")
        file.truncate(0)
        file.write(token)
        file.flush()
        yield


def run_died(folder: Path, token: str) -> bool:
    """Whether the run `token` was the last to lock the folder, and no longer holds the lock.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with run_lock(folder, "a1"):
    ...     run_died(folder, "a1")
    False
    >>> run_died(folder, "a1"), run_died(folder, "b2")
    (True, False)
    """
    try:
        return (folder / RUN_LOCK).read_text() == token and not _run_lock_held(folder)
    except FileNotFoundError:
        return False


def wait_until_free(folder: Path, seconds: float) -> bool:
    """Wait up to `seconds` until no run holds the folder; return whether it is free.

    >>> import tempfile
    >>> wait_until_free(Path(tempfile.mkdtemp()), seconds=0)
    True
    """
    return _wait(lambda: not _run_lock_held(folder), seconds)


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold the lock file `path`, waiting for other processes without a time limit."""
    with open(path, "w") as file:
        _wait(lambda: _try_lock(file.fileno()), math.inf, every=0.01)
        yield


@contextmanager
def _once_in_this_process(folder: Path) -> Iterator[None]:
    """Reject a second lock in the same process, which the system would grant, and release too early."""
    key = (os.getpid(), folder.resolve())
    with _guard:
        if key in _held:
            raise FederationError(
                f"{folder} is in use by another run of this process: wait until it ends, or choose another "
                "folder"
            )
        _held.add(key)
    try:
        yield
    finally:
        with _guard:
            _held.discard(key)


def _run_lock_held(folder: Path) -> bool:
    try:
        with open(folder / RUN_LOCK) as file:
            # A shared lock: two processes that only check must not mistake each other for a run.
            return not _try_lock(file.fileno(), shared=True)
    except FileNotFoundError:
        return False


def _wait(ready: Callable[[], bool], seconds: float, every: float = 0.5) -> bool:
    end = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > end:
            return False
        time.sleep(every)
    return True


if sys.platform == "win32":
    import msvcrt

    _FAR = 2**30  # others cannot read locked bytes, but must read the id of the holder

    def _lock_for_process(descriptor: int) -> None:
        os.lseek(descriptor, _FAR, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

    def _try_lock(descriptor: int, shared: bool = False) -> bool:
        try:
            _lock_for_process(descriptor)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _lock_for_process(descriptor: int) -> None:
        # Not flock(): forked workers that outlive this process would keep it.
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _try_lock(descriptor: int, shared: bool = False) -> bool:
        # Not lockf(): closing any other handle of the file in this process would release it.
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
