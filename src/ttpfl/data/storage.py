"""Data files: checked when read, written atomically."""

import hashlib
import json
import logging
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ttpfl.data.images import File
from ttpfl.errors import DataError, LimitError
from ttpfl.util.files import written_in_one_step
from ttpfl.util.limits import ARRAYS
from ttpfl.util.npy import check_npz, unpacked_size
from ttpfl.util.reading import open_regular, read_bytes

log = logging.getLogger("ttpfl")

CACHE = "cache"  # folder below the data directory


def verify(path: Path, file: File) -> None:
    """Raise a DataError unless the file at `path` has the published checksum."""
    if (sha256 := _sha256(path)) != file.sha256:
        raise DataError(
            f"{path} is damaged (its sha256 is {sha256} instead of {file.sha256}): "
            f"delete it and download it again from {file.url}"
        )


def cache_path(directory: Path, name: str, key: dict[str, Any], suffix: str) -> Path:
    """The cache file of something that depends only on `key`.

    >>> cache_path(Path("data"), "digits", {"seed": 0}, "npz").as_posix()
    'data/cache/digits-de7d7744ccd7722e.npz'
    """
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
    return directory / CACHE / f"{name}-{digest[:16]}.{suffix}"


def keep(path: Path, write: Callable[[IO[bytes]], None]) -> None:
    """Write a cache file atomically; if that fails, only warn."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_in_one_step(path) as file:
            write(file)
    except OSError as error:
        log.warning("%s could not be written (%s): it will be made again next time", path, error)


def keep_digest(path: Path, content: Path) -> None:
    """Store the SHA-256 of `content`, which is about to be renamed to `path`, for `is_intact`."""
    with written_in_one_step(_digest_file(path)) as file:
        file.write(_sha256(content).encode())


def is_intact(path: Path) -> bool:
    """Whether a file matches its stored digest; False if it has none."""
    digest = _digest_file(path)
    return digest.exists() and read_bytes(digest) == _sha256(path).encode()


def _digest_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


def _sha256(path: Path) -> str:
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """All arrays of an npz file; a DataError if it is not valid."""
    # Opened here, because numpy leaves invalid files open if it is given a path.
    with open_regular(path) as file:
        try:
            if not zipfile.is_zipfile(file):
                raise DataError("not an archive of named arrays")
            ARRAYS.check(unpacked_size(file), path)
            check_npz(file)
            file.seek(0)
            with np.load(file, allow_pickle=False) as arrays:
                return dict(arrays.items())
        except LimitError:
            raise
        except Exception as error:  # the readers can fail in any way
            raise DataError(
                f"{path} is not a valid npz file of plain arrays ({error}): "
                "write it again with numpy.savez or numpy.savez_compressed"
            ) from error


def read_images(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64] | None]:
    """Images `x`, gray (N, H, W) or RGB (N, H, W, 3), and labels `y`, if any, of an npz file."""
    arrays = read_npz(path)
    if "x" not in arrays:
        raise DataError(f"{path} has no array 'x', only {sorted(arrays)}: name the images x and the labels y")
    x, y = arrays["x"], arrays.get("y")
    if x.ndim == 4 and x.shape[3] == 1:
        x = x[..., 0]
    if x.dtype != np.uint8 or x.ndim not in (3, 4) or (x.ndim == 4 and x.shape[3] != 3) or 0 in x.shape[1:]:
        raise DataError(
            f"x in {path} is {x.dtype} {x.shape}; images must be uint8 of shape (N, height, width) or "
            "(N, height, width, 3). Pass other kinds of data directly to learn_rates"
        )
    if y is not None and (y.dtype.kind not in "iu" or y.shape != (len(x),)):
        raise DataError(f"y in {path} is {y.dtype} {y.shape}; it must be {len(x)} integers, one per image")
    return x, None if y is None else y.astype(np.int64)
