"""Fetch a file, with a progress bar, and keep it only if its checksum is right."""

import hashlib
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from urllib.request import urlopen

from ttpfl.data.images import File
from ttpfl.errors import DataError
from ttpfl.files import written_in_one_step

log = logging.getLogger("ttpfl")

CHUNK = 2**18
TIMEOUT = 30  # seconds without an answer


def fetch(file: File, directory: Path) -> None:
    """Download `file` to its place below `directory`; one that is already there is left as it is."""
    path = directory / file.path
    if path.exists():
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_in_one_step(path) as out:
            found = _copy(file.url, out.write)
            if found != file.md5:
                raise DataError(
                    f"what {file.url} gave for {path} is damaged (md5 {found}, it should be {file.md5}): "
                    "it was not kept; try again"
                )
    except (OSError, HTTPException) as error:
        raise DataError(f"{file.url} could not be fetched to {path} ({error})") from error


def _copy(url: str, write: Callable[[bytes], object]) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    with urlopen(url, timeout=TIMEOUT) as answer:
        total = answer.headers.get("Content-Length")
        with _progress(url, int(total) if total else None) as advance:
            while chunk := answer.read(CHUNK):
                write(chunk)
                digest.update(chunk)
                advance(len(chunk))
    return digest.hexdigest()


@contextmanager
def _progress(url: str, total: int | None) -> Iterator[Callable[[int], None]]:
    log.info("downloading %s", url)
    try:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
    except ImportError:  # the bar is a comfort, the download works without
        yield lambda size: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(url.rpartition("/")[2], total=total)
        yield lambda size: bar.advance(task, size)
