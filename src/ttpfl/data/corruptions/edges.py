"""Canny's edges, for a stack of images at once."""

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

# Neighbours of a pixel within its own image, also diagonally; images of a stack do not touch.
_TOUCHING = np.zeros((3, 3, 3), bool)
_TOUCHING[1] = True
# Not ndimage.sobel, which also smooths across the images of a stack.
_SOBEL = np.outer([-1, 0, 1], [1, 2, 1])


def canny(layers: NDArray[np.uint8], low: float, high: float) -> NDArray[np.bool_]:
    """Thin lines where (images, height, width) layers change quickly.

    A line is kept where its slope is above `high`, and as far from there as it stays above `low`. The
    slope is the sum of both absolute Sobel differences.

    >>> layer = np.zeros((1, 5, 6), np.uint8)
    >>> layer[:, :, 3:] = 200
    >>> canny(layer, 50, 150)[0, 2].astype(int)
    array([0, 0, 1, 0, 0, 0])
    """
    values = layers.astype(np.int32)
    down, right = (ndimage.correlate(values, way[None], mode="nearest") for way in (_SOBEL, _SOBEL.T))
    slope = np.abs(down) + np.abs(right)
    candidates = (slope > low) & _ridges(slope, down, right)
    lines, count = ndimage.label(candidates, _TOUCHING)
    strong = np.zeros(count + 1, bool)
    strong[lines[candidates & (slope > high)]] = True
    kept: NDArray[np.bool_] = strong[lines]
    return kept


def _ridges(slope: NDArray[np.int32], down: NDArray[np.int32], right: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Whether a pixel's slope is the largest across the edge, whose direction is one of four."""
    padded = np.pad(slope, ((0, 0), (1, 1), (1, 1)))
    height, width = slope.shape[1:]

    def neighbour(rows: int, columns: int) -> NDArray[np.int32]:
        return padded[:, 1 + rows : 1 + rows + height, 1 + columns : 1 + columns + width]

    tangent = np.tan(np.pi / 8)
    level = np.abs(down) < tangent * np.abs(right)
    steep = np.abs(right) < tangent * np.abs(down)
    falling = (slope > neighbour(-1, -1)) & (slope > neighbour(1, 1))
    rising = (slope > neighbour(-1, 1)) & (slope > neighbour(1, -1))
    # Of two equal neighbours only the first counts, or an edge would be two pixels wide.
    return np.select(
        [level, steep, (down < 0) == (right < 0)],
        [
            (slope > neighbour(0, -1)) & (slope >= neighbour(0, 1)),
            (slope > neighbour(-1, 0)) & (slope >= neighbour(1, 0)),
            falling,
        ],
        rising,
    )
