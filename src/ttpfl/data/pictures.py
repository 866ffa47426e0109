"""Decode images of all formats to uint8 RGB arrays."""

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Condition
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ttpfl.data.extras import extra
from ttpfl.errors import DataError
from ttpfl.util.limits import PICTURE
from ttpfl.util.reading import open_regular
from ttpfl.util.settings_kit import must_be

SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp"})

Size = tuple[int, int]

_ORIENTATION = 0x0112  # Exif tag


class Unreadable(NamedTuple):
    """An image that cannot be decoded, and the reason."""

    path: Path
    reason: str

    def __str__(self) -> str:
        return f"{self.path} ({self.reason})"


def pictures_in(folder: Path) -> list[Path]:
    """The image files directly in `folder`, sorted by name; other files are ignored."""
    return sorted(
        path
        for path in folder.iterdir()
        if path.suffix.lower() in SUFFIXES and not path.name.startswith(".") and path.is_file()
    )


def pictures_below(folder: Path) -> Iterator[Path]:
    """The images in `folder`, then those in its subfolders, by name, one folder at a time.

    Hidden folders and symbolic links, which could form cycles, are left out.
    """
    yield from pictures_in(folder)
    for inner in sorted(folder.iterdir()):
        if inner.is_dir() and not inner.is_symlink() and not inner.name.startswith("."):
            yield from pictures_below(inner)


def as_size(size: int | Size | None) -> Size | None:
    """Height and width from one or two numbers.

    >>> as_size(32), as_size((24, 32))
    ((32, 32), (24, 32))
    """
    if size is None:
        return None
    pair = size if isinstance(size, (tuple, list)) else (size, size)
    if len(pair) != 2 or not all(type(side) is int and side > 0 for side in pair):
        raise DataError(must_be("image_size", "a positive integer, or height and width", size))
    return pair[0], pair[1]


class _MemoryBudget:
    """Memory for decoded images, shared by all threads: enough for two images of the largest allowed size.

    A thread whose image does not fit waits for others.
    """

    def __init__(self) -> None:
        self._used, self._changed = 0, Condition()

    @contextmanager
    def reserve(self, picture: Any) -> Iterator[None]:
        size, most = _decoded_size(picture), 2 * PICTURE.value
        with self._changed:
            self._changed.wait_for(lambda: not self._used or self._used + size <= most)
            self._used += size
        try:
            yield
        finally:
            with self._changed:
                self._used -= size
                self._changed.notify_all()


_DECODED = _MemoryBudget()


def _decoded_size(picture: Any) -> int:
    """Size in bytes, four per pixel in pillow; a LimitError if it is too large."""
    size = 4 * int(picture.width) * int(picture.height)
    PICTURE.check(size, "the picture, decoded,")
    return size


def decode(paths: Iterable[Path], size: Size | None) -> Iterator[NDArray[np.uint8] | Unreadable]:
    """Decode images in the order of `paths`, in parallel threads (pillow releases the GIL)."""
    extra("PIL.Image")  # a missing package is one error, not one per image
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        yield from pool.map(lambda path: _decode(path, size), paths)


def _decode(path: Path, size: Size | None) -> NDArray[np.uint8] | Unreadable:
    try:
        with (
            open_regular(path) as file,
            extra("PIL.Image").open(file) as picture,
            _DECODED.reserve(picture),
            closing(picture),  # frees its memory before the budget
        ):
            return as_rgb(picture, size)
    except Exception as error:  # the decoders can fail in any way
        return Unreadable(path, str(error).replace(str(path), path.name) or type(error).__name__)


def as_rgb(picture: Any, size: Size | None) -> NDArray[np.uint8]:
    """A pillow image as an array: upright, on white where transparent, resized to `size`."""
    image = extra("PIL.Image")
    _decoded_size(picture)  # before anything is decoded
    if picture.mode.startswith(("I", "F")):
        raise DataError(f"more than 8 bits per channel (mode {picture.mode}): convert it to 8 bits first")
    if picture.getexif().get(_ORIENTATION, 1) != 1:  # avoids a needless copy
        picture = extra("PIL.ImageOps").exif_transpose(picture)
    if picture.mode != "RGB" or "transparency" in picture.info:
        picture = _flat(picture)
    if size is not None and picture.size != size[::-1]:
        picture = picture.resize(size[::-1], image.Resampling.BILINEAR)
    pixels = np.empty((picture.height, picture.width, 3), np.uint8)
    for box in _bands(picture):
        pixels[box[1] : box[3]] = picture.crop(box)
    return pixels


def _flat(picture: Any) -> Any:
    """RGB, on white where transparent. Band by band, to avoid another full copy."""
    image = extra("PIL.Image")
    flat = image.new("RGB", picture.size)
    for box in _bands(picture):
        band = picture.crop(box)
        if band.mode in ("RGBA", "LA", "PA") or "transparency" in band.info:
            band = band.convert("RGBA")
            band = image.alpha_composite(image.new("RGBA", band.size, "white"), band)
        flat.paste(band.convert("RGB"), box)
    return flat


def _bands(picture: Any) -> Iterator[tuple[int, int, int, int]]:
    """Boxes of full width with about a megabyte of pixels each, from top to bottom."""
    height = max(1, 2**18 // max(1, picture.width))
    for top in range(0, picture.height, height):
        yield 0, top, picture.width, min(top + height, picture.height)


def resized(x: NDArray[np.uint8], size: Size) -> NDArray[np.uint8]:
    """Resize gray (N, H, W) or RGB (N, H, W, 3) images, and convert them to RGB.

    >>> resized(np.full((2, 16, 16), 7, np.uint8), (28, 28)).shape
    (2, 28, 28, 3)
    """
    if x.shape[1:3] != size:
        image = extra("PIL.Image")
        new = np.empty((len(x), *size, *x.shape[3:]), np.uint8)
        for index, pixels in enumerate(x):
            new[index] = image.fromarray(pixels).resize(size[::-1], image.Resampling.BILINEAR)
        x = new
    return x if x.ndim == 4 else np.repeat(x[..., None], 3, axis=3)
