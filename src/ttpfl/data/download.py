"""Download a file over https, with a progress bar, and keep it only if its SHA-256 is right."""

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
TIMEOUT = 30  # seconds without a response


def fetch(file: File, directory: Path) -> None:
    """Download `file` to its path below `directory`, unless it exists."""
    path = directory / file.path
    if path.exists():
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_in_one_step(path) as out:
            if (sha256 := _copy(file.url, out.write)) != file.sha256:
                raise DataError(
                    f"the download of {path} from {file.url} is damaged (its sha256 is {sha256} instead of "
                    f"{file.sha256}) and was deleted: try again"
                )
    except (OSError, HTTPException) as error:
        raise DataError(f"{file.url} could not be downloaded to {path} ({error})") from error


def _copy(url: str, write: Callable[[bytes], object]) -> str:
    digest = hashlib.sha256()
    _check_https(url)
    with build_opener(_Redirect).open(url, timeout=TIMEOUT) as response:
        total = response.headers.get("Content-Length")
        with _progress(url, int(total) if total else None) as advance:
            while chunk := response.read(CHUNK):
                write(chunk)
                digest.update(chunk)
                advance(len(chunk))
    return digest.hexdigest()


def _check_https(url: str) -> None:
    """Raise a DataError unless the address uses https, or is on this machine."""
    parts = urlsplit(url)
    if parts.scheme != "https" and (parts.scheme, parts.hostname) != ("http", "127.0.0.1"):
        raise DataError(f"{url} does not start with https: nothing was downloaded")


class _Redirect(HTTPRedirectHandler):
    """Redirects only to addresses that are allowed."""

    def redirect_request(
        self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> Request | None:
        _check_https(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


@contextmanager
def _progress(url: str, total: int | None) -> Iterator[Callable[[int], None]]:
    log.info("downloading %s", url)
    try:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
    except ImportError:  # the download works without a progress bar
        yield lambda size: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(url.rpartition("/")[2], total=total)
        yield lambda size: bar.advance(task, size)
