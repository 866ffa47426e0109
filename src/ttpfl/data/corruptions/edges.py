"""The Canny edge detector for a stack of images."""

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

# A pixel and its eight neighbours within an image, not across images of the stack.
_TOUCHING = np.zeros((3, 3, 3), bool)
_TOUCHING[1] = True
# ndimage.sobel would also smooth across the images of the stack.
_SOBEL = np.outer([-1, 0, 1], [1, 2, 1])


def canny(layers: NDArray[np.uint8], low: float, high: float) -> NDArray[np.bool_]:
    """Edges of (images, height, width) layers.

    An edge needs a slope above `high` somewhere and above `low` everywhere. The slope is the sum of both
    absolute Sobel differences.

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
    return np.asarray(strong[lines])


def _ridges(slope: NDArray[np.int32], down: NDArray[np.int32], right: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Whether a pixel's slope is the largest across the edge, in one of four directions."""
    padded = np.pad(slope, ((0, 0), (1, 1), (1, 1)))
    height, width = slope.shape[1:]

    def neighbour(rows: int, columns: int) -> NDArray[np.int32]:
        return padded[:, 1 + rows : 1 + rows + height, 1 + columns : 1 + columns + width]

    tangent = np.tan(np.pi / 8)
    level = np.abs(down) < tangent * np.abs(right)
    steep = np.abs(right) < tangent * np.abs(down)
    falling = (slope > neighbour(-1, -1)) & (slope > neighbour(1, 1))
    rising = (slope > neighbour(-1, 1)) & (slope > neighbour(1, -1))
    # Of two equal neighbours only the first counts; otherwise edges would be two pixels wide.
    across = (slope > neighbour(0, -1)) & (slope >= neighbour(0, 1))
    along = (slope > neighbour(-1, 0)) & (slope >= neighbour(1, 0))
    return np.select([level, steep, (down < 0) == (right < 0)], [across, along, falling], rising)
