"""The one app that a federation runs, as bytes that are the same everywhere.

Flower sends an app to the server and to every site as an archive. This one contains no code, only names.
The installed version of ttpfl determines its hash: an archive with another hash is refused before it is
unpacked, and nothing from an archive is ever imported (see `server_process.py` and `site_process.py`).
"""

import hashlib
import io
import zipfile
from functools import cache
from pathlib import Path

from ttpfl.errors import RefusedError

DESCRIPTION = Path(__file__).parent / "app" / "pyproject.toml"
_DATE = (1980, 1, 1, 0, 0, 0)
_UNIX = 3  # fixed, since the bytes must not depend on the system that packs


@cache
def bundle() -> bytes:
    """The archive, uncompressed, so that its hash does not depend on the version of a compressor.

    >>> bundle() == bundle.__wrapped__()
    True
    """
    description = DESCRIPTION.read_bytes()
    manifest = f"pyproject.toml,{hash_of(description)},{len(description) * 8}".encode()
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as file:
        for name, content in (("pyproject.toml", description), (".info/CONTENT", manifest)):
            entry = zipfile.ZipInfo(name, _DATE)
            entry.create_system = _UNIX
            entry.external_attr = 0o600 << 16
            file.writestr(entry, content)
    return archive.getvalue()


def hash_of(archive: bytes) -> str:
    """The hash by which Flower names an app."""
    return hashlib.sha256(archive).hexdigest()


def check_app(archive: bytes) -> None:
    """Refuse every app but the installed one, by its bytes and not by a name that came with it.

    >>> check_app(b"import os")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    ttpfl.errors.RefusedError: the app de2abade is not that of the installed ttpfl (...)
    """
    if (received := hash_of(archive)) != (installed := hash_of(bundle())):
        raise RefusedError(f"the app {received[:8]} is not that of the installed ttpfl ({installed[:8]})")
