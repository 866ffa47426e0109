"""Clouds: the diamond-square fractal."""

import numpy as np
from numpy.typing import NDArray


def plasma(noise: NDArray[np.float32], decay: float) -> NDArray[np.float32]:
    """Clouds from 0 to 1 that match at opposite edges.

    Every point is the mean of four neighbours plus its value of `noise`, of shape (images, side, side), where
    the side is a power of two. As in the benchmark, the noise shrinks by `decay` squared per level.

    >>> clouds = plasma(np.random.default_rng(0).uniform(-1, 1, (3, 16, 16)).astype(np.float32), 2.0)
    >>> clouds.shape, clouds.min(), clouds.max()
    ((3, 16, 16), np.float32(0.0), np.float32(1.0))
    """
    clouds = np.zeros_like(noise)
    step, amplitude = noise.shape[1], 1.0
    while step >= 2:
        _refine(clouds, np.float32(amplitude) * noise, step)
        step //= 2
        amplitude /= decay**2
    clouds -= clouds.min((1, 2), keepdims=True)
    clouds /= clouds.max((1, 2), keepdims=True)
    return clouds


def _refine(clouds: NDArray[np.float32], noise: NDArray[np.float32], step: int) -> None:
    """Fill in the points half a `step` from the known ones."""
    half = step // 2
    corner = clouds[:, ::step, ::step]
    below, beside = np.roll(corner, -1, 1), np.roll(corner, -1, 2)
    centre = (corner + below + beside + np.roll(below, -1, 2)) / 4 + noise[:, half::step, half::step]
    clouds[:, half::step, half::step] = centre
    clouds[:, half::step, ::step] = (corner + below + centre + np.roll(centre, 1, 2)) / 4
    clouds[:, ::step, half::step] = (corner + beside + centre + np.roll(centre, 1, 1)) / 4
    clouds[:, half::step, ::step] += noise[:, half::step, ::step]
    clouds[:, ::step, half::step] += noise[:, ::step, half::step]
