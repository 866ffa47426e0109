"""The one app that a federation runs, as bytes that are the same everywhere.

Flower sends an app to the server and to every site as an archive. Ours holds no code: it is a list of
names. Its hash is pinned by the installed version of ttpfl. Whatever has another hash is refused before it is
unpacked, and nothing that came in an archive is ever imported: see `server_process.py` and `site_process.py`.
"""

import hashlib
import io
import zipfile
from functools import cache
from pathlib import Path

from ttpfl.errors import RefusedError

DESCRIPTION = Path(__file__).parent / "app" / "pyproject.toml"
_DATE = (1980, 1, 1, 0, 0, 0)
_UNIX = 3  # or else the system that packs would be part of the bytes


@cache
def bundle() -> bytes:
    """The archive, not compressed, so that no version of a compressor changes its hash.

    >>> bundle() == bundle.__wrapped__()
    True
    """
    description = DESCRIPTION.read_bytes()
    digest = hashlib.sha256(description).hexdigest()
    manifest = f"pyproject.toml,{digest},{len(description) * 8}".encode()
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as file:
        for name, content in (("pyproject.toml", description), (".info/CONTENT", manifest)):
            entry = zipfile.ZipInfo(name, _DATE)
            entry.create_system = _UNIX
            entry.external_attr = 0o600 << 16
            file.writestr(entry, content)
    return archive.getvalue()


def hash_of(archive: bytes) -> str:
    """As Flower names apps."""
    return hashlib.sha256(archive).hexdigest()


def check_app(archive: bytes) -> None:
    """Refuse every app but the installed one, by its bytes and not by the name that somebody gave it.

    >>> check_app(b"import os")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    ttpfl.errors.RefusedError: the app de2abade is not the one of this version of ttpfl (...)
    """
    if (found := hash_of(archive)) != (own := hash_of(bundle())):
        raise RefusedError(f"the app {found[:8]} is not the one of this version of ttpfl ({own[:8]})")
