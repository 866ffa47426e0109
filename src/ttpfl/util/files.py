"""Writing files atomically."""

import glob
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO


@contextmanager
def written_in_one_step(path: Path, mode: int = 0o666) -> Iterator[IO[bytes]]:
    """Open a file that gets the name `path` only when it is complete and on disk.

    `mode` is its permissions from the start, restricted by the umask.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with written_in_one_step(folder / "note") as file:
    ...     _ = file.write(b"hello")
    >>> [(path.name, path.read_bytes()) for path in folder.iterdir()]
    [('note', b'hello')]
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.part")
    _remove_leftovers(path)
    try:
        with open(temporary, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except OSError as error:
        if error.filename == str(temporary):  # a name that means nothing to the user
            error.filename = str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)


def _remove_leftovers(path: Path) -> None:
    """Remove temporary files of processes that were killed."""
    if os.name != "posix":  # no way to check whether a process is alive
        return
    for part in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
        process = part.name.split(".")[-3]
        if process.isdigit() and not _is_alive(int(process)):
            part.unlink(missing_ok=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)  # sends nothing
    except OSError as error:  # any other error: the process belongs to another user
        return not isinstance(error, ProcessLookupError)
    return True


def _sync_folder(folder: Path) -> None:
    """Write the new name to disk, if the system can open folders."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
