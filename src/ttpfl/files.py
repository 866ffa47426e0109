"""Files that are either there in full or not at all."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def written_in_one_step(path: Path) -> Iterator[IO[bytes]]:
    """A file to write to, which takes the name `path` only once it is complete and on the disk.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with written_in_one_step(folder / "note") as file:
    ...     _ = file.write(b"hello")
    >>> [(path.name, path.read_bytes()) for path in folder.iterdir()]
    [('note', b'hello')]
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.part")
    try:
        with open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
