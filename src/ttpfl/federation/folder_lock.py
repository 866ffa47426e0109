"""A run's folder belongs to one process at a time."""

import logging
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ttpfl.errors import FederationError

log = logging.getLogger("ttpfl")

NAME = ".lock"

_held: set[tuple[int, Path]] = set()  # with the process, since a forked one has a copy of this but no lock
_guard = threading.Lock()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """While open, others that want the same folder, in this process or another, get an error at once.

    The operating system holds the lock for this process alone: when it ends, killed or not, the lock is
    gone, whatever its forked workers do. The file stays; its content only says who had the lock last.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with locked(folder):
    ...     (folder / NAME).read_text() == str(os.getpid())
    True
    """
    with _once_in_this_process(folder), open(folder / NAME, "a+b", buffering=0) as file:
        try:
            _lock(file.fileno())
        except (BlockingIOError, PermissionError):
            file.seek(0)
            raise FederationError(
                f"{folder} is in use by process {file.read().decode() or '(unknown)'}: wait until it ends or "
                "stop it, or choose another folder"
            ) from None
        except OSError as error:  # some network disks
            log.warning("%s cannot be locked (%s): let no other process use it", folder, error)
        with suppress(OSError):  # a full disk; the first checkpoint will say so
            file.truncate(0)
            file.write(str(os.getpid()).encode())
        yield


@contextmanager
def _once_in_this_process(folder: Path) -> Iterator[None]:
    """The operating system would let the same process in twice, and end the lock with the second's file."""
    own = (os.getpid(), folder.resolve())
    with _guard:
        if own in _held:
            raise FederationError(
                f"{folder} is in use by another run of this process: wait until it ends, or choose another "
                "folder"
            )
        _held.add(own)
    try:
        yield
    finally:
        with _guard:
            _held.discard(own)


if sys.platform == "win32":
    import msvcrt

    _FAR = 2**30  # what is locked there cannot be read by others, and they read who has it

    def _lock(descriptor: int) -> None:
        os.lseek(descriptor, _FAR, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _lock(descriptor: int) -> None:
        # Not flock(): forked processes would hold that on, should they outlive this one.
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
