"""Files that are either there in full or not at all."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def written_in_one_step(path: Path) -> Iterator[IO[bytes]]:
    """A file to write to, which takes the name `path` only once it is complete and on the disk.

    >>> folder = Path(tempfile.mkdtemp())
    >>> with written_in_one_step(folder / "note") as file:
    ...     _ = file.write(b"hello")
    >>> [(path.name, path.read_bytes()) for path in folder.iterdir()]
    [('note', b'hello')]
    """
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
