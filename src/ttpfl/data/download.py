"""Fetch a file over https, with a progress bar, and keep it only if its SHA-256 is right."""

import hashlib
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from ttpfl.data.images import File
from ttpfl.errors import DataError
from ttpfl.util.files import written_in_one_step

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
            if found != file.sha256:
                raise DataError(
                    f"what {file.url} gave for {path} is damaged (sha256 {found}, it should be "
                    f"{file.sha256}): it was not kept; try again"
                )
    except (OSError, HTTPException) as error:
        raise DataError(f"{file.url} could not be fetched to {path} ({error})") from error


def _copy(url: str, write: Callable[[bytes], object]) -> str:
    digest = hashlib.sha256()
    _check_private(url)
    with build_opener(_SentOn).open(url, timeout=TIMEOUT) as answer:
        total = answer.headers.get("Content-Length")
        with _progress(url, int(total) if total else None) as advance:
            while chunk := answer.read(CHUNK):
                write(chunk)
                digest.update(chunk)
                advance(len(chunk))
    return digest.hexdigest()


def _check_private(url: str) -> None:
    """Everything that comes from another machine comes by https."""
    found = urlsplit(url)
    if found.scheme != "https" and (found.scheme, found.hostname) != ("http", "127.0.0.1"):
        raise DataError(f"{url} does not begin with https: nothing was fetched from there")


class _SentOn(HTTPRedirectHandler):
    """Follows to addresses that could have been asked for, too."""

    def redirect_request(
        self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> Request | None:
        _check_private(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


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
