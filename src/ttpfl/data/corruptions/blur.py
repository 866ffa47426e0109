"""Blurs. Radii, standard deviations and displacements scale with the image side."""

import math
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from ttpfl.data.corruptions.batch import Batch, Images
from ttpfl.data.corruptions.registry import corruption
from ttpfl.data.corruptions.resample import clipped_zoom, line_blur


def smooth(images: Images, sd: float) -> Images:
    """Gaussian blur of each channel of each image; edges are extended."""
    return np.asarray(ndimage.gaussian_filter(images, (0, sd, sd, 0), mode="nearest"))


@corruption((0.4,), (0.6,), (0.7,), (0.8,), (1.0,))
def gaussian_blur(batch: Batch, sd: float) -> Images:
    """Gaussian blur."""
    return smooth(batch.images, sd * batch.scale)


@corruption((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1.0, 0.2), (1.5, 0.1))
def defocus_blur(batch: Batch, radius: float, alias_sd: float) -> Images:
    """Out of focus: a disk kernel, itself slightly blurred against aliasing.

    It is not scaled down for images below 32 pixels: a disk of radius 1 would shrink to one pixel.
    """
    scale = max(1.0, batch.scale)
    kernel = disk(radius * scale, alias_sd * scale, reach=math.ceil(scale))
    return np.asarray(ndimage.correlate(batch.images, kernel[None, :, :, None], mode="mirror"))


@cache
def disk(radius: float, alias_sd: float, reach: int) -> NDArray[np.float64]:
    """The pixels within `radius`, blurred with a Gaussian truncated at `reach` pixels; the sum is 1."""
    half = math.floor(radius) + reach
    place = np.arange(-half, half + 1)
    inside = (place**2 + place[:, None] ** 2 <= radius**2).astype(np.float64)
    gaussian = np.exp(-0.5 * (np.arange(-reach, reach + 1) / alias_sd) ** 2)
    for axis in (0, 1):
        inside = ndimage.correlate1d(inside, gaussian, axis, mode="constant")
    return np.asarray(inside / inside.sum())


@corruption((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2))
def glass_blur(batch: Batch, sd: float, displacement: int, iterations: int) -> Images:
    """Frosted glass: blur, swap every pixel with one nearby, blur.

    The displacement is uniform in both directions. Severities 1 and 2 look alike; 3 and 5 have more blur but
    smaller differences than 2 and 4, because pixels swap as often and the blur smooths them.
    """
    reach = max(1, round(displacement * batch.scale))
    blurred = smooth(batch.images, sd * batch.scale)
    pixels = blurred.reshape(len(blurred), -1, 3)
    orders = [
        shuffled_nearby(batch.height, batch.width, reach, iterations, random) for random in batch.random
    ]
    shuffled = np.take_along_axis(pixels, np.stack(orders)[:, :, None], axis=1)
    return smooth(shuffled.reshape(blurred.shape), sd * batch.scale)


def shuffled_nearby(
    height: int, width: int, reach: int, iterations: int, random: np.random.Generator
) -> NDArray[np.intp]:
    """Pixel indices after every inner pixel in turn is swapped with one at most `reach` away."""
    rows, columns = np.arange(reach, height - reach), np.arange(reach, width - reach)
    # From the last pixel to the first. Python integers: a list swaps faster than an array.
    inner = (rows[:, None] * width + columns).ravel()[::-1]
    order = list(range(height * width))
    for _ in range(iterations):
        down, right = random.integers(-reach, reach, (2, inner.size), endpoint=True)
        for a, b in zip(inner.tolist(), (inner + down * width + right).tolist(), strict=True):
            order[a], order[b] = order[b], order[a]
    return np.array(order, np.intp)


@corruption((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5))
def motion_blur(batch: Batch, radius: float, sd: float) -> Images:
    """A camera that moves in a direction from -45 to 45 degrees."""
    return line_blur(batch.images, radius * batch.scale, sd * batch.scale, degrees=batch.uniform(-45, 45))


@corruption((1.06,), (1.11,), (1.16,), (1.21,), (1.26,))
def zoom_blur(batch: Batch, limit: float) -> Images:
    """A camera that approaches: the mean of the image and its zooms 1, 1.01, ... below the limit."""
    steps = round((limit - 1) * 100)
    total = batch.images.copy()
    for step in range(steps):
        total += clipped_zoom(batch.images, 1 + step / 100)
    return total / np.float32(steps + 1)
