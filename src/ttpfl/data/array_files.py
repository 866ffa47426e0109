"""Files of samples: npz archives, and npy files, which are memory-mapped instead of read."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ttpfl.data.natural_clients import UNKNOWN
from ttpfl.data.storage import read_npz
from ttpfl.errors import DataError
from ttpfl.util.limits import ARRAYS
from ttpfl.util.npy import declared_size
from ttpfl.util.reading import open_regular

NUMBERS = "iuf"  # kinds of numpy types


class Recording(NamedTuple):
    """The content of a file or folder of samples."""

    x: NDArray[Any]
    y: NDArray[np.int64]
    """-1 where unknown."""
    client: NDArray[Any] | None
    """The client of each sample, by number or name."""
    scale: float
    classes: tuple[str, ...] | None


def read_recording(path: Path) -> Recording:
    """Samples `x` with labels `y` and, optionally, `client`, `scale` and `classes`.

    `path` is an npz file, or a folder with `x.npy` and others. The samples of a folder stay in their file.
    """
    arrays = _folder(path) if path.is_dir() else read_npz(path)
    if "x" not in arrays:
        raise DataError(
            f"{path} has no array 'x', only {sorted(arrays)}: name the samples x and the labels y"
        )
    x, count = arrays["x"], len(arrays["x"]) if arrays["x"].ndim else 0
    if x.dtype.kind not in NUMBERS or x.ndim < 2 or 0 in x.shape[1:]:
        raise DataError(
            f"x in {path} is {x.dtype} {x.shape}; it must be numbers of shape (N, features), "
            "(N, channels, time) or (N, channels, height, width), or images of uint8, (N, height, width) or "
            "(N, height, width, 3)"
        )
    y = arrays.get("y", np.full(count, UNKNOWN))
    if y.dtype.kind not in "iu" or y.shape != (count,):
        named = y.dtype.kind in "UO"
        advice = ": classes, y = np.unique(y, return_inverse=True) numbers names" if named else ""
        raise DataError(
            f"y in {path} is {y.dtype} {y.shape}; it must be {count} integers, one per sample{advice}"
        )
    client = arrays.get("client")
    if client is not None and (client.dtype.kind not in "iuU" or client.shape != (count,)):
        raise DataError(
            f"client in {path} is {client.dtype} {client.shape}; it must be {count} numbers or names, "
            "one per sample"
        )
    return Recording(x, y.astype(np.int64), client, _scale(arrays, path), _classes(arrays, path))


def read_samples(path: Path) -> NDArray[Any]:
    """The samples `x` of an npz file, or of an npy file, which is memory-mapped."""
    if path.suffix.lower() == ".npy":
        return _read_npy(path, mapped=True)
    return read_recording(path).x


def _scale(arrays: dict[str, NDArray[Any]], path: Path) -> float:
    scale = arrays.get("scale", np.ones(()))
    if scale.dtype.kind not in NUMBERS or scale.size != 1 or not np.isfinite(scale).all() or not scale.any():
        raise DataError(f"scale in {path} is {scale!r:.60}; it must be one number other than 0")
    return float(scale.reshape(()))


def _classes(arrays: dict[str, NDArray[Any]], path: Path) -> tuple[str, ...] | None:
    classes = arrays.get("classes")
    if classes is None:
        return None
    if classes.dtype.kind != "U" or classes.ndim != 1:
        raise DataError(f"classes in {path} is {classes.dtype} {classes.shape}; it must be a list of names")
    return tuple(classes.tolist())


def _folder(path: Path) -> dict[str, NDArray[Any]]:
    """The npy files of a folder: `x` memory-mapped, the others read."""
    arrays: dict[str, NDArray[Any]] = {}
    for name in ("x", "y", "client", "scale", "classes"):
        if (file := path / f"{name}.npy").exists():
            arrays[name] = _read_npy(file, mapped=name == "x")
    return arrays


def _read_npy(path: Path, mapped: bool) -> NDArray[Any]:
    try:
        with open_regular(path) as file:
            size = declared_size(file)
            stored = path.stat().st_size - file.tell()
        if size != stored:
            raise ValueError(f"it declares {size} bytes but has {stored}")
        if not mapped:
            ARRAYS.check(size, path)
        # A plain view of the mapped file: indexing `np.memmap` itself takes twice as long.
        array = np.asarray(np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False))
    except ValueError as error:
        if isinstance(error, DataError):
            raise
        raise DataError(
            f"{path} is not a valid npy file ({error}): write it again with numpy.save"
        ) from error
    return array
