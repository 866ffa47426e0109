"""Bilinear sampling of images, and blurring along a line."""

import math

import numpy as np
from numpy.typing import NDArray

from ttpfl.data.corruptions.batch import Images

Coordinates = NDArray[np.floating]


def sample_grid(images: Images, rows: Coordinates, columns: Coordinates) -> Images:
    """Bilinear samples on a grid that is the same for all images; edges are extended.

    >>> image = np.arange(4, dtype=np.float32).reshape(1, 2, 2, 1)
    >>> sample_grid(image, np.array([0.5]), np.array([0, 0.5, 9]))[0, :, :, 0]
    array([[1. , 1.5, 2. ]], dtype=float32)
    """
    for axis, positions in ((1, rows), (2, columns)):
        last = images.shape[axis] - 1
        inside = np.clip(positions, 0, last)
        before = np.floor(inside).astype(np.intp)
        after = np.minimum(before + 1, last)
        weight = (inside - before).astype(np.float32).reshape((-1,) + (1,) * (3 - axis))
        low = images.take(before, axis)
        images = low + weight * (images.take(after, axis) - low)
    return images


def resize(images: Images, height: int, width: int) -> Images:
    """Bilinear resizing; halving takes the mean of 2x2 pixels.

    >>> resize(np.arange(4, dtype=np.float32).reshape(1, 2, 2, 1), 1, 1)
    array([[[[1.5]]]], dtype=float32)
    """
    if images.shape[1:3] == (height, width):
        return images
    rows, columns = (
        (np.arange(new) + 0.5) * (old / new) - 0.5
        for old, new in zip(images.shape[1:3], (height, width), strict=True)
    )
    return sample_grid(images, rows, columns)


def clipped_zoom(images: Images, factor: float) -> Images:
    """Zoom into the centre by `factor` (at least 1), rounded to pixels, at the same size."""
    rows, columns = (_zoomed(length, factor) for length in images.shape[1:3])
    return sample_grid(images, rows, columns)


def _zoomed(length: int, factor: float) -> Coordinates:
    kept = math.ceil(length / factor)
    enlarged = round(kept * factor)
    start, trimmed = (length - kept) // 2, (enlarged - length) // 2
    # The first and the last pixel of the piece keep their place; the others spread out.
    return start + (np.arange(length) + trimmed) * ((kept - 1) / (enlarged - 1))


def sample(images: Images, rows: Coordinates, columns: Coordinates) -> Images:
    """Bilinear samples at each image's own (height, width) positions; edges are mirrored."""
    height, width = images.shape[1:3]
    top, left = np.floor(rows).astype(np.intp), np.floor(columns).astype(np.intp)
    down = (rows - top).astype(np.float32)[..., None]
    right = (columns - left).astype(np.float32)[..., None]
    number = np.arange(len(images))[:, None, None]

    def row(index: NDArray[np.intp]) -> Images:
        first, second = (images[number, index, mirrored(left + step, width)] for step in (0, 1))
        return first + right * (second - first)

    upper, lower = row(mirrored(top, height)), row(mirrored(top + 1, height))
    return upper + down * (lower - upper)


def mirrored(index: NDArray[np.intp], length: int) -> NDArray[np.intp]:
    """Reflect indices at the ends, without repeating the end.

    >>> mirrored(np.array([-2, -1, 0, 3, 4]), 4)
    array([2, 1, 0, 3, 2])
    """
    period = 2 * (length - 1)
    index = np.abs(index) % period
    return np.minimum(index, period - index)


def line_blur(images: Images, radius: float, sd: float, degrees: NDArray[np.float32]) -> Images:
    """Blur each image along its own direction, to one side, with a Gaussian of 2 radius + 1 pixels."""
    steps = np.arange(2 * math.ceil(radius) + 1)
    weights = np.exp(-0.5 * (steps / sd) ** 2)
    weights /= weights.sum()
    angle = np.deg2rad(degrees.astype(np.float64))[:, None]
    down, right = (np.rint(steps * part).astype(np.intp) for part in (np.sin(angle), np.cos(angle)))
    number = np.arange(len(images))[:, None, None]
    height, width = images.shape[1:3]
    result = np.zeros_like(images)
    for step, weight in zip(steps, weights.astype(np.float32), strict=True):
        rows = np.clip(np.arange(height) + down[:, step, None], 0, height - 1)
        columns = np.clip(np.arange(width) + right[:, step, None], 0, width - 1)
        result += weight * images[number, rows[:, :, None], columns[:, None, :]]
    return result
