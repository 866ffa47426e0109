"""Apply a corruption to images: check the arguments, then go through the images in chunks."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ttpfl.data.corruptions import registry
from ttpfl.data.corruptions.batch import Batch, Images, Pixels
from ttpfl.errors import DataError
from ttpfl.util.settings_kit import integer

Seed: TypeAlias = int | tuple[int, ...]

SMALLEST_SIDE = 8  # most corruptions destroy smaller images
_CHUNK_VALUES = 2**18  # so that the arrays of a chunk stay in the processor's cache


def corrupt(
    images: Pixels,
    name: str,
    severity: int,
    seeds: Sequence[Seed] | NDArray[np.integer[Any]],
    frost_textures: Sequence[Pixels] = (),
) -> Pixels:
    """Corrupt images.

    The result for an image depends only on its own seed, not on the batch, the order or the process. It needs
    the same versions of numpy, scipy and pillow.

    Args:
        images: uint8 of shape (images, height, width, 3); not modified.
        name: One of `names()`.
        severity: 1 to 5.
        seeds: For each image a non-negative integer, or a tuple of them such as (client, image).
        frost_textures: Textures for "frost", uint8 (height, width, 3), at least as large as the images,
            instead of the built-in one.

    >>> images = np.full((3, 32, 32, 3), 128, np.uint8)
    >>> noisy = corrupt(images, "gaussian_noise", 5, seeds=[(7, 0), (7, 1), (7, 2)])
    >>> noisy.shape, noisy.dtype, round(float(noisy.std() / 255), 2)
    ((3, 32, 32, 3), dtype('uint8'), 0.1)
    >>> np.array_equal(noisy[2:], corrupt(images[2:], "gaussian_noise", 5, seeds=[(7, 2)]))
    True
    >>> corrupt(images, "gausian_noise", 5, seeds=range(3))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    ttpfl.errors.DataError: unknown corruption 'gausian_noise'; did you mean 'gaussian_noise'? ...
    """
    chosen = registry.get(name)
    _check_images(images)
    integer(1, 5).check(DataError, severity=severity)
    keys = _checked_seeds(seeds, len(images))
    textures = _checked_textures(frost_textures, images)
    result = np.empty_like(images, order="C")
    size = max(1, _CHUNK_VALUES // images[0].size) if len(images) else 1
    for start in range(0, len(images), size):
        part = slice(start, start + size)
        batch = Batch(images[part], [np.random.default_rng(key) for key in keys[part]], textures)
        result[part] = to_pixels(chosen(batch, severity))
    return result


def to_pixels(images: Images) -> Pixels:
    """Round values from 0 to 1 to bytes; others are clipped.

    >>> to_pixels(np.array([-1, 0.5, 1.2], np.float32))
    array([  0, 128, 255], dtype=uint8)
    """
    return np.rint(np.clip(images, 0, 1) * 255).astype(np.uint8)


def _check_images(images: Any) -> None:
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8:
        kind = f"dtype {images.dtype}" if isinstance(images, np.ndarray) else type(images).__name__
        raise DataError(f"images must be a numpy array of dtype uint8 with values 0 to 255, got {kind}")
    if images.ndim != 4 or images.shape[3] != 3:
        raise DataError(
            f"images must have shape (images, height, width, 3), got {images.shape}: add an axis to a single "
            "image, repeat a gray channel three times, or move channels to the end"
        )
    if min(images.shape[1:3]) < SMALLEST_SIDE:
        raise DataError(
            f"images of {images.shape[1]}x{images.shape[2]} pixels are too small to corrupt: "
            f"enlarge them to at least {SMALLEST_SIDE}x{SMALLEST_SIDE}"
        )


def _checked_seeds(seeds: Any, count: int) -> list[Seed]:
    keys = [tuple(map(_integer, seed)) if np.ndim(seed) else _integer(seed) for seed in seeds]
    if len(keys) != count:
        raise DataError(f"{len(keys)} seeds for {count} images: pass one for each image")
    for index, key in enumerate(keys):
        parts = key if isinstance(key, tuple) else (key,)
        if not parts or min(parts) < 0:
            raise DataError(f"seed {index} is {key!r}: pass non-negative integers or tuples of them")
    return keys


def _integer(value: Any) -> int:
    if isinstance(value, (int, np.integer)):
        return int(value)
    raise DataError(f"a seed is {value!r} ({type(value).__name__}): pass integers or tuples of them")


def _checked_textures(textures: Sequence[Pixels], images: Pixels) -> list[Image.Image]:
    height, width = images.shape[1:3]
    for index, texture in enumerate(textures):
        is_image = isinstance(texture, np.ndarray) and texture.dtype == np.uint8 and texture.ndim == 3
        if not is_image or texture.shape[2] != 3:
            raise DataError(f"frost texture {index} must be a uint8 array of shape (height, width, 3)")
        if texture.shape[0] < height or texture.shape[1] < width:
            raise DataError(
                f"frost texture {index} has {texture.shape[0]}x{texture.shape[1]} pixels, the images have "
                f"{height}x{width}: pass a larger one"
            )
    return [Image.fromarray(np.ascontiguousarray(texture)) for texture in textures]
