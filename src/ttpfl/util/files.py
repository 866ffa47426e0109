"""Files that are either there in full or not at all."""

import glob
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO


@contextmanager
def written_in_one_step(path: Path, mode: int = 0o666) -> Iterator[IO[bytes]]:
    """A file to write to, which takes the name `path` only once it is complete and on the disk.

    Args:
        path: the file.
        mode: who may do what with it, from the first moment on; less what the umask forbids.

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
        if error.filename == str(temporary):  # of which nobody has heard
            error.filename = str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)


def _remove_leftovers(path: Path) -> None:
    """Parts that were left behind by a process that was killed."""
    if os.name != "posix":  # elsewhere one cannot ask whether a process lives
        return
    for part in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
        process = part.name.split(".")[-3]
        if process.isdigit() and not _is_alive(int(process)):
            part.unlink(missing_ok=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)  # sends nothing
    except ProcessLookupError:
        return False
    except OSError:  # somebody else's
        return True
    return True


def _sync_folder(folder: Path) -> None:
    """The new name is on the disk, too; where folders cannot be opened there is nothing to do."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
